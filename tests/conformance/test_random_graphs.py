"""Whole graphs, drawn at random: they run, every row is accounted for, and engines agree on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st

import penstock as ps
from penstock.accounts import Accounts
from penstock.testing import assert_engines_agree
from penstock.testing.strategies import cuts, timed_rows
from tests.conformance.law import law
from tests.support.random_graphs import EVENTS, Choice, build, choices

FEATURE = "Whole graphs, drawn at random"
pytestmark = pytest.mark.slow
N = 60
Batches = list[list[dict[str, Any]]]


@st.composite
def streams(draw: st.DrawFn) -> list[Batches]:
    """Rows for the sources of a graph, each cut into batches."""
    rows = timed_rows(span=12, max_size=6)
    return [draw(cuts(draw(rows))) for _ in range(3)]


def graph_of(done: Sequence[Choice], given_rows: list[Batches], *, chaining: bool = True) -> ps.PipeGraph:
    """The graph of some choices; draws that no rule lets merge are given up."""
    try:
        graph = build(
            done,
            chaining=chaining,
            rows=lambda n: ps.read.batches(given_rows[n % len(given_rows)], schema=EVENTS),
        )
        graph.plan()
    except ps.GraphError:
        assume(False)
    return graph


def run(graph: ps.PipeGraph, engine: str) -> tuple[dict[str, Accounts], dict[str, Counter[str]]]:
    """The accounts of every step, and what reached every sink."""
    options = ps.LocalOptions(deterministic=True) if engine == "local" else None
    result = graph.run(engine, clock=ps.ManualClock(), options=options)
    sinks = {step.name: step.op.writer for step in graph.steps.values() if isinstance(step.op, ps.Sink)}
    rows = {name: Counter(map(repr, writer.rows())) for name, writer in sinks.items()}  # type: ignore[attr-defined]  # all are memory()
    return dict(result.accounts), rows


@law(N, done=choices(max_size=8), given_rows=streams())
def test_every_row_of_any_graph_is_accounted_for(
    engine: str, done: list[Choice], given_rows: list[Batches]
) -> None:
    accounts, _ = run(graph_of(done, given_rows), engine)
    assert [name for name, account in accounts.items() if not account.is_balanced] == []


@law(N, done=choices(max_size=8), given_rows=streams())
def test_chaining_and_degrees_change_nothing_in_any_graph(
    engine: str, done: list[Choice], given_rows: list[Batches]
) -> None:
    plain = [replace(choice, degree=1) for choice in done]
    expected = run(graph_of(plain, given_rows), engine)
    assert run(graph_of(done, given_rows, chaining=False), engine) == expected


@law(N, done=choices(max_size=8), given_rows=streams())
def test_every_engine_agrees_with_the_reference_on_any_graph(
    engine: str, done: list[Choice], given_rows: list[Batches]
) -> None:
    assert_engines_agree(graph_of(done, given_rows), ["reference", engine])
