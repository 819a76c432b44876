"""How building blocks grow: WindFlow's rules create, add, chain, split and merge (sections 3.1, 4.1, 4.2).

A Matryoshka grows at its seed, which in the nested term is the innermost block. While it is open it is held
inside out: the seed is at hand and each layer points to the one around it, so that every step costs the same
at any depth. `term()` turns it right side out once it has stopped growing. The functions on closed blocks
walk down the right-hand sides without recursion.

Figures 7, 9 and 10 are missing from the paper's text; the rules here are those of the design. Finding the
place in a larger MultiPipe (split1, split2, merge1, merge2) is the work of `subterms`; here is what happens
at that place. Beyond the paper, which merges only where no branch is closed: a branch that ended in a Sink,
or that nobody reads, may stay inside what is merged. It sends nothing, so it is not given the distribution;
`Merge.left_out` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

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
    is_matryoshka,
)
from penstock.errors import GraphError
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The blocks left of the last one in an open pipe, nearest first."""

    block: SBB
    before: Prefix | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matryoshka:
    """n identical open pipes (the seed), and the Matryoshka around them."""

    last: SBB
    n: int
    before: Prefix | None = None
    outer: Matryoshka | None = None

    def term(self) -> PBB:
        """Return the nested building block: a container of pipes, or an A2A."""
        inner: PBB = Container((self.pipe(),), self.n)
        layer = self.outer
        while layer is not None:
            inner = A2A(Container((layer.pipe(),), layer.n), contain(inner))
            layer = layer.outer
        return inner

    def pipe(self) -> Pipe:
        """Return one pipe of the seed."""
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


def last_operator(m: Matryoshka) -> Function | None:
    """Return the operator added last; distributions and splitting functions behind it are passed over."""
    layer: Matryoshka | None = m
    while layer is not None:
        operator = operator_at_end(layer.last)
        link = layer.before
        while operator is None and link is not None:
            operator = operator_at_end(link.block)
            link = link.before
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


AnyBlock = TypeVar("AnyBlock", Matryoshka, PBB)
PickPipe = Callable[[Pipe], bool]


def combine_with_last(block: AnyBlock, after: SBB, only: PickPipe | None = None) -> AnyBlock:
    """▷: fuse a copy of `after` to every rightmost sequential block (of the pipes that `only` picks)."""
    if isinstance(block, Matryoshka):
        return replace(block, last=Comb(block.last, after))
    return _at_right_end(block, lambda pipe: (*pipe.steps[:-1], Comb(pipe.steps[-1], after)), only)


def pipe_with_last(block: AnyBlock, after: SBB, only: PickPipe | None = None) -> AnyBlock:
    """⊢: append a copy of `after` to every rightmost pipe (that `only` picks)."""
    if isinstance(block, Matryoshka):
        return replace(block, last=after, before=Prefix(block.last, block.before))
    return _at_right_end(block, lambda pipe: (*pipe.steps, after), only)


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


def seed_pipe(m: PBB) -> Pipe:
    """Return one pipe of the seed of a Matryoshka."""
    while not isinstance(m, Pipe):
        m = m.right if isinstance(m, A2A) else next(part for part in m.parts if isinstance(part, PBB))
    return m


def end_of(pipe: Pipe) -> Function | None:
    """Return the last operator of a pipe; None in a pipe that only distributes."""
    return next((end for end in map(operator_at_end, reversed(pipe.steps)) if end is not None), None)


def _at_right_end(top: PBB, change: Callable[[Pipe], tuple[SBB, ...]], only: PickPipe | None) -> PBB:
    """Rebuild a block with its rightmost pipes changed: the pipe, a2a and pc cases of Figure 5."""
    done: list[PBB] = []
    todo: list[tuple[PBB, bool]] = [(top, False)]
    while todo:
        block, ready = todo.pop()
        if isinstance(block, Pipe):
            done.append(Pipe(change(block)) if only is None or only(block) else block)
        elif isinstance(block, A2A):
            if ready:
                right = done.pop()
                assert isinstance(right, Container), "the right side of an A2A stays a container"
                done.append(A2A(block.left, right))
            else:
                todo += [(block, True), (block.right, False)]
        elif isinstance(block, Container):
            if ready:
                done.append(Container(tuple(done.pop() for _ in block.blocks), block.copies))
            else:
                # Pushed left to right, so they are rebuilt right to left and popped in order above.
                todo.append((block, True))
                todo.extend((inner, False) for inner in block.blocks)
    return done.pop()


class Growth(StrEnum):
    """The rule by which an operator joins a Matryoshka."""

    DIRECT = "add-direct"
    SHUFFLE = "add-shuffle"
    CHAIN = "chain"


def create(op: Operator) -> Matryoshka:
    """create: a seed of n pipes, each of one Seq."""
    return Matryoshka(Seq(op.logic), op.n)


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
    return put_seed(m, Matryoshka(routing, 1))


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


@dataclass(frozen=True, slots=True)
class Merge:
    """MultiPipes that feed one Matryoshka, which is still open."""

    inputs: tuple[PBB, ...]
    out: Matryoshka
    left_out: tuple[str, ...]  # the ends that send nothing, in order

    def term(self) -> A2A:
        """A2A([Γ_i ▷ Seq f_d], M)."""
        return merge_term(self.inputs, self.out.term())


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
    pipes: Sequence[PBB],
    op: Operator,
    *,
    composition: Composition = "combined",
    unread: AbstractSet[str] = frozenset(),
) -> Merge:
    """merge-ind and merge4: A2A([Γ_i ▷ Seq f_d], M').

    The pipes are MultiPipes that nothing joins yet, or sibling branches of one split, whose place the result
    takes. `unread` names operators that are not sinks but whose rows go nowhere.
    """
    if len(pipes) < 2:
        raise GraphError(f"a merge of {len(pipes)} pipes needs two or more", step=op.name)
    left_out = _refuse_closed(pipes, op, unread)
    routing = Seq(op.routing)

    def reads(pipe: Pipe) -> bool:
        return not _is_silent(pipe, unread)

    if composition == "centralised":
        return Merge(tuple(pipes), put_seed(Matryoshka(routing, 1), create(op)), left_out)
    extend = combine_with_last if composition == "combined" else pipe_with_last
    return Merge(tuple(extend(pipe, routing, reads) for pipe in pipes), create(op), left_out)


def split_term(stem: PBB, branches: Sequence[PBB]) -> A2A:
    """Return the A2A of a split."""
    return A2A(contain(stem), contain(*branches))


def merge_term(inputs: Sequence[PBB], out: PBB) -> A2A:
    """Return the A2A of a merge."""
    return A2A(Container(tuple(bare(pipe) for pipe in inputs)), contain(out))


def _is_silent(pipe: Pipe, unread: AbstractSet[str]) -> bool:
    """Return whether a pipe sends nothing on: it is closed by a sink, or nobody reads it."""
    end = end_of(pipe)
    return end is not None and (end.role is Kind.SNK or end.name in unread)


def _refuse_closed(pipes: Sequence[PBB], op: Operator, unread: AbstractSet[str]) -> tuple[str, ...]:
    """Return the names of the silent ends; a MultiPipe with no other end has nothing to merge."""
    names: list[str] = []
    for pipe in pipes:
        ends = [seed_pipe(m) for m in rmost(pipe)]
        silent = [str(end_of(end)) for end in ends if _is_silent(end, unread)]
        if len(silent) == len(ends):
            raise GraphError(
                f'every branch that "{op.name}" would merge here is closed: {", ".join(silent)}',
                step=op.name,
                hint="merge before the sink",
            )
        names += silent
    return tuple(names)
