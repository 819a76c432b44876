"""Which steps run together in one node: WindFlow's rule for chaining, read off a plan (WindFlow, 2.2.2).

A step is fused with the step before it when it asks to be, rows come forward between equal degrees, it
has one feed, and nobody else reads that feed's step: where rows part or meet, a node ends. As in the
algebra, a split is no node but belongs to what feeds it, and rows that run back into a control port do not
count. Invariant: a fused group is a line, entered at its first step and left at its last, but for those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from penstock.operators.op import Routing
from penstock.operators.split import Split
from penstock.plan.plan import Plan, Step


def fused_with(plan: Plan) -> dict[str, str]:
    """Step -> the step before it that it shares a node with, for every step that is fused."""
    by_name = {step.name: step for step in plan}
    parted = _parted(plan)
    fused = {}
    for step in plan:
        before = by_name.get(step.feeds[0].step) if len(step.feeds) == 1 else None
        if before is not None and before.name not in parted and _may_share(before, step):
            fused[step.name] = before.name
    return fused


def groups(plan: Plan, fused: Mapping[str, str]) -> list[list[Step]]:
    """Return the steps by node, each node's in order, nodes in the order of their first steps."""
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


def _parted(plan: Plan) -> set[str]:
    """Return the steps whose rows go several ways, also by another branch of what feeds a split."""
    place = {step.name: index for index, step in enumerate(plan)}
    readers = Counter(
        ref.step
        for step in plan
        for given in step.inputs
        for ref in given.feeds
        if not (given.control and place.get(ref.step, -1) >= place[step.name])
    )
    parted = {name for name, count in readers.items() if count > 1}
    for step in plan:
        if isinstance(step.op, Split) and step.feeds[0].step in parted:
            parted.add(step.name)
    return parted
