"""Walk an expression without recursion, so that a sum of a thousand terms is no deeper than one of two.

A node that is used twice is visited once. Assumes only that nodes are frozen and have `children()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from penstock.expr.node import Node

Result = TypeVar("Result")


def post_order(root: Node) -> list[Node]:
    """Every distinct node below and including the root, each after its children."""
    ordered: list[Node] = []
    done: set[int] = set()
    pending = [(root, False)]
    while pending:
        node, children_done = pending.pop()
        if id(node) in done:
            continue
        if children_done:
            done.add(id(node))
            ordered.append(node)
        else:
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(node.children()))
    return ordered


def fold(root: Node, visit: Callable[[Node, tuple[Result, ...]], Result]) -> Result:
    """What `visit` makes of the root, given what it made of the children, from the leaves up."""
    results: dict[int, Result] = {}
    for node in post_order(root):
        results[id(node)] = visit(node, tuple(results[id(child)] for child in node.children()))
    return results[id(root)]


def same(left: Node, right: Node) -> bool:
    """Whether two expressions have the same nodes with the same fields in the same places."""
    pending = [(left, right)]
    seen: set[tuple[int, int]] = set()
    while pending:
        a, b = pending.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if (
            type(a) is not type(b)
            or a.own_fields() != b.own_fields()
            or len(a.children()) != len(b.children())
        ):
            return False
        pending.extend(zip(a.children(), b.children(), strict=True))
    return True
