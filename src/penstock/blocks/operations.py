"""How building blocks grow: WindFlow's rules create, add, chain, split and merge (sections 3.1, 4.1, 4.2).

A Matryoshka grows at its seed, which in the nested term is the innermost block. While it is open it is held
inside out: the seed is at hand and each layer points to the one around it, so that every step costs the same
at any depth. `term()` turns it right side out once it has stopped growing.

Figures 7, 9 and 10 are missing from the paper's text; the rules here are those of the design. Finding the
place in a larger MultiPipe (split1, split2, merge1, merge2) is the work of `Subterm`: one Matryoshka with
what is around it, what was merged into it on the left, and the branches it was split into on the right. The
root is no subterm of the program; its branches are the independent MultiPipes. Subterms know their parents,
so a merge climbs from its inputs instead of searching from the top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from penstock.errors import GraphError, Where
from penstock.frozen import Frozen, dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matryoshka:
    """n identical open pipes (the seed), and the Matryoshka around them.

    last    the last block of each pipe
    before  the seed without it, so that appending costs the same at any length; None for a pipe of one block
    """

    last: SBB
    n: int
    before: Matryoshka | None = None
    outer: Matryoshka | None = None

    def term(self) -> PBB:
        """Return the nested building block: a container of pipes, or an A2A."""
        inner: PBB = Container((Pipe(self.steps()),), self.n)
        layer = self.outer
        while layer is not None:
            inner = A2A(Container((Pipe(layer.steps()),), layer.n), contain(inner))
            layer = layer.outer
        return inner

    def steps(self) -> tuple[SBB, ...]:
        """Return the blocks of one pipe of the seed."""
        blocks: list[SBB] = []
        m: Matryoshka | None = self
        while m is not None:
            blocks.append(m.last)
            m = m.before
        return tuple(reversed(blocks))

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
        if operator is not None:
            return operator
        layer = layer.before or layer.outer
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
    return replace(m, last=Comb(m.last, after))


def pipe_with_last(m: Matryoshka, after: SBB) -> Matryoshka:
    """⊢: append a copy of `after` to every rightmost pipe."""
    return replace(m, last=after, before=m)


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


class Split(Frozen):
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
        return list(ends), put_seed(Matryoshka(Seq(op.routing), 1), create(op))
    return [distribute(end, Seq(op.routing), composition) for end in ends], create(op)


def split_term(stem: PBB, branches: Sequence[PBB]) -> A2A:
    """Return the A2A of a split."""
    return A2A(contain(stem), contain(*branches))


def merge_term(inputs: Sequence[PBB], out: PBB) -> A2A:
    """Return the A2A of a merge."""
    return A2A(Container(tuple(bare(pipe) for pipe in inputs)), contain(out))


class Subterm:
    """A Matryoshka and its surroundings; `tip` is what errors call its right end.

    Invariant: `n_open` is the number of branches in which some end is still to be read.
    """

    __slots__ = ("branches", "inputs", "m", "n_open", "open", "parent", "slot", "tip")

    def __init__(self, m: Matryoshka, tip: str, inputs: tuple[PBB, ...] = ()) -> None:
        self.m = m
        self.tip = tip
        self.inputs = inputs
        self.parent: Subterm | None = None
        self.slot = 0  # the place among the parent's branches
        self.branches: dict[int, Subterm] = {}
        self.n_open = 0
        self.open = True

    def put(self, branch: Subterm, slot: int) -> Subterm:
        """Give this subterm one more open branch."""
        branch.parent, branch.slot = self, slot
        self.branches[slot] = branch
        self.n_open += 1
        return branch

    def close(self) -> None:
        """Close this subterm: nothing more is read here, nor in parents without another open branch."""
        subterm: Subterm | None = self
        while subterm is not None:
            subterm.open = False
            subterm = subterm.parent
            if subterm is not None:
                subterm.n_open -= 1
                if subterm.n_open or subterm.parent is None:
                    return

    def ends(self) -> Iterator[Subterm]:
        """Yield every end below, from left to right; those that are open are still to be read."""
        todo = [self]
        while todo:
            subterm = todo.pop()
            if not subterm.branches:
                yield subterm
            todo.extend(branch for _, branch in sorted(subterm.branches.items(), reverse=True))

    def term(self) -> PBB:
        """Return the building block of this subterm and of everything in it."""
        done: list[PBB] = []
        todo: list[tuple[Subterm, bool]] = [(self, False)]
        while todo:
            subterm, ready = todo.pop()
            if ready or not subterm.branches:
                core = subterm.m.term()
                if subterm.branches:
                    core = split_term(core, [done.pop() for _ in subterm.branches])
                done.append(merge_term(subterm.inputs, core) if subterm.inputs else core)
            else:
                todo.append((subterm, True))
                todo.extend((branch, False) for _, branch in sorted(subterm.branches.items()))
        return done.pop()


def maximal(ends: Sequence[Subterm]) -> list[Subterm]:
    """Return the largest subterms all of whose open ends are among the given ones.

    It stops at a subterm that holds all of them, so a merge of every branch of a split yields that split.
    """
    roots = dict.fromkeys(ends)
    todo = list(ends)
    full: dict[Subterm, list[Subterm]] = {}
    while todo and len(roots) > 1:
        subterm = todo.pop()
        if subterm.parent is None:
            continue
        covered = full.setdefault(subterm.parent, [])
        covered.append(subterm)
        if len(covered) == subterm.parent.n_open:
            for branch in covered:
                del roots[branch]
            roots[subterm.parent] = None
            todo.append(subterm.parent)
    return list(roots)


def mergeable(ends: Sequence[Subterm]) -> tuple[Subterm, list[Subterm]] | None:
    """Return the branches that a rule lets merge, and the split (or the root) they belong to; else None."""
    roots = maximal(ends)
    if len(roots) == 1:
        return roots[0], [branch for _, branch in sorted(roots[0].branches.items()) if branch.open]
    parent = roots[0].parent
    if parent is None or any(root.parent is not parent for root in roots):
        return None
    return parent, sorted(roots, key=lambda branch: branch.slot)


def replace_branches(parent: Subterm, chosen: Sequence[Subterm], merged: Subterm) -> None:
    """Put what was merged in the place of its branches."""
    for branch in chosen:
        del parent.branches[branch.slot]
    parent.n_open -= len(chosen)
    parent.put(merged, chosen[0].slot)


_MOST = 8  # names in one list


def refuse_merge(ends: Sequence[Subterm], into: str, where: Where | None) -> GraphError:
    """Return the error for a merge that no rule covers, once everything else has been done."""
    groups = _groups(ends)
    enough = dict.fromkeys(ends)  # and every end that must join them for a rule to hold
    while mergeable(list(enough)) is None:
        enough.update(dict.fromkeys(end for _, missing in _groups(list(enough)) for end in missing))
    ways = ", or ".join(f"{_names(merging)} with {_names(missing)}" for merging, missing in groups)
    return GraphError(
        f'no rule merges {_names(ends)} into "{into}"',
        step=into,
        where=where,
        detail="; ".join(
            f"{_names(merging)} and {_names(missing)} are branches of one split"
            for merging, missing in groups
        )
        + ": a branch merges with its siblings, or a whole pipe with another",
        hint=f"merge {ways}, or all of {_names(list(enough))} at once; or end the others in a sink",
    )


def _groups(ends: Sequence[Subterm]) -> list[tuple[list[Subterm], list[Subterm]]]:
    """Return, per split that is merged in part, the ends that take part, and the open ones that do not."""
    wanted = set(ends)
    parents = dict.fromkeys(root.parent for root in maximal(ends))
    groups = []
    for parent in parents:
        if parent is not None and parent.parent is not None:
            below = [end for end in parent.ends() if end.open]
            missing = [end for end in below if end not in wanted]
            if missing:
                groups.append(([end for end in below if end in wanted], missing))
    return groups


def _names(ends: Sequence[Subterm]) -> str:
    named = [f'"{end.tip}"' for end in ends[:_MOST]]
    if len(ends) > _MOST:
        return f"{', '.join(named)} and {len(ends) - _MOST} more"
    return " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else named[0]
