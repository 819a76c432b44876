"""What explain() says of a plan in process: what runs together, where rows go, what threads can do."""

from __future__ import annotations

from penstock.clock import WallClock
from penstock.engines.local.groups import Group, Part, cut, is_copied, is_keyed
from penstock.engines.local.processes.choosing import explained
from penstock.operators.choices.patterns import DECOMPOSED
from penstock.operators.filter import Filter
from penstock.operators.flat_map import FlatMap
from penstock.operators.function import RowFunction
from penstock.operators.map import Map
from penstock.operators.process import Process
from penstock.operators.split import Split
from penstock.operators.windows import Windows
from penstock.plan.accounts import Accounts
from penstock.plan.plan import Plan
from penstock.plan.step import Step
from penstock.stages.make import make
from penstock.stages.site import Site


def explain(plan: Plan) -> list[str]:
    """One line per node, then what scales on threads and what does not."""
    groups = cut(plan)
    n_nodes = sum(group.width for group in groups)
    lines = [f"{n_nodes} co-routines on a pool of threads, by default one thread per core"]
    lines += [_line(group) for group in groups]
    held = [step.name for step in plan if holds_the_gil(step)]
    free = [step.name for step in plan if _works(step) and step.name not in held]
    if free:
        lines.append(f"scale on threads (kernels, Arrow, compiled functions): {', '.join(free)}")
    if held:
        lines.append(f"plain Python, one thread at a time (the GIL): {', '.join(held)}")
    lines += explained(plan)
    waiting = [step.name for step in plan.sources if not step.op.reader.bounded]  # type: ignore[attr-defined]  # a Source
    if waiting:
        lines.append(f"with a thread of their own, because their readers wait: {', '.join(waiting)}")
    return lines


def holds_the_gil(step: Step) -> bool:
    """Whether a step works row by row in plain Python, which threads cannot share."""
    op = step.op
    if isinstance(op, Windows):
        return op.function is not None
    if isinstance(op, Process) or op.stateful:
        return True
    how = getattr(op, "how", None)
    if not isinstance(how, RowFunction):
        return False
    return not isinstance(op, Map | Filter | FlatMap) or not _is_compiled(step)


def _is_compiled(step: Step) -> bool:
    stage = make(step.op, step.up, Site(step.name, step.where, Accounts(), WallClock()))
    told: list[str] = stage.explain()  # type: ignore[attr-defined]  # every stage of a function has it
    return any("is compiled by Numba" in line for line in told)


def _works(step: Step) -> bool:
    return isinstance(step.op, Map | Filter | FlatMap | Split | Windows)


def _line(group: Group) -> str:
    names = " + ".join(step.name for step in group.steps)
    if group.part is Part.JOINING:
        return f"{names}: {group.width} behind them put the parts together"
    if group.width == 1:
        return f"{names}: one node" + (", fused" if len(group.steps) > 1 else "")
    return f"{names}: {group.width} replicas, {_how(group)}"


def _how(group: Group) -> str:
    head = group.head
    if group.part is Part.REPLICAS:
        assert isinstance(head.op, Windows), "only windows are spread"
        return DECOMPOSED[head.op.pattern]
    if is_copied(head):
        return "each gets every row"
    if is_keyed(head):
        return f"rows by key ({', '.join(head.up.key) or 'none: one group'})"
    return "forward where as many send, else batches in turn, in order again behind them"
