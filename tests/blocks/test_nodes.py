"""Nodes come out in the order in which WindFlow pins them to cores."""

from __future__ import annotations

from penstock.blocks import Comb, Kind, Pipe, Term, derive
from tests.blocks.test_grammar import both, seed, several
from tests.blocks.test_terms import pipe, seq
from tests.support.block_grammar import nodes_of
from tests.support.block_shapes import KEY_BY, source, step


def names(term: Term) -> list[str]:
    return [f"{placed.block!r}#{placed.replica}" for placed in nodes_of(term)]


def test_a_pipe_is_visited_from_the_left_and_a_combiner_is_one_node() -> None:
    assert names(Pipe((seq("a"), Comb(seq("b"), seq("c"))))) == ["Seq(a)#0", "Comb(Seq(b), Seq(c))#0"]


def test_an_all_to_all_takes_left_and_right_blocks_in_turn() -> None:
    assert names(both(seed("a", 2), seed("b", 3))) == [
        "Seq(a)#0",
        "Seq(b)#0",
        "Seq(a)#1",
        "Seq(b)#1",
        "Seq(b)#2",
    ]


def test_blocks_side_by_side_are_visited_in_order() -> None:
    assert names(several(pipe("a", "b"), pipe("c"))) == ["Seq(a)#0", "Seq(b)#0", "Seq(c)#0"]


def test_every_replica_of_every_node_is_there_once() -> None:
    nodes = [
        source("s", 2),
        step("a", Kind.M, "s", n=2, chain=True),
        step("w", Kind.KW, "a", routing=KEY_BY, n=3),
        step("k", Kind.SNK, "w"),
    ]
    placed = nodes_of(derive(nodes).term)
    assert len(placed) == len(set(placed)) == 2 + 3 + 1
