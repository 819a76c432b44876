"""What holds of every graph that can be derived, whatever its shape, degrees, routings and chaining."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from penstock.blocks import (
    Composition,
    Container,
    Counts,
    Derivation,
    Distribution,
    Function,
    Kind,
    Node,
    Pipe,
    Seq,
    Term,
    count,
    derive,
    notation,
)
from penstock.errors import GraphError
from tests.naive.block_counts import counts_by_formula, counts_by_text
from tests.support.block_grammar import is_multipipe, nodes_of
from tests.support.block_graphs import graphs, nested_splits, split_functions

pytestmark = pytest.mark.slow

COMPOSITIONS: tuple[Composition, ...] = ("combined", "dedicated", "centralised")
unhurried = settings(
    deadline=None,
    derandomize=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def derive_blocks(
    nodes: list[Node], splits: dict[str, str] | None = None, composition: Composition = "combined"
) -> Derivation:
    """The derivation, setting aside graphs with a merge that no rule covers."""
    result = attempt(nodes, splits or {}, composition)
    assume(result is not None)
    assert result is not None
    return result


def attempt(nodes: list[Node], splits: dict[str, str], composition: Composition) -> Derivation | None:
    """The derivation, or None for a merge that no rule covers: the one thing that may be refused."""
    try:
        return derive(nodes, splits=splits, composition=composition)
    except GraphError as error:
        if not error.fact.startswith("no rule merges"):
            raise
        event("refused")
        return None


def pipes(terms: tuple[Term, ...]) -> Iterator[tuple[list[Function], int]]:
    """The functions of every pipe in order, with the number of its replicas."""
    todo = [(term, 1) for term in reversed(terms)]
    while todo:
        block, copies = todo.pop()
        if isinstance(block, Pipe):
            yield list(functions(block)), copies
        else:
            copies *= block.copies if isinstance(block, Container) else 1
            todo.extend((part, copies) for part in reversed(block.parts))


def functions(block: Term) -> Iterator[Function]:
    if isinstance(block, Seq):
        yield block.function
    for part in block.parts:
        yield from functions(part)


def edges(terms: tuple[Term, ...]) -> Counter[tuple[str, str]]:
    """Which operator hands rows to which, read off a term; relays are passed through."""
    result: list[tuple[str, str]] = []
    relays: set[str] = set()
    for inside, _ in pipes(terms):
        last = ""
        for function in inside:
            if isinstance(function.role, Kind):
                result += [(last, function.name)] if last else []
                last = function.name
                relays |= {last} if function.role is Kind.ID else set()
            elif isinstance(function.role, Distribution):
                result.append((last, function.name))
    into = {relay: producer for producer, relay in result if relay in relays}
    return Counter((into.get(one, one), two) for one, two in result if two not in relays)


@unhurried
@given(st.data())
def test_every_graph_that_can_be_derived_gives_terms_of_the_grammar(data: st.DataObject) -> None:
    nodes = data.draw(graphs())
    splits = data.draw(split_functions(nodes))
    for composition in COMPOSITIONS:
        assert all(is_multipipe(term) for term in derive_blocks(nodes, splits, composition).terms)


@unhurried
@given(st.data())
def test_counts_agree_with_a_formula_over_the_operators(data: st.DataObject) -> None:
    nodes = data.draw(graphs())
    splits = data.draw(split_functions(nodes))
    terms = derive_blocks(nodes, splits).terms
    total = Counts(*(sum(column) for column in zip(*map(count, terms), strict=True)))
    assert total == counts_by_formula(nodes, splits)


@unhurried
@given(st.data())
def test_the_order_in_which_operators_are_written_changes_no_count_and_no_refusal(
    data: st.DataObject,
) -> None:
    nodes = data.draw(graphs())
    one = attempt(nodes, {}, "combined")
    two = attempt(data.draw(st.permutations(nodes)), {}, "combined")
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert sorted(map(count, one.terms)) == sorted(map(count, two.terms))


@unhurried
@given(nested_splits())
def test_branches_that_end_or_merge_with_their_siblings_are_never_refused(nodes: list[Node]) -> None:
    assert attempt(nodes, {}, "combined") is not None


@unhurried
@given(graphs(max_degree=1))
def test_counts_agree_with_the_printed_text(nodes: list[Node]) -> None:
    for term in derive_blocks(nodes).terms:
        assert count(term) == counts_by_text(notation(term))


@unhurried
@given(graphs())
def test_chaining_never_changes_which_operator_follows_which(nodes: list[Node]) -> None:
    wanted = Counter((edge.producer, node.op.name) for node in nodes for edge in node.inputs)
    for chained in (
        nodes,
        [replace(node, chain=True) for node in nodes],
        [replace(node, chain=False) for node in nodes],
    ):
        assert edges(derive_blocks(chained).terms) == wanted


@unhurried
@given(graphs())
def test_every_operator_occurs_once_in_as_many_replicas_as_it_has(nodes: list[Node]) -> None:
    result = [
        (function.name, function.role, copies)
        for inside, copies in pipes(derive_blocks(nodes).terms)
        for function in inside
        if isinstance(function.role, Kind) and function.role is not Kind.ID
    ]
    assert sorted(result) == sorted((node.op.name, node.op.kind, node.op.n) for node in nodes)


@unhurried
@given(graphs())
def test_the_composition_moves_distributions_and_leaves_the_operators_where_they_are(
    nodes: list[Node],
) -> None:
    combined, *rest = (
        [
            ([function.name for function in inside if isinstance(function.role, Kind)], copies)
            for inside, copies in pipes(derive_blocks(nodes, composition=composition).terms)
            if any(isinstance(function.role, Kind) for function in inside)
        ]
        for composition in COMPOSITIONS
    )
    assert all(other == combined for other in rest)


@unhurried
@given(graphs())
def test_every_node_is_placed_once_per_replica(nodes: list[Node]) -> None:
    derivation = derive_blocks(nodes, composition="dedicated")
    wanted = sum(len(pipe.steps) * copies for term in derivation.terms for pipe, copies in _pipes_of(term))
    assert sum(len(nodes_of(term)) for term in derivation.terms) == wanted


def _pipes_of(term: Term) -> Iterator[tuple[Pipe, int]]:
    if isinstance(term, Pipe):
        yield term, 1
    for part in term.parts:
        for pipe, copies in _pipes_of(part):
            yield pipe, copies * (term.copies if isinstance(term, Container) else 1)
