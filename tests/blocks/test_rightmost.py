"""Figure 5 on open Matryoshkas, case by case, and the ends of closed blocks."""

from __future__ import annotations

import pytest

from penstock.blocks import (
    Container,
    Distribution,
    Function,
    Kind,
    Matryoshka,
    Operator,
    Seq,
    add,
    combine_with_last,
    create,
    notation,
    pipe_with_last,
    put_seed,
)
from tests.blocks.test_grammar import MERGE, NESTED, SPLIT, both, seed, several
from tests.blocks.test_terms import pipe
from tests.support.block_grammar import no_sink, rmost

D = Seq(Function("x", Distribution.KEY_BY))


A, B = Operator("a", Kind.M), Operator("b", Kind.M)


@pytest.mark.parametrize(
    ("m", "expected"),
    [
        (add(create(A), B), "Pipe(Seq(a) • Comb(Seq(b), Seq(D_keyby)))"),
        (put_seed(create(A), create(B)), "A2A([Pipe(Seq(a))], [Pipe(Comb(Seq(b), Seq(D_keyby)))])"),
        (create(Operator("a", Kind.M, 3)), "[Pipe(Comb(Seq(a), Seq(D_keyby)))]^3"),
    ],
    ids=["pipe", "a2a", "pc of identical blocks"],
)
def test_combine_with_last_fuses_to_every_rightmost_block(m: Matryoshka, expected: str) -> None:
    assert notation(combine_with_last(m, D).term()) == expected


@pytest.mark.parametrize(
    ("m", "expected"),
    [
        (add(create(A), B), "Pipe(Seq(a) • Seq(b) • Seq(D_keyby))"),
        (put_seed(create(A), create(B)), "A2A([Pipe(Seq(a))], [Pipe(Seq(b) • Seq(D_keyby))])"),
        (create(Operator("a", Kind.M, 3)), "[Pipe(Seq(a) • Seq(D_keyby))]^3"),
    ],
    ids=["pipe", "a2a", "pc of identical blocks"],
)
def test_pipe_with_last_appends_to_every_rightmost_pipe(m: Matryoshka, expected: str) -> None:
    assert notation(pipe_with_last(m, D).term()) == expected


def test_rmost_gives_the_matryoshkas_at_the_right_end_in_order() -> None:
    assert rmost(NESTED) == (NESTED,)
    assert rmost(SPLIT) == (pipe("b"), pipe("c"))
    assert rmost(MERGE) == (pipe("c"),)
    assert rmost(both(seed("z"), several(NESTED, MERGE))) == (NESTED, pipe("c"))


def test_no_sink_is_false_as_soon_as_one_end_is_closed() -> None:
    sink = create(Operator("k", Kind.SNK, 2)).term()
    assert no_sink(SPLIT)
    assert not no_sink(both(seed("a"), Container((pipe("b"), sink))))
    assert no_sink(Container((both(sink, seed("a")),)))  # a sink on the left is not at the end
