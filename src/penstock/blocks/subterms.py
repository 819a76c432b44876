"""The MultiPipes under construction: where each open end lies, so that every rule applies in place.

A subterm is one Matryoshka with what is around it: what was merged into it on the left, and the branches
it was split into on the right. The root is no subterm of the program; its branches are the independent
MultiPipes. Subterms know their parents, so a merge climbs from its inputs instead of searching from the
top. Invariant: `n_open` is the number of branches in which some end is still to be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.blocks.operations import Matryoshka, merge_term, split_term
from penstock.blocks.terms import PBB
from penstock.errors import GraphError, Where


class Subterm:
    """A Matryoshka and its surroundings; `tip` is what errors call its right end."""

    __slots__ = ("branches", "inputs", "m", "n_open", "open", "parent", "slot", "tip")

    def __init__(self, m: Matryoshka | None, tip: str, inputs: tuple[PBB, ...] = ()) -> None:
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
                assert subterm.m is not None, "the root has no term"
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
