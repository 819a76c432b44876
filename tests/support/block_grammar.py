"""The grammars and functions of WindFlow that only tests ask for.

`is_multipipe` checks its equation 2 (`is_matryoshka`, its equation 1, is part of the package): every
derivation is held against it. `nodes_of` lists what an engine runs alone, in the order of section 4.4.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

from penstock.blocks.operations import Matryoshka, last_operator, operator_at_end
from penstock.blocks.terms import A2A, PBB, SBB, Container, Function, Kind, Pipe, Term, bare, is_matryoshka
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class _Symbols:
    """Which symbols of the grammar produce a block; `several` is the paper's [Γ_i]."""

    doll: bool = False  # M
    merged: bool = False  # Γ◀, the right of a merge
    split: bool = False  # Γ▶, the left of a split
    whole: bool = False  # Γ
    several: bool = False


_DOLL = _Symbols(doll=True, merged=True, split=True, whole=True, several=True)


def is_multipipe(term: Term) -> bool:
    """Γ ::= M | A2A([Γ_i], Γ◀) | A2A(Γ▶, [Γ_i])."""
    if not isinstance(term, PBB):
        return False
    known: list[_Symbols] = []  # of the blocks already judged, innermost first
    todo: list[tuple[PBB, bool]] = [(term, False)]
    while todo:
        block, ready = todo.pop()
        if is_matryoshka(block):
            known.append(_DOLL)
        elif isinstance(block, A2A):
            if ready:
                right, left = known.pop(), known.pop()
                known.append(_all_to_all(left, right))
            else:
                todo += [(block, True), (block.right, False), (block.left, False)]
        elif isinstance(block, Container):
            if ready:
                inside = [known.pop() for _ in block.blocks]
                known.append(_container(block, inside))
            else:
                todo.append((block, True))
                todo.extend((inner, False) for inner in block.blocks)
    return known.pop().whole


def _all_to_all(left: _Symbols, right: _Symbols) -> _Symbols:
    merge = left.several and right.merged
    split = left.split and right.several
    return _Symbols(
        merged=left.doll and right.several,
        split=left.several and right.doll,
        whole=merge or split,
        several=merge or split,
    )


def _container(block: Container, inside: list[_Symbols]) -> _Symbols:
    if block.single:
        return inside[0]
    return _Symbols(several=all(inner.whole for inner in inside))


class NodeReplica(NamedTuple):
    """One replica of a node: a sequential block that is not inside another one."""

    block: SBB
    replica: int


def nodes_of(term: Term) -> tuple[NodeReplica, ...]:
    """Returns every node in the order in which threads are pinned to cores (WindFlow 4.4).

    Depth first: a Pipe from the left, an A2A alternating between left and right blocks. Neighbours in this
    order talk to each other, so neighbouring cores should run them.
    """
    nodes: list[NodeReplica] = []
    todo: list[tuple[Term, int]] = [(term, 0)]
    while todo:
        block, replica = todo.pop()
        if isinstance(block, SBB):
            nodes.append(NodeReplica(block, replica))
        elif isinstance(block, Pipe):
            todo.extend((step, replica) for step in reversed(block.steps))
        elif isinstance(block, A2A):
            pairs = zip_longest(_members(block.left, replica), _members(block.right, replica))
            todo.extend(reversed([member for pair in pairs for member in pair if member is not None]))
        elif isinstance(block, Container):
            todo.extend(reversed(_members(block, replica)))
    return tuple(nodes)


def _members(side: Container, replica: int) -> list[tuple[PBB, int]]:
    """The blocks of a container, with identical ones written out and numbered."""
    if side.copies > 1:
        return [(side.blocks[0], copy) for copy in range(side.copies)]
    return [(block, replica) for block in side.blocks]


def last_op(m: Matryoshka) -> Kind | None:
    """LastOP: the kind of the operator added last, or None before the first."""
    function = last_operator(m)
    return function.role if function is not None and isinstance(function.role, Kind) else None


def rmost(block: PBB) -> tuple[PBB, ...]:
    """Rmost: the rightmost Matryoshkas of a MultiPipe, from left to right."""
    matryoshkas: list[PBB] = []
    todo = [block]
    while todo:
        inner = bare(todo.pop())
        if is_matryoshka(inner):
            matryoshkas.append(inner)
        elif isinstance(inner, A2A):
            todo.append(inner.right)
        elif isinstance(inner, Container):
            todo.extend(reversed(inner.blocks))
    return tuple(matryoshkas)


def _end_of(m: PBB) -> Function | None:
    """The last operator in the seed of a Matryoshka."""
    while not isinstance(m, Pipe):
        m = m.right if isinstance(m, A2A) else next(part for part in m.parts if isinstance(part, PBB))
    return next((end for end in map(operator_at_end, reversed(m.steps)) if end is not None), None)


def no_sink(block: PBB) -> bool:
    """noSink: none of the rightmost Matryoshkas is closed by a Sink."""
    ends = [_end_of(m) for m in rmost(block)]
    return not any(end is not None and end.role is Kind.SNK for end in ends)
