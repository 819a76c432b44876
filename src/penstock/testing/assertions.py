"""Assertions about streaming programs: engines agree, tables are equal, folds keep the laws.

Rows are compared as multisets, floats within the promised error.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import islice, product
from typing import Any

import pyarrow as pa

from penstock import read
from penstock.clock import Clock, ManualClock
from penstock.engines.protocol import Engine, RunResult
from penstock.errors import SchemaError
from penstock.expr import to_plain
from penstock.graph.pipegraph import PipeGraph
from penstock.graph.run import resolve_engine, start
from penstock.operators.aggregates import Fold
from penstock.operators.ends import Source
from penstock.operators.function import Row
from penstock.operators.windows import Windows
from penstock.options import LocalOptions
from penstock.plan.plan import Plan

RELATIVE = 1e-9
MAX_FOLD_ROWS = 12
"""Enough rows to find a broken law; triples of parts grow with the third power."""
Values = tuple[object, ...]


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

    The engine in process runs twice: round by round (`deterministic=True`), as the others do, and as users
    run it. Then several sources go at their own pace, and which row is late where they meet depends on it:
    of that second run only what comes from a single source is compared.
    """
    whole = graph.plan()
    sinks = {sink.name for sink in whole.sinks}
    wanted = dict.fromkeys(ref for sink in whole.sinks for ref in sink.feeds)
    plan = Plan(whole.graph, tuple(step for step in whole if step.name not in sinks), tuple(wanted))
    everything = {step.name for step in plan}
    of_one_source = {step for step, sources in _sources_of(plan).items() if len(sources) == 1}
    results: list[tuple[str, set[str], RunResult]] = []
    for engine in engines:
        name = resolve_engine(engine).name
        modes: list[tuple[str, LocalOptions | None, set[str]]] = [(name, None, everything)]
        if name == "local":
            modes = [
                (name, LocalOptions(deterministic=True), everything),
                (f"{name}, not deterministic", LocalOptions(), of_one_source),
            ]
        for mode, options, steps in modes:
            run = start(plan, engine, {"options": options, "clock": clock()}, "run")
            results.append((mode, steps, run.wait()))
    (judge, _, first), *rest = results
    for mode, steps, result in rest:
        for ref, table in first.collected.items():
            op = plan[ref.step].op
            aggregates = (op.aggregates if isinstance(op, Windows) else None) or {}
            sketched = [column for column, aggregate in aggregates.items() if not aggregate.exact]
            if ref.step in steps:
                differing = difference(table, result.collected[ref], approximate=sketched)
                assert differing is None, f"{ref}: {judge} / {mode}: {differing}"
        for step, counts in first.accounts.items() if accounts else ():
            other = result.accounts[step] if step in steps else counts
            assert counts == other, f'accounts of step "{step}": {judge} / {mode}:\n{counts}\n/ {other}'


def _sources_of(plan: Plan) -> dict[str, set[str]]:
    """Return the sources that each step gets rows from, feedback included."""
    sources: dict[str, set[str]] = {step.name: set() for step in plan}
    changed = True
    while changed:  # feedback comes from later steps, so once through the plan is not enough
        changed = False
        for step in plan:
            known = {step.name} if isinstance(step.op, Source) else set()
            known = known.union(*(sources[ref.step] for port in step.inputs for ref in port.feeds))
            changed |= known != sources[step.name]
            sources[step.name] = known
    return sources


def check_associative(
    fold: Fold, rows: Sequence[object], *, schema: object = None, rel: float = 1e-9
) -> None:
    """Raise an AssertionError with an example if a fold breaks a law on these rows.

    Windows combine partial results in any grouping, and in any order unless the fold says otherwise. A
    `combine` that is not associative gives answers that depend on how rows happened to be sliced.

    Checked on all triples of (at most twelve) rows: `zero` changes nothing on either side, combining is
    associative and, unless the fold says `commutative=False`, commutative. Floats may differ by `rel`. As in
    a window, rows with a null in the fold's columns are left out, and `combine` may change what it is given.

    >>> import penstock as ps
    >>> total = ps.fold(lambda row: row.v, lambda a, b: a + b, 0.0, type="float64")
    >>> check_associative(total, [{"v": 1.0}, {"v": 2.0}, {"v": 4.0}])
    """
    if not isinstance(fold, Fold):
        raise SchemaError(f"{fold!r} is not a fold", hint="make one with ps.fold(lift, combine, zero)")

    def combine(a: Any, b: Any) -> Any:
        return fold.combine(copy.deepcopy(a), copy.deepcopy(b))

    reader = read.rows(rows, schema=schema)
    batch = pa.Table.from_batches([batch.rows for batch in reader.batches()], reader.schema)
    values = zip(*(to_plain(column.combine_chunks()) for column in batch.columns), strict=True)
    lifted = (Row(dict(zip(reader.schema.names, row, strict=True)), reader.schema) for row in values)
    whole = (row for row in lifted if all(row[name] is not None for name in fold.columns or ()))
    parts = [fold.lift(row) for row in islice(whole, MAX_FOLD_ROWS)]
    for part in parts:
        assert _same(combine(fold.zero, part), part, rel), f"combine(zero, {part!r}) is not {part!r}"
        assert _same(combine(part, fold.zero), part, rel), f"combine({part!r}, zero) is not {part!r}"
    for a, b, c in product(parts, repeat=3):
        left, right = combine(combine(a, b), c), combine(a, combine(b, c))
        assert _same(left, right, rel), (
            f"combine is not associative on {a!r}, {b!r}, {c!r}: {left!r} / {right!r}"
        )
    for a, b in product(parts, repeat=2) if fold.commutative else ():
        left, right = combine(a, b), combine(b, a)
        assert _same(left, right, rel), (
            f"combine is not commutative on {a!r}, {b!r}: {left!r} / {right!r}; say commutative=False"
        )


