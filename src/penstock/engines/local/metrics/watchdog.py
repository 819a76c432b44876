"""The watchdog: tells of a step that does not come back from its work, and shows where it is.

A node gives way when its turn is over, after the batch at hand at the latest. One that has not for long is
told of once, by name, with the Python stack of its thread, or of its worker process, trimmed to the user's
frames. That is all: a slow function is no error, and the run goes on. Readers may wait for input as long as
they like.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from penstock.clock import Clock
from penstock.engines.local.fast_rows.pipeline import RowPipeline
from penstock.engines.local.metrics.statistics import RUNNING
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.scheduling.pool import run_task
from penstock.engines.local.tasks.chain import ChainedStep, StatelessStep
from penstock.engines.local.tasks.source import SourceTask
from penstock.engines.local.tasks.task import Task
from penstock.engines.sources import SourceReader

if TYPE_CHECKING:
    from penstock.events import Event

LOOKS = 4
"""How often it looks in the time that a turn may take."""


class BusyStep(NamedTuple):
    """Which of a node's steps is at work, and where its Python code is."""

    step: str
    stack: list[str]


class Watchdog:
    """Looks at the nodes of a run.

    limit_ns  how long a node may take before it is told of, in the dispatcher's time
    tell      who is told; it may raise, and then the run fails as for any listener
    """

    def __init__(
        self, dispatcher: Dispatcher, limit_ns: int, *, clock: Clock, tell: Callable[[Event], None]
    ) -> None:
        self._dispatcher, self._limit_ns, self._clock, self._tell = dispatcher, limit_ns, clock, tell
        self._told: dict[int, int] = {}

    def look(self) -> None:
        """Tell of every node that has been at work for too long, once per turn."""
        now = self._dispatcher.now()
        for node in self._dispatcher.tasks:
            statistics = node.statistics
            took, turn = now - statistics.since, statistics.n_quanta
            if statistics.state != RUNNING or took < self._limit_ns or self._told.get(node.number) == turn:
                continue
            found = _found(node, sys._current_frames())
            if found is not None and statistics.n_quanta == turn:
                self._told[node.number] = turn
                self._warn(node, took // 1_000, found)

    def _warn(self, node: Task, took_us: int, found: BusyStep) -> None:
        import logging  # few runs have anything to say

        from penstock.events import StepStalled

        shown = "".join(f"\n  {line}" for line in found.stack)
        busy = took_us / 1e6
        log = logging.getLogger("penstock")
        log.warning('step "%s" (replica %d) is busy for %.1f s:%s', found.step, node.replica, busy, shown)
        try:
            self._tell(StepStalled(self._clock.now(), found.step, node.replica, took_us, tuple(found.stack)))
        except Exception as failure:  # who listens has failed
            self._dispatcher.record_failure(node, failure)


@contextmanager
def run_watchdog(
    dispatcher: Dispatcher, limit_us: int | None, *, clock: Clock, tell: Callable[[Event], None]
) -> Iterator[None]:
    """A watchdog beside what happens inside; None is none."""
    if limit_us is None:
        yield
        return
    dog, over = Watchdog(dispatcher, limit_us * 1_000, clock=clock, tell=tell), threading.Event()

    def watch() -> None:
        while not over.wait(limit_us / 1e6 / LOOKS):
            dog.look()

    thread = threading.Thread(target=watch, name="penstock-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _found(node: Task, frames: Mapping[int, FrameType]) -> BusyStep | None:
    """Where a node's code is; None when it is at no work any more, or waits for input."""
    for innermost in frames.values():
        inside = list(_up_to_turn(innermost))
        turn = inside[-1].f_back if inside else innermost
        if turn is None or turn.f_locals.get("node") is not node:
            continue
        if _is_reading(inside):
            return None
        steps = [chained.step for chained in map(_seat, inside) if chained is not None]
        return BusyStep((steps or node.steps)[0].name, _shown(inside))
    return None


def _is_reading(inside: list[FrameType]) -> bool:
    """Whether a source waits for its reader."""
    codes = {frame.f_code for frame in inside}
    by_row = SourceTask._by_row.__code__ in codes  # which reads, and carries what it has read
    carried = codes & {RowPipeline.carry.__code__, SourceTask._carry.__code__}
    return SourceReader.next.__code__ in codes or (by_row and not carried)


def _seat(frame: FrameType) -> ChainedStep | None:
    """The chained that is at work in a frame, if one is."""
    found = frame.f_locals.get("self")
    if isinstance(found, RowPipeline) and "at" in frame.f_locals:
        at: int = frame.f_locals["at"]
        return found.chain[at]
    if frame.f_code is StatelessStep.feed.__code__:
        found = frame.f_locals["self"].run[frame.f_locals.get("at", 0)]
    return found if isinstance(found, ChainedStep) else None


def _up_to_turn(innermost: FrameType) -> Iterator[FrameType]:
    """The frames of a turn, innermost first; of a thread that runs no node, all of them."""
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code is not run_task.__code__:
        yield frame
        frame = frame.f_back


def _shown(inside: list[FrameType]) -> list[str]:
    """The frames as they were found: a thread at work has others by the time it is looked at again."""
    from penstock.engines.local.processes.serve import trim_stack
    from penstock.engines.local.processes.worker import Worker

    for frame in inside:
        if frame.f_code is Worker.call.__code__:
            worker: Worker = frame.f_locals["self"]
            return [f"in worker process {worker.pid}", *worker.stack()]
    return trim_stack(inside)
