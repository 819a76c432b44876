"""Create, add and chain: how a Matryoshka grows by one operator (WindFlow 4.1, Figure 7).

The figure is missing from the paper's text; the rules are those of the design. `composition` chooses
among the three ways to place a distribution that section 5.3 of the paper compares.
"""

from __future__ import annotations

from enum import StrEnum

from penstock.blocks.functions import NEVER_CHAINED, Composition, Distribution, Kind, Operator
from penstock.blocks.matryoshka import Matryoshka, last_operator, out_card, put_seed
from penstock.blocks.rightmost import combine_with_last, pipe_with_last
from penstock.blocks.terms import SBB, Seq
from penstock.errors import GraphError


class Growth(StrEnum):
    """The rule by which an operator joins a Matryoshka."""

    DIRECT = "add-direct"
    SHUFFLE = "add-shuffle"
    CHAIN = "chain"


def create(op: Operator) -> Matryoshka:
    """create: a seed of n pipes, each of one Seq."""
    return Matryoshka(Seq(op.logic), op.n)


def growth(m: Matryoshka, op: Operator, *, chain: bool) -> Growth:
    """Which rule applies: forward between equal degrees is direct (or fused), all else is a shuffle."""
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
    return put_seed(m, Matryoshka(routing, 1))


def refuse_after_sink(m: Matryoshka, op: Operator) -> None:
    """A Matryoshka that ends in a Sink is closed."""
    last = last_operator(m)
    if last is not None and last.role is Kind.SNK:
        raise GraphError(
            f'nothing can follow the sink "{last.name}"',
            step=op.name,
            hint=f'attach "{op.name}" to the step before "{last.name}"',
        )
