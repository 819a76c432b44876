"""Split and merge: how Matryoshkas are joined into MultiPipes (WindFlow 4.2, Figures 9 and 10).

The figures are missing from the paper's text; the rules are those of the design. Finding the place in
a larger MultiPipe (split1, split2, merge1, merge2 of the paper) is the work of `sites`; here is what
happens at that place.

Beyond the paper: it merges only where no branch is closed. Here a branch that ended in a Sink, or that
nobody reads, may stay inside what is merged: it sends nothing, so its wires to the right side carry
nothing, and it is not given the distribution. `Merged.left_out` says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from penstock.blocks.functions import Composition, Function, Operator
from penstock.blocks.matryoshka import Matryoshka, put_seed
from penstock.blocks.operations import create, distribute, refuse_after_sink
from penstock.blocks.rightmost import (
    combine_with_last,
    end_of,
    ends_in_sink,
    pipe_with_last,
    rmost,
    seed_pipe,
)
from penstock.blocks.terms import A2A, PBB, Container, FanOut, Pipe, Seq, bare, contain
from penstock.errors import GraphError
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """A Matryoshka that feeds several branches, each still open."""

    stem: Matryoshka
    branches: tuple[Matryoshka, ...]

    def term(self) -> A2A:
        """A2A(M ▷ FanOut(f_s, {f_di}), [M_i])."""
        return split_term(self.stem.term(), tuple(branch.term() for branch in self.branches))


@dataclass(frozen=True, slots=True)
class Merged:
    """MultiPipes that feed one Matryoshka, which is still open."""

    inputs: tuple[PBB, ...]
    out: Matryoshka
    left_out: tuple[str, ...]  # the ends that send nothing, in order

    def term(self) -> A2A:
        """A2A([Γ_i ▷ Seq f_d], M)."""
        return merged_term(self.inputs, self.out.term())


def split(
    m: Matryoshka, function: Function, ops: Sequence[Operator], *, composition: Composition = "combined"
) -> Split:
    """split: A2A(M ▷ FanOut(f_s, {f_di}), [M_i]), with one new Matryoshka per operator."""
    if len(ops) < 2:
        raise GraphError(f'the split "{function.name}" has {len(ops)} branches, and needs two or more')
    refuse_after_sink(m, ops[0])
    fan = FanOut(Seq(function), tuple(Seq(op.routing) for op in ops))
    return Split(distribute(m, fan, composition), tuple(create(op) for op in ops))


def merge_independent(
    pipes: Sequence[PBB],
    op: Operator,
    *,
    composition: Composition = "combined",
    unread: AbstractSet[str] = frozenset(),
) -> Merged:
    """merge-ind: A2A([Γ_i ▷ Seq f_d], M'), of MultiPipes that nothing joins yet.

    `unread` names operators that are not sinks but whose rows go nowhere.
    """
    return _merge(pipes, op, composition, unread)


def merge(
    siblings: Sequence[PBB],
    op: Operator,
    *,
    composition: Composition = "combined",
    unread: AbstractSet[str] = frozenset(),
) -> Merged:
    """merge4, and its form for all branches: sibling branches of one split become one branch.

    The result takes their place among the branches of the split.
    """
    return _merge(siblings, op, composition, unread)


def split_term(stem: PBB, branches: Sequence[PBB]) -> A2A:
    """The A2A of a split."""
    return A2A(contain(stem), contain(*branches))


def merged_term(inputs: Sequence[PBB], out: PBB) -> A2A:
    """The A2A of a merge."""
    return A2A(Container(tuple(bare(pipe) for pipe in inputs)), contain(out))


def _merge(pipes: Sequence[PBB], op: Operator, composition: Composition, unread: AbstractSet[str]) -> Merged:
    if len(pipes) < 2:
        raise GraphError(f"a merge of {len(pipes)} pipes needs two or more", step=op.name)
    left_out = _refuse_closed(pipes, op, unread)
    routing = Seq(op.routing)

    def reads(pipe: Pipe) -> bool:
        return not _silent(pipe, unread)

    if composition == "centralised":
        return Merged(tuple(pipes), put_seed(Matryoshka(routing, 1), create(op)), left_out)
    extend = combine_with_last if composition == "combined" else pipe_with_last
    return Merged(tuple(extend(pipe, routing, reads) for pipe in pipes), create(op), left_out)


def _silent(pipe: Pipe, unread: AbstractSet[str]) -> bool:
    end = end_of(pipe)
    return ends_in_sink(pipe) or (end is not None and end.name in unread)


def _refuse_closed(pipes: Sequence[PBB], op: Operator, unread: AbstractSet[str]) -> tuple[str, ...]:
    """The names of the silent ends; a MultiPipe with no other end has nothing to merge."""
    names: list[str] = []
    for pipe in pipes:
        ends = [seed_pipe(m) for m in rmost(pipe)]
        silent = [str(end_of(end)) for end in ends if _silent(end, unread)]
        if len(silent) == len(ends):
            raise GraphError(
                f'every branch that "{op.name}" would merge here is closed: {", ".join(silent)}',
                step=op.name,
                hint="merge before the sink",
            )
        names += silent
    return tuple(names)
