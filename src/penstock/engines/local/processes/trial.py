"""Threads first, then processes if that pays: measured on the batches that come.

Processor time of the thread is what counts, because a function that waits scales on threads. The way to a
worker and back is measured with the same batch. Whichever replica finds out first decides for all of them;
both ways give the same rows, so nobody can tell from the results.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from penstock.engines.local.processes.stage import RemoteWork
from penstock.stages.batch import Batch
from penstock.stages.stateless import Out, Stateless

TRIED = 3
"""Batches that must all take long."""
ENOUGH = 4
"""A batch must take so many times as long as the way there and back."""
LEAST_WAY_NS = 200_000
"""What the way costs at least, so that it need not be measured for small batches."""


class Choice:
    """Threads or processes, for all replicas of a step.

    tell         called once, with the reason, when processes are chosen
    timers       processor time of this thread, and time: nanoseconds
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        *,
        worked_ns: Callable[[], int] = time.thread_time_ns,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._tell, self.worked_ns, self.now_ns = tell, worked_ns, now_ns
        self.processes = False
        self._lock = threading.Lock()
        self._recent: deque[int] = deque(maxlen=TRIED)
        self._way_ns = LEAST_WAY_NS

    def note(self, took_ns: int, way: Callable[[], None]) -> None:
        """A batch took so long in a thread; `way` goes to the worker and back with it."""
        self._recent.append(took_ns)
        if len(self._recent) < TRIED or min(self._recent) < ENOUGH * self._way_ns:
            return
        way()  # the first time the worker gets ready
        before = self.now_ns()
        way()
        self._way_ns = max(LEAST_WAY_NS, self.now_ns() - before)
        if min(self._recent) >= ENOUGH * self._way_ns:
            self._choose(min(self._recent))

    def _choose(self, took_ns: int) -> None:
        with self._lock:
            first, self.processes = not self.processes, True
        if first:
            took, way = took_ns / 1e6, self._way_ns / 1e6
            self._tell(
                f"processes: a batch takes {took:.1f} ms of plain Python, the way there and back {way:.1f} ms"
            )


class TriedWork(Stateless):
    """One replica: here until the choice falls on processes."""

    def __init__(self, here: Stateless, there: RemoteWork, choice: Choice) -> None:
        super().__init__(here.up, here.site)
        self._here, self._there, self._choice = here, there, choice

    def made(self, batch: Batch) -> Out:
        """What the rows become, here or there."""
        return self._there.made(batch) if self._choice.processes else self._measured(batch)

    def _measured(self, batch: Batch) -> Out:
        worked_ns = self._choice.worked_ns
        before = worked_ns()
        given = list(self._here.made(batch))
        self._choice.note(worked_ns() - before, lambda: self._there.echo(batch))
        return iter(given)

    def explain(self) -> list[str]:
        """As it is done here, at first."""
        return self._here.explain()
