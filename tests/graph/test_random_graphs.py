"""Laws of every graph that the public API can build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import GraphError
from penstock.blocks import Derivation, Kind, Pipe, Seq, Term
from penstock.operators.rows import Split
from tests.support.block_grammar import is_multipipe
from tests.support.random_graphs import EVENTS, Choice, build, choices, feeds

unhurried = settings(
    deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)


def derive_blocks(graph: ps.PipeGraph) -> Derivation | None:
    """The derivation; None for a merge that no rule covers, the only thing that may be refused."""
    try:
        return graph.derivation()
    except GraphError as error:
        if not (error.fact.startswith("no rule merges") and error.step in graph.steps and error.where):
            raise
        event("refused")
        return None


def operators(block: Term) -> Iterator[str]:
    """The operators of a term, without relays and distributions."""
    if isinstance(block, Seq) and isinstance(block.function.role, Kind):
        yield block.function.name
    for part in block.parts:
        yield from operators(part)


def pipes(block: Term) -> Iterator[list[str]]:
    """The operators of every pipe of a term, in order."""
    if isinstance(block, Pipe):
        yield list(operators(block))
    else:
        for part in block.parts:
            yield from pipes(part)


@pytest.mark.slow
@unhurried
@given(choices())
def test_every_graph_gives_terms_of_the_grammar_with_every_operator_once(done: list[Choice]) -> None:
    graph = build(done)
    derivation = derive_blocks(graph)
    if derivation is None:
        return
    assert all(is_multipipe(term) for term in derivation.terms)
    wanted = Counter(step.name for step in graph.steps.values() if not isinstance(step.op, Split))
    names = Counter(name for term in derivation.terms for name in operators(term))
    assert Counter({name: n for name, n in names.items() if name in graph.steps}) == wanted


@pytest.mark.slow
@unhurried
@given(choices())
def test_a_plan_is_refused_exactly_when_its_blocks_are(done: list[Choice]) -> None:
    graph = build(done)
    if derive_blocks(graph) is not None:
        assert [step.name for step in graph.plan()] == list(graph.steps)


@pytest.mark.slow
@unhurried
@given(choices())
def test_chaining_changes_neither_the_graph_nor_the_order_along_any_path(done: list[Choice]) -> None:
    plain, chained = build(done, chaining=False), build(done, chaining=True)
    assert [(step.name, step.feeds, step.outputs) for step in plain.steps.values()] == [
        (step.name, step.feeds, step.outputs) for step in chained.steps.values()
    ]
    one, two = derive_blocks(plain), derive_blocks(chained)
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        unfused = sorted(inside for term in one.terms for inside in pipes(term))
        assert sorted(inside for term in two.terms for inside in pipes(term)) == unfused


@unhurried
@given(choices())
def test_every_step_comes_after_what_feeds_it(done: list[Choice]) -> None:
    graph = build(done)
    seen: set[str] = set()
    for step in graph.steps.values():
        assert {ref.step for ref in step.feeds} <= seen
        seen.add(step.name)


@pytest.mark.slow
@unhurried
@given(choices())
def test_a_fused_step_is_forward_and_has_the_degree_of_the_step_before_it(done: list[Choice]) -> None:
    graph = build(done)
    for step in graph.steps.values():
        if step.fuse:
            (above,) = step.feeds
            assert step.routing == "forward"
            assert step.degree == graph.steps[above.step].degree


@pytest.mark.slow
@unhurried
@given(choices(), feeds())
def test_every_row_of_every_step_is_accounted_for_chained_or_not(
    done: list[Choice], rows: list[list[dict[str, Any]]]
) -> None:
    def reader(n: int) -> Any:
        return ps.read.rows(rows[n % len(rows)], schema=EVENTS, batch=5)

    plain, chained = build(done, chaining=False, rows=reader), build(done, chaining=True, rows=reader)
    if derive_blocks(plain) is None:
        return
    accounts = plain.run("reference").accounts
    assert all(account.is_balanced for account in accounts.values())
    assert chained.run("reference").accounts == accounts


@pytest.mark.slow
@unhurried
@given(choices(max_size=4), st.booleans())
def test_building_a_graph_twice_gives_the_same_graph(done: list[Choice], chaining: bool) -> None:
    one, two = build(done, chaining=chaining), build(done, chaining=chaining)
    assert [
        (step.name, step.feeds, step.outputs, step.routing, step.degree) for step in one.steps.values()
    ] == [(step.name, step.feeds, step.outputs, step.routing, step.degree) for step in two.steps.values()]
