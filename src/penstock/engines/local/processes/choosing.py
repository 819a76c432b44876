"""Which steps can run in worker processes, which do, and what explain() says of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from penstock.engines.local.settings import PROCESS, THREAD
from penstock.operators.accumulator import Accumulator
from penstock.operators.filter import Filter
from penstock.operators.flat_map import FlatMap
from penstock.operators.function import BatchFunction, RowFunction
from penstock.operators.map import Map
from penstock.operators.op import IN, OUT
from penstock.plan.step import Step

CAN_FORK = hasattr(os, "fork")
_NO_FORK = "this platform has no fork, by which functions would reach another process"


def can_move(step: Step) -> bool:
    """Whether a step is a function of the user's in plain Python, and one that a worker process can host."""
    op = step.op
    if not isinstance(op, Map | Filter | FlatMap | Accumulator):
        return False
    if isinstance(op.how, BatchFunction):
        return True
    return isinstance(op.how, RowFunction) and not _may_be_compiled(step)


def why_thread(step: Step) -> str | None:
    """Why nobody but the user can decide that a step is better off in processes; None if measuring can."""
    function = getattr(step.op, "how", None)
    assert isinstance(function, BatchFunction | RowFunction), "only steps that can move are asked about"
    if not CAN_FORK:
        return _NO_FORK
    if isinstance(function, BatchFunction):
        return "what it calls on whole columns may well scale on threads"
    if step.op.stateful:
        return "its state would be in another process"
    from penstock.engines.local.processes.sharing import shares

    return shares(function.call)


def chosen(step: Step, workers: str) -> bool:
    """Whether a worker process is made for every replica of a step."""
    if not CAN_FORK or workers == THREAD:
        return False
    if step.degree.elastic and step.op.stateful:  # its state moves from replica to replica
        return False
    if workers == PROCESS:
        return can_move(step)
    return step.degree.most > 1 and can_move(step) and why_thread(step) is None


def is_alone() -> bool:
    """Whether there is no other thread, beside which it would not be quite safe to fork unasked."""
    return threading.active_count() == 1


def explained(plan: Iterable[Step]) -> list[str]:
    """What becomes of replicas of plain-Python functions."""
    return [_line(step) for step in plan if step.degree.most > 1 and can_move(step)]


def _line(step: Step) -> str:
    reason = why_thread(step)
    if reason is None:
        return (
            f"{step.name}: replicas turn into processes when a batch takes much longer than the way there "
            "and back, on more than one core and in a program without other threads"
        )
    ask = "" if reason == _NO_FORK else '; workers="process" makes them processes'
    return f"{step.name}: replicas are threads, because {reason}{ask}"


def _may_be_compiled(step: Step) -> bool:
    """Whether Numba gets to see a function; then threads do what processes could."""
    op = step.op
    if not isinstance(op, Map | Filter) or op.state is not None or not isinstance(op.how, RowFunction):
        return False
    from penstock.stages.row_compiled import CompiledRows

    down = op.outputs({IN: step.up})[OUT].schema if isinstance(op, Map) else None
    return CompiledRows(op.how, step.up.schema, down, wraps=op.compile).program is not None
