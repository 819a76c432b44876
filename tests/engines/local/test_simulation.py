"""Random graphs under random interleavings: whatever runs first, however short queues are.

The reference engine judges. Every run is one thread whose choices come from a seed, so a failure replays.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.accounts import Accounts
from penstock.engines.protocol import RunResult
from tests.conformance.test_random_graphs import Batches, graph_of, streams
from tests.support.examples import examples
from tests.support.random_graphs import Choice, choices

pytestmark = pytest.mark.slow
TIMELESS = ("filter", "map", "row map", "flat_map", "table", "split", "copy", "merge", "source", "sink")


def run_graph(graph: ps.PipeGraph, engine: str, options: Any = None) -> tuple[dict[str, Accounts], Any]:
    """The accounts of every step, and what reached every sink."""
    result: RunResult = graph.run(engine, clock=ps.ManualClock(), options=options)
    sinks = {step.name: step.op.writer for step in graph.steps.values() if isinstance(step.op, ps.Sink)}
    rows = {name: Counter(map(repr, writer.rows())) for name, writer in sinks.items()}  # type: ignore[attr-defined]  # all are memory()
    return dict(result.accounts), rows


@settings(deadline=None, max_examples=examples(33, nightly=100))
@given(
    done=choices(max_size=8),
    given_rows=streams(),
    seed=st.integers(0, 2**32),
    queue_size=st.sampled_from([1, 2, 3, 64]),
    chaining=st.booleans(),
    composition=st.sampled_from(["combined", "dedicated", "centralised"]),
)
def test_in_rounds_every_interleaving_gives_what_the_reference_gives(
    done: list[Choice],
    given_rows: list[Batches],
    seed: int,
    queue_size: int,
    chaining: bool,
    composition: Any,
) -> None:
    graph = graph_of(done, given_rows, chaining=chaining)
    options = ps.LocalOptions(deterministic=True, seed=seed, queue_size=queue_size, composition=composition)
    assert run_graph(graph, "local", options) == run_graph(graph, "reference")


@settings(deadline=None, max_examples=examples(33, nightly=100))
@given(
    done=choices(max_size=8),
    given_rows=streams(),
    seed=st.integers(0, 2**32),
    queue_size=st.sampled_from([1, 2, 3, 64]),
    chaining=st.booleans(),
)
def test_without_rounds_every_row_is_accounted_for(
    done: list[Choice], given_rows: list[Batches], seed: int, queue_size: int, chaining: bool
) -> None:
    graph = graph_of(done, given_rows, chaining=chaining)
    accounts, _ = run_graph(graph, "local", ps.LocalOptions(seed=seed, queue_size=queue_size))
    assert [name for name, account in accounts.items() if not account.is_balanced] == []


@settings(deadline=None, max_examples=examples(20, nightly=60))
@given(
    done=choices(max_size=10),
    given_rows=streams(),
    seed=st.integers(0, 2**32),
    queue_size=st.sampled_from([1, 2, 64]),
    composition=st.sampled_from(["combined", "dedicated", "centralised"]),
)
def test_without_rounds_what_does_not_depend_on_time_is_what_the_reference_gives(
    done: list[Choice], given_rows: list[Batches], seed: int, queue_size: int, composition: Any
) -> None:
    graph = graph_of([choice for choice in done if choice.action in TIMELESS], given_rows)
    options = ps.LocalOptions(seed=seed, queue_size=queue_size, composition=composition)
    assert run_graph(graph, "local", options) == run_graph(graph, "reference")


@settings(deadline=None, max_examples=examples(15, nightly=30))
@given(done=choices(max_size=8), given_rows=streams(), queue_size=st.sampled_from([1, 3]))
def test_threads_of_any_number_give_what_the_reference_gives(
    done: list[Choice], given_rows: list[Batches], queue_size: int
) -> None:
    graph = graph_of(done, given_rows)
    expected = run_graph(graph, "reference")
    for threads in (1, 4, "per-task"):
        options = ps.LocalOptions(deterministic=True, threads=threads, queue_size=queue_size)
        assert run_graph(graph, "local", options) == expected


@settings(deadline=None, max_examples=examples(16, nightly=50))
@given(done=choices(max_size=6), given_rows=streams(), seed=st.integers(0, 2**32))
def test_a_seed_replays_a_run_exactly(done: list[Choice], given_rows: list[Batches], seed: int) -> None:
    graph = graph_of(done, given_rows)
    options = ps.LocalOptions(seed=seed, queue_size=1)
    assert in_order(graph, options) == in_order(graph, options)


def in_order(graph: ps.PipeGraph, options: ps.LocalOptions) -> tuple[list[Any], list[Any]]:
    """What left, row by row, and everything that was told on the way."""
    events: list[Any] = []
    graph.run("local", clock=ps.ManualClock(), options=options, events=events.append)
    sinks = [step.op.writer for step in graph.steps.values() if isinstance(step.op, ps.Sink)]
    return [writer.rows() for writer in sinks], events  # type: ignore[attr-defined]  # all are memory()
