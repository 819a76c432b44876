"""Why a merge is refused, and which branches could merge instead."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.blocks.derivation import Node
from penstock.blocks.sites import Site, maximal, mergeable
from penstock.errors import GraphError

_MOST = 8  # names in one list


def refused(node: Node, ends: Sequence[Site]) -> GraphError:
    """The error for a merge that no rule covers, once everything else has been done."""
    groups = _groups(ends)
    return GraphError(
        f'no rule merges {_names(ends)} into "{node.op.name}"',
        step=node.op.name,
        where=node.where,
        detail="; ".join(
            f"{_names(mine)} and {_names(others)} are branches of one split" for mine, others in groups
        )
        + ": a branch merges with its siblings, or a whole pipe with another",
        hint=_hint(ends, groups),
    )


def _groups(ends: Sequence[Site]) -> list[tuple[list[Site], list[Site]]]:
    """Per split that is merged only in part: the ends that take part, and the open ones that do not."""
    wanted = set(ends)
    parents = dict.fromkeys(root.parent for root in maximal(ends))
    found = []
    for parent in parents:
        if parent is not None and parent.parent is not None:
            below = list(parent.open_ends())
            others = [end for end in below if end not in wanted]
            if others:
                found.append(([end for end in below if end in wanted], others))
    return found


def _hint(ends: Sequence[Site], groups: list[tuple[list[Site], list[Site]]]) -> str:
    ways = ", or ".join(f"{_names(mine)} with {_names(others)}" for mine, others in groups)
    return f"merge {ways}, or all of {_names(_enough(ends))} at once; or end the others in a sink"


def _enough(ends: Sequence[Site]) -> list[Site]:
    """The given ends, and every one that must join them for a rule to hold."""
    every = dict.fromkeys(ends)
    while mergeable(list(every)) is None:
        every.update(dict.fromkeys(end for _, others in _groups(list(every)) for end in others))
    return list(every)


def _names(ends: Sequence[Site]) -> str:
    named = [f'"{end.tip}"' for end in ends[:_MOST]]
    if len(ends) > _MOST:
        return f"{', '.join(named)} and {len(ends) - _MOST} more"
    return " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else named[0]
