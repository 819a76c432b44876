"""A worker process, from both sides: as the program forks, asks and ends it, and its own main loop.

Between them go short messages over a pipe, and long bodies in shared memory. A shared buffer is an anonymous
file in memory, mapped by both processes. It is created before the fork and has no name, so nothing is left
behind, whoever dies. No pickle: messages are JSON, bodies are Arrow or bytes of saved state.

Invariant: whoever has sent a message waits for the reply before it sends again, so a buffer is never written
while the other side reads it. Nothing else protects it.

Whoever waits for an answer also waits for the process itself, so a worker that dies is noticed at once,
and the error says how it died.

The process begins as a copy of the whole program, in the middle of a call, and never returns from there: it
ends with `os._exit`, so nothing that the program does at its end is done twice. It ends when the program
hangs up or dies, even if a function never returns: a thread of its own waits for that, and answers where the
function is when asked.
"""

from __future__ import annotations

import gc
import json
import linecache
import mmap
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from multiprocessing.connection import Connection as PipeEnd
from multiprocessing.connection import Pipe, wait
from types import FrameType
from typing import Any

import numpy as np

from penstock.accounts import Accounts
from penstock.caller import is_ours
from penstock.clock import Clock
from penstock.engines.wire import failure_to_dict, pack_batch, unpack_batch
from penstock.errors import EngineError
from penstock.frozen import dataclass
from penstock.plan.plan import Step
from penstock.stages.build import build_stage
from penstock.stages.stage import StageContext

END_TIMEOUT = 1.0
"""Seconds for a worker to end by itself when the program hangs up."""
DEATH_TIMEOUT = 10.0
"""Seconds for a worker to end that has hung up itself: it may have much memory to dump or to free."""
STACK_TIMEOUT = 5.0
"""Seconds for a worker to answer where it is."""
_POLL = 0.001
_UNKNOWN = -1
"""Exit status of a worker when nobody can tell."""
N_FRAMES = 3
"""Frames to show where none is the user's."""
FAILED = 70
"""Exit code of a worker process that failed by itself."""
MIN_NBYTES = 1 << 16
"""Initial size of a buffer; it doubles until what is put in fits."""
Message = dict[str, Any]


