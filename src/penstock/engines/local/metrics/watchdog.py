"""The watchdog: warns of a step that has been busy with one batch for long, and shows where its code is.

A task yields when its quantum is over, after the current batch at the latest. One that has not yielded for
long is reported once, by name, with the Python stack of its thread, or of its worker process, trimmed to the
user's frames. That is all: a slow function is no error, and the run goes on. Readers may wait for input as
long as they like.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from types import FrameType

from penstock.clock import Clock
from penstock.engines.ends import SourceReader
from penstock.engines.local.dispatch import Dispatcher, run_task
from penstock.engines.local.metrics.statistics import RUNNING
from penstock.engines.local.row_path import RowPipeline, RowSource
from penstock.engines.local.tasks.chain import ChainedStep
from penstock.engines.local.tasks.source import SourceTask
from penstock.engines.local.tasks.task import Task
from penstock.events import Event, StepStalled
from penstock.frozen import dataclass

LOOKS_PER_LIMIT = 4
"""How often it looks during the time that a quantum may take."""


@dataclass(slots=True)
class Watchdog:
    """Watches the tasks of a run.

    limit_ns  how long a quantum may take before it is reported, in the dispatcher's time
    emit      is called with an event; it may raise, and then the run fails as for any listener
    reported  task -> the quantum of it that was reported last
    """

    dispatcher: Dispatcher
    limit_ns: int
    clock: Clock
    emit: Callable[[Event], None]
    reported: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        """Report every task that has been running for too long, once per quantum."""
        now = self.dispatcher.now()
        for task in self.dispatcher.tasks:
            statistics = task.statistics
            took, quantum = now - statistics.since, statistics.n_quanta
            if (
                statistics.state != RUNNING
                or took < self.limit_ns
                or self.reported.get(task.number) == quantum
            ):
                continue
            busy = _find_busy_step(task, sys._current_frames())
            # Invariant: the stack belongs to this quantum only if no other one has begun since.
            if busy is not None and statistics.n_quanta == quantum:
                self.reported[task.number] = quantum
                self._warn(task, took // 1_000, *busy)

    def _warn(self, task: Task, took_us: int, step: str, stack: list[str]) -> None:
        import logging  # few runs have anything to say

        lines = "".join(f"\n  {line}" for line in stack)
        log = logging.getLogger("penstock")
        log.warning('step "%s" (replica %d) is busy for %.1f s:%s', step, task.replica, took_us / 1e6, lines)
        try:
            self.emit(StepStalled(self.clock.now(), step, task.replica, took_us, tuple(stack)))
        except Exception as failure:  # a listener has failed
            self.dispatcher.record_failure(task, failure)


def _find_busy_step(task: Task, frames: Mapping[int, FrameType]) -> tuple[str, list[str]] | None:
    """Return the step that a task is busy with, and its stack; None if it has ended or waits for input."""
    from penstock.engines.local.processes.worker import Worker, trim_stack

    for innermost in frames.values():
        inside: list[FrameType] = []
        frame: FrameType | None = innermost
        while frame is not None and frame.f_code is not run_task.__code__:
            inside.append(frame)
            frame = frame.f_back
        if frame is None or frame.f_locals.get("task") is not task:
            continue
        codes = {frame.f_code for frame in inside}
        on_row_path = RowSource.run.__code__ in codes  # which reads rows, and processes them too
        processes = codes & {RowPipeline.process.__code__, SourceTask.carry.__code__}
        if SourceReader.next.__code__ in codes or (on_row_path and not processes):
            return None
        steps = [chained.step for chained in map(_chained_step, inside) if chained is not None]
        stack = trim_stack(inside)  # as it was found: a running thread has other frames by the next look
        for inner in inside:
            if inner.f_code is Worker.call.__code__:
                worker: Worker = inner.f_locals["self"]
                stack = [f"in worker process {worker.pid}", *worker.stack()]
        return (steps or task.steps)[0].name, stack
    return None


def _chained_step(frame: FrameType) -> ChainedStep | None:
    """Return the chained step that runs in a frame, if one does."""
    owner = frame.f_locals.get("self")
    if isinstance(owner, RowPipeline) and "at" in frame.f_locals:
        at: int = frame.f_locals["at"]
        return owner.chain[at]
    return owner if isinstance(owner, ChainedStep) else None
