"""The two grammars of WindFlow: Matryoshka (its equation 1) and MultiPipe (its equation 2).

The types already keep Table 2; these checkers ask for more, and are what the tests hold every
derivation against. A container of one block is that block, as the paper writes it.
"""

from __future__ import annotations

from penstock.blocks.terms import A2A, PBB, Container, Pipe, Term, bare, is_seed
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


def is_matryoshka(term: Term) -> bool:
    """M ::= [Φ]^n | A2A([Φ]^n, M)."""
    block = bare(term) if isinstance(term, PBB) else term
    return isinstance(block, Pipe) or is_seed(block) or (isinstance(block, A2A) and block.matryoshka)


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
