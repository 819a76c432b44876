"""Which steps run together in one node: WindFlow's rule for chaining, read off a plan (WindFlow, 2.2.2).

A step is fused with the step before it when it asks to be, rows come forward between equal degrees, it
has one feed, and it is the only reader of that feed's step: where rows part or meet, a node ends.
Invariant: so a fused group is a line, entered at its first step and left at its last.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.operators.op import Routing
from penstock.plan.plan import Plan
from penstock.plan.step import Step


def fused_with(plan: Plan) -> dict[str, str]:
    """Step -> the step before it that it shares a node with, for every step that is fused."""
    by_name = {step.name: step for step in plan}
    n_readers = _readers(plan)
    fused = {}
    for step in plan:
        before = by_name.get(step.feeds[0].step) if len(step.feeds) == 1 else None
        if before is not None and n_readers[before.name] == 1 and _may_share(before, step):
            fused[step.name] = before.name
    return fused


def groups(plan: Plan, fused: Mapping[str, str]) -> list[list[Step]]:
    """The steps by node, each node's in order, nodes in the order of their first steps."""
    node_of: dict[str, list[Step]] = {}
    found: list[list[Step]] = []
    for step in plan:
        if step.name in fused:
            node = node_of[fused[step.name]]
        else:
            node = []
            found.append(node)
        node.append(step)
        node_of[step.name] = node
    return found


def _may_share(before: Step, step: Step) -> bool:
    forward = step.fuse and step.routing is Routing.FORWARD and before.degree == step.degree
    return forward and not any(given.control for given in step.inputs)


def _readers(plan: Plan) -> dict[str, int]:
    """How many edges leave each step, on any port."""
    count = {step.name: 0 for step in plan}
    for step in plan:
        for ref in step.feeds:
            count[ref.step] = count.get(ref.step, 0) + 1
    for ref in plan.collects:
        count[ref.step] = count.get(ref.step, 0) + 1
    return count
