"""Graphs with own loops, splits, merges and several sources, drawn at random: the reference gives the same.

Drawn by a seed and not by Hypothesis, whose first examples have few rows and fewer merges: these have many of
both, in disorder, and some too late. `make test` tries some tens of graphs, and `make nightly` five hundred
of one source and five hundred of two or three:

    pytest -m nightly tests/engines/local/test_random_loops.py

In process, sources go at their own pace unless `deterministic=True` (docs/semantics.md): round n need not
have the n-th batch of each. So a graph runs as users run it, in the default mode too, where its answer must
not depend on the pace, and only round by round where it may (`depends_on_pace` says where that is):

- a row that is behind the delay of its source is late or not by how far the other sources have come;
- an own loop gets rows of several sources as they come, one round of one source after another;
- a loop that pushes when all is over, and had taken nothing for long, gives the row the watermark before the
  end, which is that of the source that ended last.

What comes from one source never depends on the pace of another, whatever the graph does with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.accounts import Accounts
from penstock.operators.process import Process
from penstock.operators.rows import Accumulate
from penstock.operators.stream_join import StreamJoin
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Step
from tests.support.random_graphs import (
    EVENTS,
    WITH_LOOPS,
    Choice,
    Either,
    Hold,
    Limit,
    Rounds,
    build,
)

IN_ROUNDS = [
    ps.LocalOptions(deterministic=True),
    ps.LocalOptions(deterministic=True, queue_size=1, seed=3),
]
AS_USERS_RUN = [
    ps.LocalOptions(),
    ps.LocalOptions(queue_size=1, seed=1),
    ps.LocalOptions(queue_size=2, seed=2, threads=1),
    IN_ROUNDS[0],
]
MEETINGS_OF_SOURCES = ("pairs", "turns", "smaller", "merge", "join", "window")
"""What sources may begin with, so that many loops have rows of several; windows put such rows in order."""
Batches = list[list[dict[str, Any]]]
Outcome = tuple[dict[str, Accounts], dict[str, Counter[str]]]


@dataclass(frozen=True)
class Feed:
    """What a source reads: batches, its delay in seconds, and whether some rows are behind it."""

    batches: Batches
    delay: int
    has_late: bool


def draw_feed(chance: Random, *, has_late: bool, is_short: bool) -> Feed:
    """Rows for a source: in disorder, with null keys and values, at a speed of their own."""
    size, delay = chance.choice([1, 3, 7, 20]), chance.choice([1, 3, 3, 8])
    per_second, first = chance.choice([2, 4, 4, 9]), chance.choice([-5, 0, 0, 3])
    behind = [0, 0, 0, *range(1, delay + 1), *([delay + 2, delay + 6] if has_late else [])]
    rows = [
        {
            "key": chance.choice(["a", "b", "c", None]),
            "value": chance.choice([None, *range(9)]),
            "t": first + n // per_second - chance.choice(behind),
        }
        for n in range(chance.randint(0, 6) if is_short else chance.randint(10, 120))
    ]
    batches = [rows[at : at + size] for at in range(0, len(rows), size)]
    if chance.random() < 0.2:
        batches.insert(chance.randint(0, len(batches)), [])
    return Feed(batches, delay, has_late)


def draw_feeds(chance: Random, n: int) -> list[Feed]:
    """Rows for so many sources; of several, one may be much shorter, and mostly none has late rows."""
    short = chance.choice([None, *range(n)]) if n > 1 else None
    late = n == 1 or chance.random() < 0.15
    return [
        draw_feed(chance, has_late=late and (n == 1 or chance.random() < 0.8), is_short=at == short)
        for at in range(n)
    ]


def draw_graph(chance: Random, feeds: Sequence[Feed]) -> ps.PipeGraph:
    """A graph with a split or two, at least one merge and one loop; what no rule allows is drawn again.

    Most graphs of several sources are such that the answer cannot depend on their pace.
    """
    may_depend = chance.random() < 0.1 or any(feed.has_late for feed in feeds)
    while True:
        actions = ["source"] * (len(feeds) - 1)
        actions += chance.choices(MEETINGS_OF_SOURCES, k=chance.randint(0, len(feeds) - 1))
        actions += ["split", *chance.choices(WITH_LOOPS, k=chance.randint(1, 4))]
        actions += ["merge", *chance.choices(WITH_LOOPS, k=chance.randint(1, 5))]
        drawn = [
            Choice(action, chance.randint(0, 7), chance.randint(0, 7), chance.randint(1, 3))
            for action in actions
        ]
        try:
            graph = build_graph(drawn, feeds, chaining=chance.random() < 0.7)
            plan = graph.plan()
        except ps.GraphError:
            continue
        merges = [fed for step in plan for fed in step.inputs if len(fed.feeds) > 1]
        n_met = max(len(sources) for sources in find_sources(plan).values())
        is_wanted = merges and find_loops(plan) and n_met >= min(2, len(feeds))
        if is_wanted and (may_depend or not depends_on_pace(plan, feeds)):
            return graph


def build_graph(drawn: Sequence[Choice], feeds: Sequence[Feed], *, chaining: bool) -> ps.PipeGraph:
    """Return the graph of some choices over these sources."""
    return build(
        drawn,
        chaining=chaining,
        rows=lambda n: ps.read.batches(feeds[n].batches, schema=EVENTS),
        delay=lambda n: feeds[n].delay,
    )


def find_loops(plan: Plan) -> list[str]:
    """Return the names of the operators with a loop of their own."""
    return [step.name for step in plan if isinstance(step.op, Process)]


def find_sources(plan: Plan) -> dict[str, frozenset[str]]:
    """Return the sources whose rows reach each step, those of control among them."""
    sources = {step.name: frozenset([step.name]) for step in plan.sources}
    for step in plan:
        fed = (
            sources.get(ref.step, frozenset[str]()) for ref in step.feeds
        )  # nothing yet of what flows back
        sources[step.name] = sources.get(step.name, frozenset()).union(*fed)
    return sources


def depends_on_pace(plan: Plan, feeds: Sequence[Feed]) -> bool:
    """Return whether the answer may depend on which source is faster; the docstring above has the rules."""
    sources = find_sources(plan)
    late = {step.name for step, feed in zip(plan.sources, feeds, strict=True) if feed.has_late}
    in_order, timed_by_end = set[str](), set[str]()  # steps whose rows come in one order; Hold, and behind it
    for step in plan:
        if len(sources[step.name]) == 1:
            in_order.add(step.name)
            continue
        if sources[step.name] & late:
            return True
        is_timed = isinstance(step.op, Windows | Accumulate | StreamJoin | Process)
        if any(ref.step in timed_by_end for ref in step.feeds):
            if is_timed:
                return True
            timed_by_end.add(step.name)
        if isinstance(step.op, Process):
            if _minds_pace(step, in_order, sources):
                return True
            if isinstance(step.op.operator, Hold):
                timed_by_end.add(step.name)
        is_through = not isinstance(step.op, StreamJoin) and all(
            _is_in_order(port.feeds, in_order, sources) for port in step.inputs
        )
        if is_through or _gives_order(step):
            in_order.add(step.name)
    return False


def _gives_order(step: Step) -> bool:
    """Return whether rows leave by their time, in whatever order they came: the step waits for W."""
    return isinstance(step.op, Windows | Accumulate) and step.degree.most == 1


def _is_in_order(feeds: Sequence[Any], in_order: set[str], sources: dict[str, frozenset[str]]) -> bool:
    """Return whether what flows into a port comes in one order."""
    met = frozenset[str]().union(*(sources.get(ref.step, frozenset()) for ref in feeds))
    return len(met) == 1 or (len(feeds) == 1 and feeds[0].step in in_order)


def _minds_pace(step: Step, in_order: set[str], sources: dict[str, frozenset[str]]) -> bool:
    """Return whether what a loop with rows of several sources does may depend on when they come."""
    assert isinstance(step.op, Process), "only these have a loop"
    operator = step.op.operator
    if isinstance(operator, Rounds | Either | Limit):
        return True
    ports = [port for port in step.inputs if not port.control]
    return not isinstance(operator, Hold) and not all(
        _is_in_order(port.feeds, in_order, sources) for port in ports
    )


def run(graph: ps.PipeGraph, engine: str, options: ps.LocalOptions | None = None) -> Outcome:
    """The accounts of every step, and what reached every sink."""
    result = graph.run(engine, clock=ps.ManualClock(), options=options)
    sinks: dict[str, Any] = {
        step.name: step.op.writer for step in graph.steps.values() if isinstance(step.op, ps.Sink)
    }
    return dict(result.accounts), {name: Counter(map(repr, sink.rows())) for name, sink in sinks.items()}


def compare(seed: int, n_sources: int) -> Counter[str]:
    """Compare every mode on the graph of a seed with the reference; return what the graph was like."""
    chance = Random(seed)
    feeds = draw_feeds(chance, n_sources)
    return compare_graph(draw_graph(chance, feeds), feeds, seed)


def compare_graph(graph: ps.PipeGraph, feeds: Sequence[Feed], seed: object = None) -> Counter[str]:
    """Compare every mode on a graph with the reference; return what it was like."""
    plan = graph.plan()
    is_paced = depends_on_pace(plan, feeds)
    accounts, rows = run(graph, "reference")
    assert all(account.is_balanced for account in accounts.values())
    for options in IN_ROUNDS if is_paced else AS_USERS_RUN:
        local_accounts, local_rows = run(graph, "local", options)
        for name, expected in rows.items():
            assert local_rows[name] == expected, (seed, name, options)
        for name, account in accounts.items():
            assert local_accounts[name] == account, (seed, name, options)
    loops, sources = find_loops(plan), find_sources(plan)
    return Counter(
        graphs=1,
        loops=len(loops),
        taken=sum(accounts[name].passed for name in loops),
        late=sum(account.late for account in accounts.values()),
        in_rounds_only=int(is_paced),
        of_several=int(len(feeds) > 1),
        of_several_as_users_run=int(len(feeds) > 1 and not is_paced),
        loops_of_several=sum(len(sources[name]) > 1 for name in loops),
    )


def compare_all(n: int) -> Counter[str]:
    """Compare so many graphs of one source, and as many of two or three."""
    of_one = (compare(seed, 1) for seed in range(n))
    of_several = (compare(seed, 2 + seed % 2) for seed in range(n))
    return sum((*of_one, *of_several), Counter[str]())


@pytest.mark.slow
def test_graphs_with_own_loops_give_what_the_reference_gives() -> None:
    seen = compare_all(20)
    assert min(seen["loops"], seen["taken"], seen["late"]) > 30, "graphs without loops or rows show nothing"
    assert min(seen["of_several_as_users_run"], seen["loops_of_several"]) > 10, "so do graphs of one source"


@pytest.mark.nightly
def test_a_thousand_graphs_with_own_loops_give_what_the_reference_gives() -> None:
    seen = compare_all(500)
    print(dict(seen))
    assert seen["taken"] > 50_000
    assert min(seen["of_several_as_users_run"], seen["loops_of_several"]) > 350
