"""Where a thread is: its Python stack, trimmed to what the user wrote or called."""

from __future__ import annotations

import gc
import linecache
import os
import signal
import socket
import sys
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from types import CodeType, FrameType
from typing import Any

import numpy as np

from penstock.accounts import Accounts
from penstock.caller import is_ours
from penstock.clock import Clock
from penstock.engines.local.processes.transport import Connection, Message, send_framed
from penstock.engines.wire import failure_to_dict, pack_batch, unpack_batch
from penstock.errors import EngineError
from penstock.frozen import dataclass
from penstock.plan.plan import Step
from penstock.stages.make import build_stage
from penstock.stages.stage import Site, Stage

LAST = 3
"""Frames to show where none is the user's."""


def user_stack(frame: FrameType | None, below: Container[CodeType]) -> list[str]:
    """The frames inside the innermost call of `below`, outermost first, without ours between them."""
    frames: list[FrameType] = []
    while frame is not None and frame.f_code not in below:
        frames.append(frame)
        frame = frame.f_back
    return trim_stack(frames)


def trim_stack(frames: Sequence[FrameType]) -> list[str]:
    """Frames, innermost first, as lines, outermost first: the user's, or our last ones if none is."""
    theirs = [each for each in frames if not is_ours(each.f_code.co_filename)]
    return [_line(each) for each in reversed(theirs or frames[:LAST])]


def _line(frame: FrameType) -> str:
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    place = f"{code.co_filename}:{frame.f_lineno}, in {code.co_qualname}"
    return f"{place}: {text}" if text else place


# What a worker process does: it hands what it is sent to its stages, and sends back what they give.
#
# It begins as a copy of the whole program, in the middle of a call, and never returns from there: it ends
# with `os._exit`, so nothing that the program would do at its end is done twice. It ends when the program
# hangs up or dies, even if a function never returns: a thread of its own waits for that, and tells where
# the function is when it is asked.

WENT_WRONG = 70
"""Exit code of a worker that failed by itself."""


@dataclass(slots=True)
class HostedStep:
    """A step in a worker process, with a stage and accounts of this process's own."""

    step: Step
    clock: Clock
    read: frozenset[str]
    accounts: Accounts = field(default_factory=Accounts)
    stage: Any = None

    def begin(self) -> None:
        """A new stage, which knows nothing of the one before."""
        self.accounts = Accounts()
        site = Site(self.step.name, self.step.where, self.accounts, self.clock, self.read)
        self.stage = build_stage(self.step, site)

    def counted(self) -> dict[str, Any]:
        """What was counted since the last time."""
        return {name: value for name, value in asdict(self.accounts.take()).items() if value}


@contextmanager
def exit_when_done() -> Iterator[None]:
    """The process ends with what is inside, whatever happens there."""
    code = WENT_WRONG
    try:
        yield
        code = 0
    finally:
        flush()
        os._exit(code)


def serve(line: Connection, side: socket.socket, hosted: Sequence[HostedStep]) -> None:
    """Answer until the program hangs up."""
    _settle_in()
    threading.Thread(target=_beside, args=(side, threading.get_ident()), daemon=True).start()
    while True:
        try:
            message, bodies = line.receive()
        except (EOFError, OSError):
            return
        _answer_one(line, hosted[message["seat"]], message, bodies)


def flush() -> None:
    """Write out what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _settle_in() -> None:
    """Leave alone what belongs to the program: its event loop, and objects that wait to be thrown away."""
    gc.freeze()
    signal.set_wakeup_fd(-1)
    np.random.seed()  # the program's own generator, which all copies would draw alike from


def _answer_one(line: Connection, host: HostedStep, message: Message, bodies: Sequence[bytes]) -> None:
    told, given = _answer(host, message, bodies)
    flush()
    try:
        line.send(told, given)
    except EngineError as failure:  # there is no memory for what came out
        line.send({"failure": failure_to_dict(failure)})


def _answer(host: HostedStep, message: Message, bodies: Sequence[bytes]) -> tuple[Message, list[Any]]:
    """What a stage makes of a message; what it gave before it failed is given too."""
    ports: list[str] = []
    given: list[Any] = []
    told: Message = {"ports": ports}
    try:
        if message["fresh"]:
            host.begin()
        if message["call"] == "snapshot":
            saved = host.stage.snapshot()
            told["buckets"] = list(saved)
            given.extend(saved.values())
        elif message["call"] == "restore":
            host.stage.restore(dict(zip(message["buckets"], bodies, strict=True)))
        else:
            for port, rows in _given(host, host.stage, message, bodies):
                given.append(pack_batch(rows))
                ports.append(port)
    except BaseException as failure:
        told["failure"] = failure_to_dict(failure)
    told["counted"] = {} if host.stage is None else host.counted()
    return told, given


def _given(host: HostedStep, stage: Stage, message: Mapping[str, Any], bodies: Sequence[bytes]) -> Any:
    if message["call"] == "drain":
        return stage.drain()
    if message["call"] == "on_watermark":
        return stage.on_watermark(message["watermark"])
    batch = unpack_batch(bodies[0], host.step.up.schema)
    if message["call"] == "echo":
        return [("", batch)]
    if message["call"] == "made":
        return stage.made(batch)  # type: ignore[attr-defined]  # only asked of a stage without state
    return stage.on_batch(batch, message["watermark"])


def _beside(side: socket.socket, working: int) -> None:
    """Tell where the work is when asked; end the process when the program is gone."""
    with suppress(OSError):
        while side.recv(1):
            told = user_stack(sys._current_frames().get(working), {_given.__code__, _answer.__code__})
            send_framed(side, "\n".join(told).encode())
    os._exit(0)
