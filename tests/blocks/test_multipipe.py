"""Split, merge-ind and merge at their place, with closed branches, in each composition."""

from __future__ import annotations

import pytest

from penstock.blocks import (
    Composition,
    Distribution,
    Function,
    Input,
    Kind,
    Operator,
    Splitting,
    add,
    create,
    derive,
    merge,
    split,
)
from penstock.errors import GraphError
from tests.support.block_shapes import KEY_BY, source, step

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
    nodes = [source("a"), source("b", 2), step("out", Kind.SNK, "a", "b", routing=KEY_BY, n=3)]
    assert repr(derive(nodes, composition=composition).term) == expected


def test_a_merge_reaches_every_rightmost_matryoshka_of_what_it_merges() -> None:
    branches = [step(name, Kind.M, Input("s", name)) for name in ("x", "y")]
    nodes = [source("s"), *branches, source("z"), step("out", Kind.SNK, "x", "y", "z")]
    derivation = derive(nodes, splits={"s": "by"})
    ends = "Pipe(Comb(Seq(x), Seq(D_forward))), Pipe(Comb(Seq(y), Seq(D_forward)))"
    assert ends in repr(derivation.term)
    assert "left:" not in str(derivation)


def test_closed_and_unread_branches_stay_inside_what_is_merged_and_get_no_distribution() -> None:
    kinds = {"x": Kind.M, "late": Kind.SNK, "unread": Kind.M}
    branches = [step(name, kind, Input("s", name)) for name, kind in kinds.items()]
    nodes = [source("s"), *branches, source("z"), step("out", Kind.SNK, "x", "z")]
    derivation = derive(nodes, splits={"s": "by"})
    ends = "[Pipe(Comb(Seq(x), Seq(D_forward))), Pipe(Seq(late)), Pipe(Seq(unread))]"
    assert ends in repr(derivation.term)
    assert str(derivation).endswith("out  (x, z; left: late, unread)")


def test_the_distribution_of_a_merge_goes_to_the_ends_or_before_what_they_feed() -> None:
    ends, merged = merge([SRC, create(EVEN)], OUT, composition="dedicated")
    assert [repr(end.term()) for end in ends] == [
        "[Pipe(Seq(src) • Seq(D_keyby))]^2",
        "[Pipe(Seq(even) • Seq(D_keyby))]^2",
    ]
    assert repr(merged.term()) == "[Pipe(Seq(out))]^3"
