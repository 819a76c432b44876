"""Depth is no limit: terms nest as deep as graphs are long, and nothing recurses on them."""

from __future__ import annotations

import pytest

from penstock.blocks import (
    Derivation,
    Input,
    Kind,
    Node,
    count,
    derive,
    is_matryoshka,
    notation,
    tree,
)
from tests.naive.block_counts import counts_by_text
from tests.support.block_grammar import is_multipipe, no_sink, nodes_of, rmost
from tests.support.block_shapes import FORWARD, KEY_BY, source, step

DEEP = 10_000


def line(n: int, *, keyed: bool = False, chain: bool = False) -> list[Node]:
    routing = KEY_BY if keyed else FORWARD
    return [source("s0")] + [
        step(f"s{i}", Kind.M, f"s{i - 1}", routing=routing, chain=chain) for i in range(1, n + 1)
    ]


def with_late_sinks(n: int) -> list[Node]:
    nodes = [source("s0")]
    for i in range(1, n + 1):
        nodes.append(step(f"s{i}", Kind.M, f"s{i - 1}", routing=KEY_BY))
        nodes.append(step(f"late{i}", Kind.SNK, Input(f"s{i}", "late")))
    return [*nodes, source("other"), step("join", Kind.WJ, f"s{n}", "other")]


def diamonds(n: int) -> list[Node]:
    nodes = [source("m0")]
    for i in range(1, n + 1):
        sides = [step(f"{side}{i}", Kind.M, f"m{i - 1}") for side in "ab"]
        nodes += [*sides, step(f"m{i}", Kind.M, f"a{i}", f"b{i}")]
    return nodes


def nested_diamonds(n: int) -> list[Node]:
    nodes = [source("s0")]
    for i in range(1, n + 1):
        nodes += [step(f"a{i}", Kind.M, f"s{i - 1}"), step(f"s{i}", Kind.M, f"s{i - 1}")]
    nodes.append(step(f"m{n}", Kind.M, f"a{n}", f"s{n}"))
    return nodes + [step(f"m{i}", Kind.M, f"a{i}", f"m{i + 1}") for i in range(n - 1, 0, -1)]


def read_whole(derivation: Derivation) -> None:
    """Everything that can be asked of a term."""
    term = derivation.term
    assert is_multipipe(term)
    assert count(term) == counts_by_text(notation(term))
    assert len(tree(term).splitlines()) > 1
    assert len(nodes_of(term)) == len({placed.block for placed in nodes_of(term)})
    assert len(str(derivation).splitlines()) == len(derivation.steps)
    assert len(rmost(term)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "nodes",
    [
        line(DEEP),
        line(DEEP, keyed=True),
        line(DEEP, chain=True),
        with_late_sinks(DEEP // 2),
        diamonds(DEEP // 3),
        nested_diamonds(DEEP // 3),
    ],
    ids=["forward", "keyed", "chained", "late sinks", "diamonds", "nested diamonds"],
)
def test_ten_thousand_operators_are_derived_counted_checked_and_printed(nodes: list[Node]) -> None:
    derivation = derive(nodes)
    read_whole(derivation)
    again = derive(nodes).term
    assert again == derivation.term
    assert hash(again) == hash(derivation.term)


@pytest.mark.slow
def test_beyond_the_recursion_limit_everything_still_works() -> None:
    derivation = derive(line(1_500, keyed=True))
    read_whole(derivation)
    assert is_matryoshka(derivation.term)
    assert no_sink(derivation.term)
    assert derivation.term == derive(line(1_500, keyed=True)).term
    assert derivation.term != derive(line(1_501, keyed=True)).term


def test_a_long_chain_is_one_node() -> None:
    derivation = derive(line(1_500, chain=True))
    assert len(nodes_of(derivation.term)) == 1
    assert count(derivation.term) == (1_501, 1_500, 1, 0, 0)
