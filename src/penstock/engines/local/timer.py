"""The timer: rounds that the clock asks for while sources wait, and the end of sources that do not end.

A thread that waits for a reader cannot be interrupted. The timer looks at all such threads a few times per
longest wait, and at every deadline. Where a round is due it claims the read and runs the round in its own
thread; the reader's thread goes on behind it. When the run is to stop, a source that still waits is ended
here, and its thread is left behind: it ends by itself when something comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.clock import Clock, WallClock
from penstock.connect.read_claims import WaitingRead
from penstock.engines.local.dispatch import Dispatcher
from penstock.engines.local.metrics.statistics import COMPLETED
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.source import SourceTask

LONGEST_LOOK_S, SHORTEST_LOOK_S = 0.05, 0.001
"""Seconds between two looks: half of how long rows wait by default, and what a core can spare."""
MANUAL_LOOK_S = 0.005
"""Seconds between looks at a clock that is moved by hand."""
GRACE_S = 0.1
"""Seconds after which a source that was told to stop is taken for one that waits."""


class RoundTimer:
    """Acts in place of the threads of sources that wait."""

    def __init__(
        self, tasks: Sequence[SourceTask], dispatcher: Dispatcher, progress: Progress, clock: Clock
    ) -> None:
        self._tasks, self._dispatcher, self._progress, self._clock = list(tasks), dispatcher, progress, clock
        self._changed, self._over = threading.Event(), False
        self._stopping_since: float | None = None

    @contextmanager
    def run(self) -> Iterator[None]:
        """Run the timer beside a block."""
        thread = threading.Thread(target=self._repeat, name="penstock-timer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over = True
            self._changed.set()
            thread.join()

    def wake(self) -> None:
        """Look again at once; any thread may call it."""
        self._changed.set()

    def _repeat(self) -> None:
        while not self._over and self._tasks:
            self._changed.wait(self._look())
            self._changed.clear()

    def _look(self) -> float:
        """Do what is due; return the seconds until the next look."""
        if self._progress.stopping:
            now_s = time.monotonic()
            self._stopping_since = self._stopping_since or now_s
            if now_s - self._stopping_since >= GRACE_S:
                self._tasks = [task for task in self._tasks if not self._end(task)]
            return GRACE_S / 10
        now, soonest = self._clock.now(), None
        for task in self._tasks:
            if task.is_due(now) and task.has_room():
                self._act(task, now)
            at = task.next_look()
            soonest = at if soonest is None or (at is not None and at < soonest) else soonest
        if not isinstance(self._clock, WallClock):
            return MANUAL_LOOK_S
        left = LONGEST_LOOK_S if soonest is None else (soonest - now) / 1e6
        return min(max(left, SHORTEST_LOOK_S), LONGEST_LOOK_S)

    def _act(self, task: SourceTask, now: int) -> None:
        """Run the rounds that are due of a source, if its thread waits."""
        read = _read_of(task)
        if not read.claim():
            return
        with self._hold(task, read):
            # Why not in a run that stops: `_end` knows what else is to be done then, such as to drain.
            if not task.act(now) and not self._progress.stopping:
                self._complete(task, read)

    def _end(self, task: SourceTask) -> bool:
        """End a source that waits; return whether it has ended, here or by itself."""
        if task.statistics.state is COMPLETED:
            return True
        if self._progress.is_draining and task.reader.can_finish:
            task.reader.request_end()  # its thread then reads what is left, and ends
            return False
        # Why: a round that a sink has committed is waited for: nothing else can be written under its number.
        is_again = task.reader.repeats_rows and self._progress.is_draining
        if is_again and task.round < self._progress.n_committed:
            return False
        if task.reader.live_read is None or task.must_read or not _read_of(task).claim():
            return False
        read = _read_of(task)
        with self._hold(task, read):
            task.leave()
            self._complete(task, read)
        return True

    @contextmanager
    def _hold(self, task: SourceTask, read: WaitingRead) -> Iterator[None]:
        """Act in the place of a thread whose read is claimed, and release it; a failure fails the task."""
        try:
            yield
        except BaseException as failure:
            task.abandoned = True
            read.abandon()
            self._dispatcher.fail_task(task, failure)
        finally:
            read.release()

    def _complete(self, task: SourceTask, read: WaitingRead) -> None:
        """End a task whose thread waits, and leave the thread behind."""
        task.abandoned = True
        read.abandon()
        task.complete(failed=False)
        self._dispatcher.suspend(task, COMPLETED)


def _read_of(task: SourceTask) -> WaitingRead:
    read = task.reader.live_read
    assert read is not None, "the source waits"
    return read
