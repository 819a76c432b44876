"""An ill-formed term cannot be made, and terms are equal when they are built alike."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.blocks import A2A, Comb, Container, FanOut, Function, Kind, Pipe, Seq
from penstock.errors import GraphError


def seq(name: str) -> Seq:
    return Seq(Function(name, Kind.M))


def pipe(*names: str) -> Pipe:
    return Pipe(tuple(seq(name) for name in names))


NOT_A_BLOCK: Any = "a"
A_PIPE: Any = pipe("a")
A_SEQ: Any = seq("a")


def test_seq_wraps_nothing_but_a_function() -> None:
    with pytest.raises(TypeError, match="Seq wraps a Function, not str"):
        Seq(NOT_A_BLOCK)


def test_comb_fuses_sequential_blocks_only() -> None:
    with pytest.raises(TypeError, match="Comb fuses two sequential blocks, not Pipe"):
        Comb(seq("a"), A_PIPE)


def test_fan_out_fuses_sequential_blocks_only() -> None:
    with pytest.raises(TypeError, match="FanOut fuses sequential blocks, not Pipe"):
        FanOut(seq("a"), (seq("b"), A_PIPE))


def test_fan_out_needs_more_than_one_way_out() -> None:
    with pytest.raises(GraphError, match="more than one way out, and has 1"):
        FanOut(seq("a"), (seq("b"),))


def test_a_pipe_holds_sequential_blocks_only() -> None:
    with pytest.raises(TypeError, match="Pipe joins sequential blocks, not Pipe"):
        Pipe((A_PIPE,))


def test_a_pipe_is_never_empty() -> None:
    with pytest.raises(GraphError, match="a pipe needs at least one block"):
        Pipe(())


def test_a_container_holds_parallel_blocks_only() -> None:
    with pytest.raises(TypeError, match="Container holds parallel blocks, not Seq"):
        Container((A_SEQ,))


@pytest.mark.parametrize(("blocks", "copies"), [((), 1), ((pipe("a"),), 0)])
def test_a_container_is_never_empty(blocks: tuple[Pipe, ...], copies: int) -> None:
    with pytest.raises(GraphError, match="a container needs blocks"):
        Container(blocks, copies)


def test_only_identical_blocks_are_held_with_their_number() -> None:
    with pytest.raises(GraphError, match="holds each of them once"):
        Container((pipe("a"), pipe("b")), 2)


def test_an_all_to_all_joins_two_containers() -> None:
    with pytest.raises(TypeError, match="A2A joins two containers, not Pipe"):
        A2A(Container((pipe("a"),)), A_PIPE)


def test_terms_built_alike_are_equal_and_hash_alike() -> None:
    assert Comb(seq("a"), seq("b")) == Comb(seq("a"), seq("b"))
    assert len({pipe("a", "b"), pipe("a", "b"), pipe("b", "a")}) == 2


@pytest.mark.parametrize(
    "other",
    [
        Pipe((seq("a"),)),
        Pipe((seq("a"), seq("c"))),
        Pipe((Comb(seq("a"), seq("b")),)),
        Container((pipe("a", "b"),)),
        Pipe((seq("a"), Seq(Function("b", Kind.F)))),
        "a pipe",
    ],
)
def test_terms_built_differently_differ(other: object) -> None:
    assert pipe("a", "b") != other


def test_a_container_of_identical_blocks_is_stored_once_with_their_number() -> None:
    three = Container((pipe("a"), pipe("a"), pipe("a")))
    assert three == Container((pipe("a"),), 3)
    assert three != Container((pipe("a"),), 2)
    assert len(three.blocks) == 1
