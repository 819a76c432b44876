"""Graphs with own loops, splits and merges, drawn at random: as users run them, what the reference gives.

Drawn by a seed and not by Hypothesis, whose first examples have few rows and fewer merges: these have many of
both, in disorder, and some too late. `make test` tries some tens of graphs, and `make nightly` five hundred:

    pytest -m nightly tests/engines/local/test_random_loops.py
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.accounts import Accounts
from penstock.operators.process import Process
from tests.support.random_graphs import EVENTS, OF_ONE_SOURCE, Choice, build

MODES = [
    ps.LocalOptions(),
    ps.LocalOptions(queue_size=1, seed=1),
    ps.LocalOptions(queue_size=2, seed=2, threads=1),
    ps.LocalOptions(deterministic=True),
]
Batches = list[list[dict[str, Any]]]
Outcome = tuple[dict[str, Accounts], dict[str, Counter[str]]]


def draw_batches(chance: Random) -> Batches:
    """Rows for the one source: mostly less than the delay of 3 s behind, with null keys and values."""
    size = chance.choice([1, 3, 7, 20])
    rows = [
        {
            "key": chance.choice(["a", "b", "c", None]),
            "value": chance.choice([None, *range(9)]),
            "t": n // 4 - chance.choice([0, 0, 0, 1, 2, 3, 9]),
        }
        for n in range(chance.randint(10, 120))
    ]
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def draw_graph(chance: Random, batches: Batches) -> ps.PipeGraph:
    """A graph with a split or two, at least one merge and one loop; what no rule allows is drawn again."""
    while True:
        actions = ["split", *chance.choices(OF_ONE_SOURCE, k=chance.randint(1, 4))]
        actions += ["merge", *chance.choices(OF_ONE_SOURCE, k=chance.randint(1, 5))]
        drawn = [
            Choice(action, chance.randint(0, 7), chance.randint(0, 7), chance.randint(1, 3))
            for action in actions
        ]
        chaining = chance.random() < 0.7
        try:
            graph = build(drawn, chaining=chaining, rows=lambda _: ps.read.batches(batches, schema=EVENTS))
            graph.plan()
        except ps.GraphError:
            continue
        ops = [step.op for step in graph.steps.values()]
        merges = [fed for step in graph.steps.values() for fed in step.inputs if len(fed.feeds) > 1]
        if merges and any(isinstance(op, Process) for op in ops):
            return graph


def run(graph: ps.PipeGraph, engine: str, options: ps.LocalOptions | None = None) -> Outcome:
    """The accounts of every step, and what reached every sink."""
    result = graph.run(engine, clock=ps.ManualClock(), options=options)
    sinks: dict[str, Any] = {
        step.name: step.op.writer for step in graph.steps.values() if isinstance(step.op, ps.Sink)
    }
    return dict(result.accounts), {name: Counter(map(repr, sink.rows())) for name, sink in sinks.items()}


def compare(seed: int) -> Counter[str]:
    """Compare every mode on the graph of a seed with the reference; return what the graph was like."""
    chance = Random(seed)
    graph = draw_graph(chance, draw_batches(chance))
    accounts, rows = run(graph, "reference")
    assert all(account.is_balanced for account in accounts.values())
    for options in MODES:
        local_accounts, local_rows = run(graph, "local", options)
        for name, expected in rows.items():
            assert local_rows[name] == expected, (seed, name, options)
        for name, account in accounts.items():
            assert local_accounts[name] == account, (seed, name, options)
    loops = [step.name for step in graph.steps.values() if isinstance(step.op, Process)]
    return Counter(
        loops=len(loops),
        taken=sum(accounts[name].passed for name in loops),
        late=sum(account.late for account in accounts.values()),
    )


@pytest.mark.slow
def test_graphs_with_own_loops_give_what_the_reference_gives() -> None:
    seen = sum((compare(seed) for seed in range(30)), Counter[str]())
    assert min(seen["loops"], seen["taken"], seen["late"]) > 30, "graphs without loops or rows show nothing"


@pytest.mark.nightly
def test_five_hundred_graphs_with_own_loops_give_what_the_reference_gives() -> None:
    seen = sum((compare(seed) for seed in range(500)), Counter[str]())
    assert seen["taken"] > 5_000
    print(dict(seen))
