"""How building blocks grow: WindFlow's rules create, add, chain, split and merge (sections 3.1, 4.1, 4.2).

A Matryoshka grows at its seed, which in the nested term is the innermost block. While it is open it is held
inside out: the seed is at hand and each layer points to the one around it, so that every step costs the same
at any depth. `term()` turns it right side out once it has stopped growing.

Figures 7, 9 and 10 are missing from the paper's text; the rules here are those of the design. Finding the
place in a larger MultiPipe (split1, split2, merge1, merge2) is the work of `subterms`; here is what happens
at that place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from penstock.blocks.terms import (
    A2A,
    NEVER_CHAINED,
    PBB,
    SBB,
    Comb,
    Composition,
    Container,
    Distribution,
    FanOut,
    Function,
    Kind,
    Operator,
    Pipe,
    Seq,
    bare,
    contain,
)
from penstock.errors import GraphError
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matryoshka:
    """n identical open pipes (the seed), and the Matryoshka around them."""

    steps: tuple[SBB, ...]
    n: int
    outer: Matryoshka | None = None

    def term(self) -> PBB:
        """Return the nested building block: a container of pipes, or an A2A."""
        inner: PBB = Container((Pipe(self.steps),), self.n)
        layer = self.outer
        while layer is not None:
            inner = A2A(Container((Pipe(layer.steps),), layer.n), contain(inner))
            layer = layer.outer
        return inner

    def __repr__(self) -> str:
        return f"Matryoshka({self.term()!r})"


def out_card(m: Matryoshka) -> int:
    """OutCard: the number of pipes in the seed."""
    return m.n


def put_seed(m: Matryoshka, seed: Matryoshka) -> Matryoshka:
    """◇: the seed becomes the innermost layer of m."""
    assert seed.outer is None, "a seed is a single layer"
    return replace(seed, outer=m)


def last_operator(m: Matryoshka) -> Function | None:
    """Return the operator added last; distributions and splitting functions behind it are passed over."""
    layer: Matryoshka | None = m
    while layer is not None:
        for block in reversed(layer.steps):
            operator = operator_at_end(block)
            if operator is not None:
                return operator
        layer = layer.outer
    return None


def operator_at_end(block: SBB) -> Function | None:
    """Return the rightmost operator inside a sequential block."""
    todo = [block]
    while todo:
        part = todo.pop()
        if not isinstance(part, Seq):
            todo.extend(inner for inner in part.parts if isinstance(inner, SBB))
        elif isinstance(part.function.role, Kind):
            return part.function
    return None


def combine_with_last(m: Matryoshka, after: SBB) -> Matryoshka:
    """▷: fuse a copy of `after` to every rightmost sequential block."""
    return replace(m, steps=(*m.steps[:-1], Comb(m.steps[-1], after)))


def pipe_with_last(m: Matryoshka, after: SBB) -> Matryoshka:
    """⊢: append a copy of `after` to every rightmost pipe."""
    return replace(m, steps=(*m.steps, after))


class Growth(StrEnum):
    """The rule by which an operator joins a Matryoshka."""

    DIRECT = "add-direct"
    SHUFFLE = "add-shuffle"
    CHAIN = "chain"


def create(op: Operator) -> Matryoshka:
    """create: a seed of n pipes, each of one Seq."""
    return Matryoshka((Seq(op.logic),), op.n)


def growth(m: Matryoshka, op: Operator, *, chain: bool) -> Growth:
    """Return the rule that applies: forward between equal degrees is direct or fused, all else shuffles."""
    refuse_after_sink(m, op)
    if op.distribution is not Distribution.FORWARD or out_card(m) != op.n:
        return Growth.SHUFFLE
    if chain and op.kind not in NEVER_CHAINED:
        return Growth.CHAIN
    return Growth.DIRECT


def add(m: Matryoshka, op: Operator, *, composition: Composition = "combined") -> Matryoshka:
    """add-direct: M ⊢ Seq f_op; add-shuffle: (M ▷ Seq f_d) ◇ [Pipe(Seq f_op)]^n."""
    if growth(m, op, chain=False) is Growth.DIRECT:
        return pipe_with_last(m, Seq(op.logic))
    return put_seed(distribute(m, Seq(op.routing), composition), create(op))


def chain(m: Matryoshka, op: Operator, *, composition: Composition = "combined") -> Matryoshka:
    """chain1: M ▷ Seq f_op where the rule allows it; chain2: else add."""
    if growth(m, op, chain=True) is Growth.CHAIN:
        return combine_with_last(m, Seq(op.logic))
    return add(m, op, composition=composition)


def distribute(m: Matryoshka, routing: SBB, composition: Composition) -> Matryoshka:
    """Place a distribution at the right end: fused there, in a node per replica, or in one for all."""
    if composition == "combined":
        return combine_with_last(m, routing)
    if composition == "dedicated":
        return pipe_with_last(m, routing)
    return put_seed(m, Matryoshka((routing,), 1))


def refuse_after_sink(m: Matryoshka, op: Operator) -> None:
    """Raise if the Matryoshka ends in a Sink: then it is closed."""
    last = last_operator(m)
    if last is not None and last.role is Kind.SNK:
        raise GraphError(
            f'nothing can follow the sink "{last.name}"',
            step=op.name,
            hint=f'attach "{op.name}" to the step before "{last.name}"',
        )


@dataclass(frozen=True, slots=True)
class Split:
    """A Matryoshka that feeds several branches, each still open."""

    stem: Matryoshka
    branches: tuple[Matryoshka, ...]

    def term(self) -> A2A:
        """A2A(M ▷ FanOut(f_s, {f_di}), [M_i])."""
        return split_term(self.stem.term(), tuple(branch.term() for branch in self.branches))


def split(
    m: Matryoshka, function: Function, ops: Sequence[Operator], *, composition: Composition = "combined"
) -> Split:
    """split: A2A(M ▷ FanOut(f_s, {f_di}), [M_i]), with one new Matryoshka per operator."""
    if len(ops) < 2:
        raise GraphError(f'the split "{function.name}" has {len(ops)} branches, and needs two or more')
    refuse_after_sink(m, ops[0])
    fan = FanOut(Seq(function), tuple(Seq(op.routing) for op in ops))
    return Split(distribute(m, fan, composition), tuple(create(op) for op in ops))


def merge(
    ends: Sequence[Matryoshka], op: Operator, *, composition: Composition = "combined"
) -> tuple[list[Matryoshka], Matryoshka]:
    """merge-ind and merge4: A2A([Γ_i ▷ Seq f_d], M'). Return the ends of the Γ_i as they are then, and M'."""
    if composition == "centralised":
        return list(ends), put_seed(Matryoshka((Seq(op.routing),), 1), create(op))
    return [distribute(end, Seq(op.routing), composition) for end in ends], create(op)


def split_term(stem: PBB, branches: Sequence[PBB]) -> A2A:
    """Return the A2A of a split."""
    return A2A(contain(stem), contain(*branches))


def merge_term(inputs: Sequence[PBB], out: PBB) -> A2A:
    """Return the A2A of a merge."""
    return A2A(Container(tuple(bare(pipe) for pipe in inputs)), contain(out))