def difference(
    left: pa.Table, right: pa.Table, *, approximate: Sequence[str] = (), rel: float = 0.05
) -> str | None:
    """Return None when both hold the same rows as multisets, else a few lines that say where they differ.

    Columns named in `approximate` (sketches) may differ by the share `rel`.
    """
    if [(f.name, f.type) for f in left.schema] != [(f.name, f.type) for f in right.schema]:
        left_types, right_types = (
            ", ".join(f"{f.name}: {f.type}" for f in side.schema) for side in (left, right)
        )
        return f"schemas differ: {left_types} / {right_types}"
    loose = {left.schema.get_field_index(name) for name in approximate}
    ours, theirs = _group_rows(left, loose), _group_rows(right, loose)

    def same(one: Values, other: Values) -> bool:
        pairs = enumerate(zip(one, other, strict=True))
        return all(_same(a, b, rel if i in loose else RELATIVE) for i, (a, b) in pairs)

    only_left: list[Values] = []
    only_right: list[Values] = []
    for group in dict.fromkeys([*ours, *theirs]):
        lefts, rights = _rows_without_partner(ours.get(group, []), theirs.get(group, []), same)
        only_left += lefts
        only_right += rights
        if lefts and rights:
            only_left, only_right = lefts, rights  # two rows that should have been one tell the most
            break
    if not only_left and not only_right:
        return None
    counts = f"{left.num_rows} rows / {right.num_rows} rows\n" if left.num_rows != right.num_rows else ""
    return f"{counts}{_format_rows(left, only_left)}\n/ {_format_rows(left, only_right)}"


def _group_rows(table: pa.Table, loose: set[int]) -> dict[Values, list[Values]]:
    """Return rows in order, by the columns that must be equal; the others may be rounded differently."""
    columns = [to_plain(column.combine_chunks()) for column in table.columns]
    exact = [
        i
        for i, type_ in enumerate(table.schema.types)
        if i not in loose and not pa.types.is_floating(type_) and not pa.types.is_nested(type_)
    ]
    groups: dict[Values, list[Values]] = {}
    for row in sorted(zip(*columns, strict=True), key=lambda row: tuple(map(_sortable, row))):
        groups.setdefault(tuple(_sortable(row[i]) for i in exact), []).append(row)
    return groups


def _rows_without_partner(
    left: list[Values], right: list[Values], same: Callable[[Values, Values], bool]
) -> tuple[list[Values], list[Values]]:
    """Return the rows of each side that have no partner on the other."""
    waiting = right[::-1]  # both are in order, so a partner is most often the last one, cheap to take off
    alone = []
    for row in left:
        place = next((i for i in reversed(range(len(waiting))) if same(row, waiting[i])), None)
        if place is None:
            alone.append(row)
        else:
            del waiting[place]
    return alone, waiting[::-1]


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


def _same(left: Any, right: Any, rel: float) -> bool:
    """Return whether two values are equal, floats within `rel`, also inside lists and structs."""
    if isinstance(left, float) or isinstance(right, float):
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return False
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=rel, abs_tol=RELATIVE)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name], rel) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(_same(a, b, rel) for a, b in zip(left, right, strict=True))
    if rel > RELATIVE and isinstance(left, int) and isinstance(right, int):
        return math.isclose(left, right, rel_tol=rel)
    return bool(left == right)


def _format_rows(table: pa.Table, rows: list[Values]) -> str:
    return str(dict(zip(table.schema.names, rows[0], strict=True))) if rows else "no such row"
