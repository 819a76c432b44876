"""How many building blocks a term uses: the columns of WindFlow's Table 3.

Replicas count as often as they run. A container of one block is the block itself, except that the two
sides of an A2A are containers; and inside a Matryoshka the right side is the next doll, not a container.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.blocks.terms import A2A, Comb, Container, FanOut, Pipe, Seq, Term


class Counts(NamedTuple):
    """One row of Table 3."""

    seqs: int
    combiners: int
    pipes: int
    containers: int
    all_to_alls: int


_COLUMN: dict[type[Term], int] = {Seq: 0, Comb: 1, FanOut: 1, Pipe: 2, Container: 3, A2A: 4}


def count(term: Term) -> Counts:
    """The blocks of a term by class; Comb and FanOut are both combiners.

    >>> from penstock.blocks import Function, Kind
    >>> count(Pipe((Seq(Function("src", Kind.SRC)),)))
    Counts(seqs=1, combiners=0, pipes=1, containers=0, all_to_alls=0)
    """
    totals = [0] * len(Counts._fields)
    todo: list[tuple[Term, int, bool]] = [(term, 1, not _is_single(term))]
    while todo:
        block, times, counted = todo.pop()
        totals[_COLUMN[type(block)]] += times * counted
        if isinstance(block, A2A):
            todo += [(block.left, times, True), (block.right, times, block.inner is None)]
        else:
            times *= block.copies if isinstance(block, Container) else 1
            todo.extend((part, times, not _is_single(part)) for part in block.parts)
    return Counts(*totals)


def _is_single(block: Term) -> bool:
    return isinstance(block, Container) and block.single
