"""A run in a thread of its own, the same for all engines: its handle, its end, and what signals do to it.

The thread is a daemon, so it never keeps a process alive. What the run tells of itself is in `run_log.py`.
"""

from __future__ import annotations

import atexit
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import STOP_REQUESTED
from penstock.engines.protocol import Measurements, RunResult
from penstock.engines.run_log import FIRST_LOOK_S, LOGGER, LOOK_S, RunLog, RunStatus, describe_status
from penstock.errors import EngineError
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.local.metrics.statistics import TaskStatistics

GRACE_SECONDS = 5.0
"""How long the rounds in progress may take to end after a signal; a reader that never ends is left behind."""
POLL_SECONDS = 0.2
"""How long it takes at most until a signal is noticed."""
CLAIM_SECONDS = 0.2
"""How long a failed run waits for somebody who takes its error, where no log is set up."""


class BackgroundRun(ABC):
    """A run that executes in its own thread once it has begun."""

    grace_seconds = GRACE_SECONDS

    def __init__(self, plan: Plan, engine: str, clock: Clock) -> None:
        self._plan, self._clock, self._engine, self._log = plan, clock, engine, RunLog(plan)
        self._stopping, self._over = threading.Event(), threading.Event()
        self._drains = False
        self._n_waiting = 0  # those who wait for the end now
        self._claimed = threading.Event()  # somebody has waited to the end, and gets the error
        self._abandoned = False
        self._lock, self._wakes = threading.Lock(), list[Callable[[], None]]()
        self._result: RunResult | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-{engine}", daemon=True)
        self._observer = threading.Timer(FIRST_LOOK_S, self._observe)
        self._observer.name, self._observer.daemon = "penstock-log", True

    @abstractmethod
    def execute(self) -> RunResult:
        """Execute the whole run, from opening to closing."""

    @abstractmethod
    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""

    def watermarks(self) -> Mapping[str, float]:
        """Return the watermark of every source that has a time; infinite before the first and at the end."""
        return {}

    def idle_sources(self) -> frozenset[str]:
        """Return the sources whose watermark is not waited for, because they are silent."""
        return frozenset()

    def begin(self) -> None:
        """Start the thread; a signal before anyone can wait for the run stops it as well."""
        plan = self._plan
        LOGGER.info('run of "%s" started on engine %s: %d steps', plan.graph, self._engine, len(plan.steps))
        try:
            self._thread.start()  # returns when the thread runs, which may be long after rows flow
            self._observer.start()
        except (KeyboardInterrupt, SystemExit):
            self.stop_after_signal()
            raise

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run is over; raise what stopped it, or TimeoutError if it takes longer."""
        thread = threading.current_thread()
        may_work = thread is not threading.main_thread()  # that one never does
        if thread is self._thread or (may_work and self.is_worker(thread)):
            graph = self._plan.graph
            raise EngineError(
                f"a function of the run of {graph} waits for the end of that run, which waits for it",
                hint="call wait() in the thread that started the run; stop() may be called anywhere",
            )
        # Why not join(): interrupted, it would take the thread for ended. And why in short waits: a signal
        # that arrives while a thread is about to wait does not end the wait, since Python only notes it.
        deadline = inf if timeout is None else time.monotonic() + timeout
        try:
            with self._lock:
                self._n_waiting += 1
            try:
                while not self._over.wait(min(POLL_SECONDS, deadline - time.monotonic())):
                    if time.monotonic() >= deadline:
                        raise TimeoutError(f"the run of {self._plan.graph} is not over after {timeout} s")
                self._claimed.set()
            finally:
                with self._lock:
                    self._n_waiting -= 1
        except (KeyboardInterrupt, SystemExit):
            self.stop_after_signal()
            raise
        self._thread.join()
        self._observer.join()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None, "a run that did not fail has a result"
        return self._result

    async def finished(self) -> RunResult:
        """Wait for the end without blocking the event loop; to stop waiting does not stop the run."""
        import asyncio  # for those whose program has it already

        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                loop.call_soon_threadsafe(over.set)

        with self._lock:
            self._n_waiting += 1
            if self._over.is_set():
                over.set()
            else:
                self._wakes.append(wake)
        try:
            await over.wait()
            self._claimed.set()
        finally:
            with self._lock, suppress(ValueError):
                self._n_waiting -= 1
                self._wakes.remove(wake)
        return self.wait()

    def stop(self, *, drain: bool = False) -> None:
        """Ask the run to stop after the rounds in progress; `wait` then returns.

        With `drain` all windows are closed first, as at the end of the sources.
        """
        self._drains = self._drains or drain
        self._stopping.set()

    def status(self) -> RunStatus:
        """Return how the run is doing: its state, rows in and out, watermarks, lag, and its error."""
        state = "stopping" if self._stopping.is_set() else "running"
        if self._over.is_set():
            state = "failed" if self._result is None else self._result.outcome
        now = self._clock.now()
        return describe_status(self._plan, state, self.metrics(), self.watermarks(), now, self._failure)

    def statistics(self) -> Sequence[TaskStatistics]:
        """Return what every task has counted so far; nothing where the engine does not count."""
        return ()

    def measurements(self) -> Measurements | None:
        """Return latencies and where the time went so far, where the engine measures them."""
        return None

    def is_worker(self, thread: threading.Thread) -> bool:
        """Return whether a thread, other than that of the run, does its work."""
        return False

    def abandon(self) -> None:
        """Give up at once, when the grace period after a signal has passed, or another signal has come."""
        return

    def stop_after_signal(self) -> None:
        """Stop, and wait for a while until it is over; give up at once if a stop was asked for before."""
        is_second = self._stopping.is_set()
        self._claimed.set()
        self.stop()
        deadline = time.monotonic() + (0.0 if is_second else self.grace_seconds)
        try:
            while not self._over.wait(POLL_SECONDS) and time.monotonic() < deadline:
                continue
        finally:
            if not self._over.is_set() and not self._abandoned:
                self._abandoned = True
                LOGGER.warning('run of "%s" has not stopped yet: its work is given up', self._plan.graph)
                self.abandon()
        if self._over.is_set():
            self._thread.join()
            if self._observer.is_alive():
                self._observer.join()

    def _run(self) -> None:
        STOP_REQUESTED.set(self._stopping.is_set)  # of this thread
        reports = True
        try:
            result = self._result = self.execute()
            end = f"{result.outcome} after {result.batches:,} batches"
            self._log.report(result.accounts, end=end)
            self._log.report_waiting(result.waiting)
        except BaseException as failure:  # raised again in wait(), in the user's thread
            self._failure = failure
            # Why: without handlers Python prints errors, and who waits for the run is going to show this one.
            reports = LOGGER.hasHandlers()
            if reports:
                self._log.report_failure(failure)
            else:
                atexit.register(self._report_unclaimed)  # the program may end before this thread can
        finally:
            with self._lock:
                self._over.set()
                wakes, self._wakes = self._wakes, []
            self._observer.cancel()
            for wake in wakes:
                wake()
        if not reports:
            # Invariant: who waits claims the failure before it is counted out.
            while not self._claimed.wait(CLAIM_SECONDS) and self._n_waiting:
                continue
            self._report_unclaimed()
            atexit.unregister(self._report_unclaimed)

    def _report_unclaimed(self) -> None:
        """Log the failure, unless somebody gets it or it was logged."""
        with self._lock:
            is_claimed = self._claimed.is_set()
            self._claimed.set()
        if self._failure is not None and not is_claimed:
            self._log.report_failure(self._failure)

    def _observe(self) -> None:
        """Warn, now and then, of what the run has dropped."""
        is_over = self._over.is_set()
        while not is_over:
            with suppress(RuntimeError):  # counts that changed while they were copied: the next look has them
                self._log.report(self.metrics(), self.idle_sources())
            is_over = self._over.wait(LOOK_S)