class SharedBuffer:
    """Bytes for the other process."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("penstock")
        else:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
        self._map = mmap.mmap(self._file, _allocate(self._file, MIN_NBYTES))

    @property
    def nbytes(self) -> int:
        """Return the size of the buffer, as far as this side knows."""
        return len(self._map)

    def put(self, bodies: Sequence[Any]) -> list[int]:
        """Copy bodies in, one after the other; return their sizes."""
        sizes = [memoryview(body).nbytes for body in bodies]
        if sum(sizes) > len(self._map):
            self._grow(sum(sizes))
        at = 0
        for body, size in zip(bodies, sizes, strict=True):
            self._map[at : at + size] = body
            at += size
        return sizes

    def take(self, sizes: Sequence[int]) -> list[bytes]:
        """Return copies of the bodies that the other side put in."""
        if sum(sizes) > len(self._map):
            self._remap(os.fstat(self._file).st_size)
        bodies, at = [], 0
        for size in sizes:
            bodies.append(self._map[at : at + size])
            at += size
        return bodies

    def close(self) -> None:
        """Free the buffer on this side."""
        if not self._map.closed:
            self._map.close()
            os.close(self._file)

    def _grow(self, wanted: int) -> None:
        size = len(self._map)
        while size < wanted:
            size *= 2
        try:
            self._remap(_allocate(self._file, size))
        except OSError as cause:
            raise EngineError(
                f"there is no memory for {wanted} bytes on their way between processes",
                detail=str(cause),
                hint='read smaller batches, or run with ps.LocalOptions(workers="thread")',
            ) from cause

    def _remap(self, size: int) -> None:
        before, self._map = self._map, mmap.mmap(self._file, size)
        before.close()


def _allocate(file: int, size: int) -> int:
    """Give a file its size, and return the size."""
    if hasattr(os, "posix_fallocate"):
        # Why: writing to a file without memory behind it would kill the process.
        os.posix_fallocate(file, 0, size)
    else:
        os.ftruncate(file, size)
    return size


class Connection:
    """One end of a connection; this side writes the buffer `write`, and the other side `read`."""

    def __init__(self, pipe: PipeEnd, *, write: SharedBuffer, read: SharedBuffer) -> None:
        self.pipe, self._write, self._read = pipe, write, read

    def send(self, message: Mapping[str, Any], bodies: Sequence[Any] = ()) -> None:
        """Send a message and its bodies."""
        sizes = self._write.put(bodies)
        self.pipe.send_bytes(json.dumps({**message, "sizes": sizes}).encode())

    def receive(self) -> tuple[Message, list[bytes]]:
        """Return what the other side sent; raise EOFError when it is gone."""
        message: Message = json.loads(self.pipe.recv_bytes())
        return message, self._read.take(message.pop("sizes"))

    def close(self) -> None:
        """Hang up."""
        self.pipe.close()
        self._write.close()
        self._read.close()


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


@dataclass(slots=True)
class HostedStep:
    """A step in a worker process, with a stage and accounts of its own."""

    step: Step
    clock: Clock
    read: frozenset[str]
    accounts: Accounts = field(default_factory=Accounts)
    stage: Any = None

    def reset(self) -> None:
        """Build a new stage, with no state and empty accounts."""
        self.accounts = Accounts()
        step = self.step
        site = StageContext(step.name, step.where, self.accounts, self.clock, self.read, history=step.history)
        self.stage = build_stage(self.step.op, self.step.up, site)


def serve(connection: Connection, side: PipeEnd, hosted: Sequence[HostedStep]) -> None:
    """Answer calls until the program hangs up."""
    # Leave alone what belongs to the program: objects waiting for collection, its event loop, its random
    # numbers.
    gc.freeze()
    signal.set_wakeup_fd(-1)
    np.random.seed()
    threading.Thread(target=_answer_stack, args=(side, threading.get_ident()), daemon=True).start()
    while True:
        try:
            message, bodies = connection.receive()
        except (EOFError, OSError):
            return
        reply, results = _answer(hosted[message["index"]], message, bodies)
        flush()
        try:
            connection.send(reply, results)
        except EngineError as failure:  # there is no memory for the results
            connection.send({"failure": failure_to_dict(failure)})


def flush() -> None:
    """Write out what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _answer(host: HostedStep, message: Message, bodies: Sequence[bytes]) -> tuple[Message, list[Any]]:
    """Call a stage and return the reply and its results; those from before a failure count too."""
    ports: list[str] = []
    results: list[Any] = []
    reply: Message = {"ports": ports}
    call = message["call"]
    try:
        if message["fresh"]:
            host.reset()
        if call == "snapshot":
            saved = host.stage.snapshot()
            reply["buckets"] = list(saved)
            results.extend(saved.values())
        elif call == "restore":
            host.stage.restore(dict(zip(message["buckets"], bodies, strict=True)))
        else:
            arguments: list[Any] = [unpack_batch(body, host.step.up.schema) for body in bodies]
            if message["watermark"] is not None:
                arguments.append(message["watermark"])
            outputs = [("", *arguments)] if call == "echo" else getattr(host.stage, call)(*arguments)
            for port, rows in outputs:
                results.append(pack_batch(rows))
                ports.append(port)
    except BaseException as failure:
        reply["failure"] = failure_to_dict(failure)
    counts = asdict(host.accounts.take())
    reply["counted"] = {name: count for name, count in counts.items() if count}
    return reply, results


def _answer_stack(side: PipeEnd, working: int) -> None:
    """Answer with the stack of the working thread when asked; end the process when the program is gone."""
    with suppress(EOFError, OSError):
        while side.recv_bytes():
            frames: list[FrameType] = []
            frame = sys._current_frames().get(working)
            while frame is not None and frame.f_code is not _answer.__code__:
                frames.append(frame)
                frame = frame.f_back
            side.send_bytes("\n".join(trim_stack(frames)).encode())
    os._exit(0)


def trim_stack(frames: Sequence[FrameType]) -> list[str]:
    """Return frames (innermost first) as lines (outermost first): the user's, or our last if none is."""
    users = [frame for frame in frames if not is_ours(frame.f_code.co_filename)]
    lines = []
    for frame in reversed(users or frames[:N_FRAMES]):
        code = frame.f_code
        text = linecache.getline(code.co_filename, frame.f_lineno).strip()
        place = f"{code.co_filename}:{frame.f_lineno}, in {code.co_qualname}"
        lines.append(f"{place}: {text}" if text else place)
    return lines
