"""Which steps run together in one task: WindFlow's rule for chaining (WindFlow, 2.2.2).

A step is fused with the step before it when it asks to be, rows are forwarded between equal degrees, it has
one feed, and nobody else reads the step that feeds it: where streams fork or merge, a task ends. As in the
algebra, a split is no task but belongs to what feeds it, and rows that flow back into a control port do not
count. Invariant: a fused group is a chain, entered at its first step and left at its last, but for those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from penstock.operators.op import Routing
from penstock.operators.rows import Split
from penstock.plan.plan import Plan, Step


def fused_predecessors(plan: Plan) -> dict[str, str]:
    """Return, for every fused step, the step before it with which it shares a task."""
    by_name = {step.name: step for step in plan}
    rank = {step.name: index for index, step in enumerate(plan)}
    n_readers = Counter(
        ref.step
        for step in plan
        for port in step.inputs
        for ref in port.feeds
        if not (port.control and rank.get(ref.step, -1) >= rank[step.name])
    )
    # Steps whose rows go to several readers, also by another branch of what feeds a split.
    forking = {name for name, count in n_readers.items() if count > 1}
    for step in plan:
        if isinstance(step.op, Split) and step.feeds[0].step in forking:
            forking.add(step.name)
    fused = {}
    for step in plan:
        before = by_name.get(step.feeds[0].step) if len(step.feeds) == 1 else None
        if before is None or before.name in forking or any(port.control for port in step.inputs):
            continue
        if step.fuse and step.routing is Routing.FORWARD and before.degree == step.degree:
            fused[step.name] = before.name
    return fused


def group_fused(plan: Plan, fused: Mapping[str, str]) -> list[list[Step]]:
    """Return the steps by task, each task's in order, tasks in the order of their first steps."""
    task_of: dict[str, list[Step]] = {}
    tasks: list[list[Step]] = []
    for step in plan:
        if step.name in fused:
            task = task_of[fused[step.name]]
        else:
            task = []
            tasks.append(task)
        task.append(step)
        task_of[step.name] = task
    return tasks
