"""Figure 5, case by case, and the two functions on which merging rests."""

from __future__ import annotations

import pytest

from penstock.blocks import (
    Container,
    Distribution,
    Function,
    Kind,
    Operator,
    Seq,
    combine_with_last,
    create,
    notation,
    pipe_with_last,
    rmost,
)
from penstock.blocks.terms import PBB
from tests.blocks.test_grammar import MERGE, NESTED, SPLIT, both, seed, several
from tests.blocks.test_terms import pipe
from tests.support.block_grammar import no_sink

D = Seq(Function("x", Distribution.KEY_BY))


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (pipe("a", "b"), "Pipe(Seq(a) • Comb(Seq(b), Seq(D_keyby)))"),
        (both(seed("a"), seed("b")), "A2A([Pipe(Seq(a))], [Pipe(Comb(Seq(b), Seq(D_keyby)))])"),
        (
            several(pipe("a"), pipe("b")),
            "[Pipe(Comb(Seq(a), Seq(D_keyby))), Pipe(Comb(Seq(b), Seq(D_keyby)))]",
        ),
        (seed("a", 3), "[Pipe(Comb(Seq(a), Seq(D_keyby)))]^3"),
    ],
    ids=["pipe", "a2a", "pc", "pc of identical blocks"],
)
def test_combine_with_last_fuses_to_every_rightmost_block(block: PBB, expected: str) -> None:
    assert notation(combine_with_last(block, D)) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (pipe("a", "b"), "Pipe(Seq(a) • Seq(b) • Seq(D_keyby))"),
        (both(seed("a"), seed("b")), "A2A([Pipe(Seq(a))], [Pipe(Seq(b) • Seq(D_keyby))])"),
        (several(pipe("a"), pipe("b")), "[Pipe(Seq(a) • Seq(D_keyby)), Pipe(Seq(b) • Seq(D_keyby))]"),
        (seed("a", 3), "[Pipe(Seq(a) • Seq(D_keyby))]^3"),
    ],
    ids=["pipe", "a2a", "pc", "pc of identical blocks"],
)
def test_pipe_with_last_appends_to_every_rightmost_pipe(block: PBB, expected: str) -> None:
    assert notation(pipe_with_last(block, D)) == expected


def test_only_the_picked_pipes_are_touched() -> None:
    block = several(pipe("a"), pipe("b"))
    changed = pipe_with_last(block, D, lambda node: node == pipe("b"))
    assert notation(changed) == "[Pipe(Seq(a)), Pipe(Seq(b) • Seq(D_keyby))]"


def test_on_an_open_matryoshka_both_do_what_they_do_on_its_term() -> None:
    open_one = create(Operator("a", Kind.M, 2))
    assert combine_with_last(open_one, D).term() == combine_with_last(open_one.term(), D)
    assert pipe_with_last(open_one, D).term() == pipe_with_last(open_one.term(), D)


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
