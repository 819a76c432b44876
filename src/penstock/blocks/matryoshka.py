"""An open Matryoshka, held inside out, and the functions of WindFlow's Figure 6 on it.

A Matryoshka grows at its seed, which in the nested term is the innermost block. Here the seed is at hand
and each layer points to the one around it, so that every step costs the same at any depth. `term()`
turns it right side out, once, when it has stopped growing.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.blocks.functions import Function, Kind
from penstock.blocks.terms import A2A, PBB, SBB, Container, Pipe, Seq, contain
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """The blocks left of the last one in an open pipe, nearest first."""

    block: SBB
    before: Before | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matryoshka:
    """n identical open pipes (the seed), and the Matryoshka around them."""

    last: SBB
    n: int
    before: Before | None = None
    outer: Matryoshka | None = None

    def term(self) -> PBB:
        """The nested building block: a container of pipes, or an A2A."""
        inner: PBB = Container((self.pipe(),), self.n)
        layer = self.outer
        while layer is not None:
            inner = A2A(Container((layer.pipe(),), layer.n), contain(inner))
            layer = layer.outer
        return inner

    def pipe(self) -> Pipe:
        """One pipe of the seed."""
        steps = [self.last]
        link = self.before
        while link is not None:
            steps.append(link.block)
            link = link.before
        return Pipe(tuple(reversed(steps)))

    def __repr__(self) -> str:
        return f"Matryoshka({self.term()!r})"


def out_card(m: Matryoshka) -> int:
    """OutCard: the number of pipes in the seed."""
    return m.n


def put_seed(m: Matryoshka, seed: Matryoshka) -> Matryoshka:
    """◇: the seed becomes the innermost layer of m."""
    assert seed.outer is None, "a seed is a single layer"
    return replace(seed, outer=m)


def last_op(m: Matryoshka) -> Kind | None:
    """LastOP: the kind of the operator added last, or None before the first."""
    function = last_operator(m)
    return function.role if function is not None and isinstance(function.role, Kind) else None


def last_operator(m: Matryoshka) -> Function | None:
    """The operator added last; distributions and splitting functions behind it are passed over."""
    layer: Matryoshka | None = m
    while layer is not None:
        found = operator_at_end(layer.last)
        link = layer.before
        while found is None and link is not None:
            found = operator_at_end(link.block)
            link = link.before
        if found is not None:
            return found
        layer = layer.outer
    return None


def operator_at_end(block: SBB) -> Function | None:
    """The rightmost operator inside a sequential block."""
    todo = [block]
    while todo:
        part = todo.pop()
        if not isinstance(part, Seq):
            todo.extend(inner for inner in part.parts if isinstance(inner, SBB))
        elif isinstance(part.function.role, Kind):
            return part.function
    return None
