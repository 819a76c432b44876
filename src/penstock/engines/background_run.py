"""A run in a thread of its own: who waits for it gets its result, or what stopped it, in his own thread.

The thread is a daemon, so it never keeps a process alive.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from penstock.engines.protocol import RunResult
from penstock.errors import EngineError

PATIENCE = 5.0
"""Seconds to let the rounds at hand end after Ctrl-C; a reader that never gives up is left to the process."""


LOOK = 0.2
"""Seconds until Ctrl-C is seen at the latest."""


class BackgroundRun(ABC):
    """A run under way, once it is begun."""

    patience = PATIENCE

    def __init__(self, graph: str, engine: str) -> None:
        self._graph = graph
        self._stopping, self._over = threading.Event(), threading.Event()
        self._result: RunResult | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-{engine}", daemon=True)

    @abstractmethod
    def execute(self) -> RunResult:
        """All of the run, from opening to closing."""

    def begin(self) -> None:
        """Let it go; Ctrl-C before anyone can wait for it stops it as well."""
        try:
            self._thread.start()  # returns when the thread runs, which may be long after rows flow
        except KeyboardInterrupt:
            self._stop_after_interrupt()
            raise

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run is over; raises what stopped it, TimeoutError if it takes longer."""
        if self.is_worker(threading.current_thread()):
            raise EngineError(
                f"a function of the run of {self._graph} waits for the end of that run, which waits for it",
                hint="call wait() in the thread that started the run; stop() may be called anywhere",
            )
        try:
            over = self._wait_until_over(timeout)  # join(), interrupted, would take the thread for ended
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
        """Ask the run to stop after the rounds at hand; `wait` then returns."""
        self._stopping.set()

    def is_worker(self, thread: threading.Thread) -> bool:
        """Whether a thread does the work of the run."""
        return thread is self._thread

    def abandon(self) -> None:
        """Leave at once, after Ctrl-C and some patience; nothing is waited for any more."""
        return

    def _wait_until_over(self, timeout: float | None) -> bool:
        """Whether the run is over in time.

        A signal that comes while a thread is on its way into a wait does not end it: Python only notes it
        then. So no wait is long.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._over.wait(LOOK if until is None else min(LOOK, until - time.monotonic())):
            if until is not None and time.monotonic() >= until:
                return False
        return True

    def _stop_after_interrupt(self) -> None:
        self.stop()
        if self._over.wait(self.patience):
            self._thread.join()
        self.abandon()

    def _run(self) -> None:
        try:
            self._result = self.execute()
        except BaseException as failure:  # raised again in wait(), in the user's thread
            self._failure = failure
        finally:
            self._over.set()
