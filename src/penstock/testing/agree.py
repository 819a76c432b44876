"""Whether two tables hold the same rows, in any order, floats within the promised error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.clock import Clock, ManualClock
from penstock.engines.protocol import Engine, RunResult
from penstock.expr import to_plain
from penstock.graph.pipegraph import PipeGraph
from penstock.graph.run import resolve_engine, start, wait
from penstock.operators.windows import Windows
from penstock.options import LocalOptions
from penstock.plan.plan import Plan, Ref

RELATIVE = 1e-9
Values = tuple[object, ...]


def difference(
    left: pa.Table, right: pa.Table, *, approximate: Sequence[str] = (), rel: float = 0.05
) -> str | None:
    """None when both hold the same rows as multisets; else a few lines that say where they differ.

    Columns named in `approximate` (sketches) may differ by the share `rel`.
    """
    if [(f.name, f.type) for f in left.schema] != [(f.name, f.type) for f in right.schema]:
        return f"schemas differ: {_types(left)} / {_types(right)}"
    loose = {left.schema.get_field_index(name) for name in approximate}
    ours, theirs = _grouped(left, loose), _grouped(right, loose)
    only_left: list[Values] = []
    only_right: list[Values] = []
    for group in dict.fromkeys([*ours, *theirs]):
        mine, others = _unmatched(
            ours.get(group, []), theirs.get(group, []), lambda a, b: _same_row(a, b, loose, rel)
        )
        only_left += mine
        only_right += others
        if mine and others:
            only_left, only_right = mine, others  # two rows that should have been one tell the most
            break
    if not only_left and not only_right:
        return None
    counts = f"{left.num_rows} rows / {right.num_rows} rows\n" if left.num_rows != right.num_rows else ""
    return f"{counts}{_told(left, only_left)}\n/ {_told(left, only_right)}"


def _grouped(table: pa.Table, loose: set[int]) -> dict[Values, list[Values]]:
    """Rows in order, by the columns that must be equal; the others may be rounded differently."""
    columns = [to_plain(column.combine_chunks()) for column in table.columns]
    exact = [i for i, field in enumerate(table.schema) if i not in loose and not _may_hold_floats(field.type)]
    groups: dict[Values, list[Values]] = {}
    for row in sorted(zip(*columns, strict=True), key=lambda row: tuple(map(_sortable, row))):
        groups.setdefault(tuple(_sortable(row[i]) for i in exact), []).append(row)
    return groups


def _may_hold_floats(type_: pa.DataType) -> bool:
    return bool(pa.types.is_floating(type_) or pa.types.is_nested(type_))


def _unmatched(
    left: list[Values], right: list[Values], same: Callable[[Values, Values], bool]
) -> tuple[list[Values], list[Values]]:
    """The rows of each side that have no partner on the other."""
    waiting = right[::-1]  # both are in order, so a partner is most often the last one, cheap to take off
    alone = []
    for row in left:
        place = next((i for i in reversed(range(len(waiting))) if same(row, waiting[i])), None)
        if place is None:
            alone.append(row)
        else:
            del waiting[place]
    return alone, waiting[::-1]


def _same_row(left: Values, right: Values, loose: set[int], rel: float) -> bool:
    pairs = enumerate(zip(left, right, strict=True))
    return all(_same(a, b, rel if i in loose else RELATIVE) for i, (a, b) in pairs)


def _sortable(value: object) -> tuple[int, str, object]:
    if value is None:
        return (0, "", 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, "", 0)
    if isinstance(value, (list, dict)):
        return (1, "json", repr(value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return (1, type(value).__name__, value)
    return (1, "number", value)


def _same(left: object, right: object, rel: float) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(
            left, right, rel_tol=rel, abs_tol=RELATIVE
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name], rel) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b, rel) for a, b in zip(left, right, strict=True))
    if rel > RELATIVE and isinstance(left, int) and isinstance(right, int):
        return math.isclose(left, right, rel_tol=rel)
    return left == right


def _told(table: pa.Table, rows: list[Values]) -> str:
    return str(dict(zip(table.schema.names, rows[0], strict=True))) if rows else "no such row"


def _types(table: pa.Table) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in table.schema)


# Run one graph on several engines and insist on the same rows: the promise that Penstock makes.


def assert_engines_agree(
    graph: PipeGraph,
    engines: Sequence[str | Engine] = ("reference", "local"),
    *,
    clock: Callable[[], Clock] = ManualClock,
    accounts: bool = True,
) -> None:
    """Raise an AssertionError that shows the first difference in what would reach any sink.

    Nothing is written. Every engine reads the sources from the beginning, with the same batch cuts.
    With `accounts` the counts of late, filtered and failed rows must agree as well.
    """
    plan = _collecting(graph)
    first, *others = [(_name(engine), _run(plan, engine, clock())) for engine in engines]
    for name, result in others:
        for ref, table in first[1].collected.items():
            found = difference(table, result.collected[ref], approximate=_approximate(plan, ref))
            assert found is None, f"{ref}: {first[0]} / {name}: {found}"
        if accounts:
            for step, told in first[1].accounts.items():
                other = result.accounts[step]
                assert told == other, f'accounts of step "{step}": {first[0]} / {name}:\n{told}\n/ {other}'


def _collecting(graph: PipeGraph) -> Plan:
    """The graph's plan with its sinks taken off and what feeds them collected."""
    whole = graph.plan()
    wanted = dict.fromkeys(ref for sink in whole.sinks for ref in sink.feeds)
    sinks = {sink.name for sink in whole.sinks}
    return Plan(whole.graph, tuple(step for step in whole if step.name not in sinks), tuple(wanted))


def _run(plan: Plan, engine: str | Engine, clock: Clock) -> RunResult:
    # In process, several sources go their own pace unless told to go in rounds, as the others do.
    options = LocalOptions(deterministic=True) if _name(engine) == "local" else None
    return wait(start(plan, engine, {"options": options, "clock": clock}))


def _name(engine: str | Engine) -> str:
    return resolve_engine(engine).name


def _approximate(plan: Plan, ref: Ref) -> list[str]:
    """Columns of a window step that come from sketches."""
    op = plan[ref.step].op
    if not isinstance(op, Windows):
        return []
    return [name for name, aggregate in (op.aggregates or {}).items() if not aggregate.exact]
