"""The nodes of a term, in the order in which threads are pinned to cores (WindFlow 4.4).

A node is a sequential block that is not inside another one: what an engine runs on its own. Neighbours
in this order talk to each other, so neighbouring cores should run them.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

from penstock.blocks.terms import A2A, PBB, SBB, Container, Pipe, Term


class Placed(NamedTuple):
    """One replica of a node."""

    block: SBB
    replica: int


def nodes_of(term: Term) -> tuple[Placed, ...]:
    """Every node, depth first: a Pipe from the left, an A2A taking left and right blocks in turn."""
    found: list[Placed] = []
    todo: list[tuple[Term, int]] = [(term, 0)]
    while todo:
        block, replica = todo.pop()
        if isinstance(block, SBB):
            found.append(Placed(block, replica))
        elif isinstance(block, Pipe):
            todo.extend((step, replica) for step in reversed(block.steps))
        elif isinstance(block, A2A):
            turns = zip_longest(_members(block.left, replica), _members(block.right, replica))
            todo.extend(reversed([member for turn in turns for member in turn if member is not None]))
        elif isinstance(block, Container):
            todo.extend(reversed(_members(block, replica)))
    return tuple(found)


def _members(side: Container, replica: int) -> list[tuple[PBB, int]]:
    """The blocks of a container, with identical ones written out and numbered."""
    if side.copies > 1:
        return [(side.blocks[0], copy) for copy in range(side.copies)]
    return [(block, replica) for block in side.blocks]
