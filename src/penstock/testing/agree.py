"""Run one graph on several engines and insist on the same rows: the promise that Penstock makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.clock import Clock, ManualClock
from penstock.engines.protocol import Engine, RunOptions, RunResult
from penstock.events import nobody
from penstock.graph.options import LocalOptions
from penstock.graph.pipegraph import PipeGraph
from penstock.graph.running import engine_named, start, wait
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan
from penstock.plan.step import Ref
from penstock.testing.compare import difference


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
    return wait(start(plan, engine, RunOptions(engine=options), clock=clock, events=nobody))


def _name(engine: str | Engine) -> str:
    return engine_named(engine).name


def _approximate(plan: Plan, ref: Ref) -> list[str]:
    """Columns of a window step that come from sketches."""
    op = plan[ref.step].op
    if not isinstance(op, Windows):
        return []
    return [name for name, aggregate in (op.aggregates or {}).items() if not aggregate.exact]
