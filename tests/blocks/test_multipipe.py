"""Split, merge-ind and merge at their place, with closed branches, in each composition."""

from __future__ import annotations

import pytest

from penstock.blocks import (
    Composition,
    Container,
    Distribution,
    Function,
    Kind,
    Operator,
    Splitting,
    add,
    create,
    merge,
    split,
)
from penstock.errors import GraphError

SRC = create(Operator("src", Kind.SRC, 2))
BY = Function("by", Splitting.FUNCTION)
EVEN, ODD = Operator("even", Kind.M, 2), Operator("odd", Kind.M, 1, Distribution.KEY_BY)
OUT = Operator("out", Kind.SNK, 3, Distribution.KEY_BY)
FAN = "Comb◀(Seq(S_by), {Seq(D_forward), Seq(D_keyby)})"


@pytest.mark.parametrize(
    ("composition", "left"),
    [
        ("combined", f"[Pipe(Comb(Seq(src), {FAN}))]^2"),
        ("dedicated", f"[Pipe(Seq(src) • {FAN})]^2"),
        ("centralised", f"[A2A([Pipe(Seq(src))]^2, [Pipe({FAN})])]"),
    ],
)
def test_split_gives_each_operator_a_branch_of_its_own(composition: Composition, left: str) -> None:
    block = split(SRC, BY, [EVEN, ODD], composition=composition)
    assert repr(block.term()) == f"A2A({left}, [[Pipe(Seq(even))]^2, Pipe(Seq(odd))])"


def test_a_split_needs_two_branches() -> None:
    with pytest.raises(GraphError, match='the split "by" has 1 branches'):
        split(SRC, BY, [EVEN])


def test_a_closed_matryoshka_cannot_be_split() -> None:
    with pytest.raises(GraphError, match='nothing can follow the sink "out"'):
        split(add(SRC, OUT), BY, [EVEN, ODD])


@pytest.mark.parametrize(
    ("composition", "expected"),
    [
        (
            "combined",
            "A2A([Pipe(Comb(Seq(a), Seq(D_keyby))), [Pipe(Comb(Seq(b), Seq(D_keyby)))]^2],"
            " [Pipe(Seq(out))]^3)",
        ),
        (
            "dedicated",
            "A2A([Pipe(Seq(a) • Seq(D_keyby)), [Pipe(Seq(b) • Seq(D_keyby))]^2], [Pipe(Seq(out))]^3)",
        ),
        (
            "centralised",
            "A2A([Pipe(Seq(a)), [Pipe(Seq(b))]^2], [A2A([Pipe(Seq(D_keyby))], [Pipe(Seq(out))]^3)])",
        ),
    ],
)
def test_independent_pipes_merge_into_a_new_matryoshka(composition: Composition, expected: str) -> None:
    pipes = [create(Operator("a", Kind.SRC)).term(), create(Operator("b", Kind.SRC, 2)).term()]
    assert repr(merge(pipes, OUT, composition=composition).term()) == expected


def test_a_merge_reaches_every_rightmost_matryoshka_of_what_it_merges() -> None:
    whole = split(create(Operator("s", Kind.SRC)), BY, [Operator("x", Kind.M), Operator("y", Kind.M)]).term()
    block = merge([whole, create(Operator("z", Kind.M)).term()], Operator("out", Kind.SNK))
    ends = "Pipe(Comb(Seq(x), Seq(D_forward))), Pipe(Comb(Seq(y), Seq(D_forward)))"
    assert ends in repr(block.term())
    assert block.left_out == ()


def test_closed_and_unread_branches_stay_inside_what_is_merged_and_get_no_distribution() -> None:
    ops = [Operator("x", Kind.M), Operator("late", Kind.SNK), Operator("unread", Kind.M)]
    whole = split(create(Operator("s", Kind.SRC)), BY, ops).term()
    other = create(Operator("z", Kind.M)).term()
    block = merge([whole, other], Operator("out", Kind.SNK), unread={"unread"})
    assert "[Pipe(Comb(Seq(x), Seq(D_forward))), Pipe(Seq(late)), Pipe(Seq(unread))]" in repr(block.term())
    assert block.left_out == ("late", "unread")


def test_a_merge_needs_two_pipes() -> None:
    with pytest.raises(GraphError, match="a merge of 1 pipes needs two or more"):
        merge([SRC.term()], OUT)


def test_a_pipe_that_is_wholly_closed_cannot_merge() -> None:
    closed = Container((add(create(Operator("s", Kind.SRC)), Operator("end", Kind.SNK)).term(),))
    with pytest.raises(GraphError, match='every branch that "out" would merge here is closed: end') as caught:
        merge([closed, SRC.term()], OUT)
    assert caught.value.hint == "merge before the sink"
