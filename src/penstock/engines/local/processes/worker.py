"""A worker process, as the program sees it: forked, asked, ended.

Whoever waits for an answer also waits for the process itself, so a worker that dies is noticed at once,
and the error says how it died.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Pipe, wait
from typing import Any

from penstock.engines.local.processes.serve import FAILED, HostedStep, flush, serve
from penstock.engines.local.processes.transport import Connection, Message, SharedBuffer
from penstock.errors import EngineError
from penstock.plan.plan import Step

END_TIMEOUT = 1.0
"""Seconds for a worker to end by itself when the program hangs up."""
DEATH_TIMEOUT = 10.0
"""Seconds for a worker to end that has hung up itself: it may have much memory to dump or to free."""
STACK_TIMEOUT = 5.0
"""Seconds for a worker to answer where it is."""
_POLL = 0.001
_UNKNOWN = -1
"""Exit status of a worker when nobody can tell."""


class Worker:
    """One process for one replica of the steps that it hosts.

    before  workers that exist already: the new process closes the program's ends of their connections
    """

    def __init__(self, hosted: Sequence[HostedStep], *, before: Sequence[Worker] = ()) -> None:
        self.steps = tuple(hosted_step.step for hosted_step in hosted)
        self._lock = threading.Lock()
        self._status: int | None = None
        ours, theirs = Pipe()
        self._side, their_side = Pipe()
        requests, replies = SharedBuffer(), SharedBuffer()
        self._connection = Connection(ours, write=requests, read=replies)
        try:
            self.pid = _fork()
        except OSError:
            self._connection.close()
            self._side.close()
            raise
        else:
            if not self.pid:
                code = FAILED
                try:
                    for worker in before:
                        worker.hang_up()
                    ours.close()
                    self._side.close()
                    serve(Connection(theirs, write=replies, read=requests), their_side, hosted)
                    code = 0
                finally:
                    flush()
                    os._exit(code)
        finally:
            theirs.close()
            their_side.close()
        self._gone = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None

    def call(
        self, step: Step, message: Mapping[str, Any], bodies: Sequence[Any] = ()
    ) -> tuple[Message, list[bytes]]:
        """Send a message and wait for the reply; raise EngineError if the process is gone."""
        try:
            self._connection.send(message, bodies)
            pipe = self._connection.pipe
            if self._gone is not None and pipe not in wait([pipe, self._gone]):
                raise EOFError("the worker has ended")
            return self._connection.receive()
        except (EOFError, OSError):
            raise self._death_error(step) from None

    def stack(self) -> list[str]:
        """Return where its Python code is; empty if it does not answer."""
        try:
            while self._side.poll():
                self._side.recv_bytes()  # an answer that came too late
            self._side.send_bytes(b"?")
            answered = self._side.poll(STACK_TIMEOUT)
            return self._side.recv_bytes().decode().splitlines() if answered else []
        except (EOFError, OSError):
            return []

    def kill(self, after: float = 0.0) -> None:
        """Kill the process, unless it ends by itself within so many seconds.

        Whoever waits for a reply sees that it died.
        """
        until = time.monotonic() + after
        with self._lock:
            while self._status is None and not self._reap(os.WNOHANG) and time.monotonic() < until:
                time.sleep(_POLL)
            if self._status is None:
                with suppress(ProcessLookupError):
                    if self._gone is None:
                        os.kill(self.pid, signal.SIGKILL)
                    else:
                        signal.pidfd_send_signal(self._gone, signal.SIGKILL)
                self._reap()

    def hang_up(self) -> None:
        """Let the process end by itself; nobody may be waiting for a reply."""
        self._side.close()
        self._connection.close()

    def end(self) -> None:
        """Hang up, and wait until the process is gone."""
        self.hang_up()
        self.kill(after=END_TIMEOUT)
        if self._gone is not None:
            os.close(self._gone)

    def _death_error(self, step: Step) -> EngineError:
        self.kill(after=DEATH_TIMEOUT)  # if it hung up and lives on, nobody would talk to it again
        end = "ended"
        if self._status is not None and self._status != _UNKNOWN:
            code = os.waitstatus_to_exitcode(self._status)
            names = {int(known): f" ({known.name})" for known in signal.Signals}
            killed = f"was killed by signal {-code}{names.get(-code, '')}"
            end = f"ended with exit code {code}" if code >= 0 else killed
        return EngineError(
            f"a worker process {end}",
            step=step.name,
            where=step.where,
            detail="the rows that it was working on are not done",
            hint="look for os._exit, a crash in native code, or too little memory; "
            'ps.LocalOptions(workers="thread") runs the functions in this process',
        )

    def _reap(self, options: int = 0) -> bool:
        """Note how the process ended, so that no zombie stays; return False if it has not."""
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:  # somebody else in the program waits for all children
            pid, status = self.pid, _UNKNOWN
        if pid:
            self._status = status
        return bool(pid)


def _fork() -> int:
    flush()  # Why: output that waits in a buffer would be printed twice
    # Why: a signal before the copy has set its own handlers would raise there as in the program.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with warnings.catch_warnings():
            # Newer Pythons warn if there are other threads; a worker only runs what it is given.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then hangs up
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
