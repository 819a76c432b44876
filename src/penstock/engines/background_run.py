"""A run in a background thread: `wait` returns its result, or raises what stopped it, in the caller's thread.

The thread is a daemon, so it never keeps a process alive.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from penstock.engines.protocol import RunResult
from penstock.errors import EngineError

GRACE_SECONDS = 5.0
"""How long the rounds in progress may take to end after Ctrl-C; a reader that never ends is left behind."""
POLL_SECONDS = 0.2
"""How long it takes at most until Ctrl-C is noticed."""


class BackgroundRun(ABC):
    """A run that executes in its own thread once it has begun."""

    grace_seconds = GRACE_SECONDS

    def __init__(self, graph: str, engine: str) -> None:
        self._graph = graph
        self._stopping, self._over = threading.Event(), threading.Event()
        self._result: RunResult | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-{engine}", daemon=True)

    @abstractmethod
    def execute(self) -> RunResult:
        """Execute the whole run, from opening to closing."""

    def begin(self) -> None:
        """Start the thread; Ctrl-C before anyone can wait for the run stops it as well."""
        try:
            self._thread.start()  # returns when the thread runs, which may be long after rows flow
        except KeyboardInterrupt:
            self._stop_after_interrupt()
            raise

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run is over; raise what stopped it, or TimeoutError if it takes longer."""
        if self.is_worker(threading.current_thread()):
            raise EngineError(
                f"a function of the run of {self._graph} waits for the end of that run, which waits for it",
                hint="call wait() in the thread that started the run; stop() may be called anywhere",
            )
        try:
            over = self._wait_until_over(timeout)
        except KeyboardInterrupt:
            self._stop_after_interrupt()
            raise
        if not over:
            raise TimeoutError(f"the run of {self._graph} is not over after {timeout} s")
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None, "a run that did not fail has a result"
        return self._result

    def stop(self) -> None:
        """Ask the run to stop after the rounds in progress; `wait` then returns."""
        self._stopping.set()

    def is_worker(self, thread: threading.Thread) -> bool:
        """Return whether a thread does the work of the run."""
        return thread is self._thread

    def abandon(self) -> None:
        """Give up at once, when the grace period after Ctrl-C has passed."""
        return

    def _wait_until_over(self, timeout: float | None) -> bool:
        """Return whether the run is over in time.

        Why not join(): interrupted, it would take the thread for ended. And why in short waits: a signal that
        arrives while a thread is about to wait does not end the wait, since Python only notes it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._over.wait(
            POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
        ):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def _stop_after_interrupt(self) -> None:
        self.stop()
        if self._over.wait(self.grace_seconds):
            self._thread.join()
        self.abandon()

    def _run(self) -> None:
        try:
            self._result = self.execute()
        except BaseException as failure:  # raised again in wait(), in the user's thread
            self._failure = failure
        finally:
            self._over.set()
