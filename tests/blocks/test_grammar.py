"""The checkers accept what equations 1 and 2 of the paper produce, and nothing else."""

from __future__ import annotations

import pytest

from penstock.blocks import A2A, PBB, Container, Term, is_matryoshka
from tests.blocks.test_terms import pipe, seq
from tests.support.block_grammar import is_multipipe


def seed(name: str, n: int = 1) -> Container:
    return Container((pipe(name),), n)


def both(left: PBB, right: PBB) -> A2A:
    return A2A(_side(left), _side(right))


def several(*blocks: PBB) -> Container:
    return Container(blocks)


def _side(block: PBB) -> Container:
    return block if isinstance(block, Container) else Container((block,))


NESTED = both(seed("a", 2), both(seed("b"), seed("c", 3)))
SPLIT = both(seed("a"), several(pipe("b"), pipe("c")))
MERGE = both(several(pipe("a"), pipe("b")), seed("c"))


@pytest.mark.parametrize("term", [pipe("a"), seed("a"), seed("a", 3), both(seed("a"), seed("b")), NESTED])
def test_pipes_nested_to_the_right_are_a_matryoshka(term: Term) -> None:
    assert is_matryoshka(term)
    assert is_multipipe(term)


@pytest.mark.parametrize(
    "term", [seq("a"), several(pipe("a"), pipe("b")), SPLIT, MERGE, both(NESTED, seed("d"))]
)
def test_what_has_different_pipes_side_by_side_or_nests_to_the_left_is_no_matryoshka(term: Term) -> None:
    assert not is_matryoshka(term)


@pytest.mark.parametrize(
    "term",
    [
        SPLIT,
        MERGE,
        both(several(pipe("a"), NESTED), SPLIT),  # a merge whose result is split
        both(MERGE, several(pipe("d"), pipe("e"))),  # the same, nested to the left
        both(seed("a"), several(pipe("b"), MERGE)),  # two of three branches merged
        both(seed("z"), MERGE),  # all branches merged
        both(NESTED, several(SPLIT, pipe("e"))),
    ],
)
def test_splits_and_merges_of_matryoshkas_are_a_multipipe(term: Term) -> None:
    assert is_multipipe(term)


@pytest.mark.parametrize(
    "term",
    [
        seq("a"),
        several(pipe("a"), pipe("b")),  # two independent ones
        both(several(pipe("a"), pipe("b")), several(pipe("c"), pipe("d"))),  # n x m, fully connected
        both(several(pipe("a"), pipe("b")), several(SPLIT, pipe("d"))),
    ],
)
def test_what_the_grammar_does_not_produce_is_no_multipipe(term: Term) -> None:
    assert not is_multipipe(term)
