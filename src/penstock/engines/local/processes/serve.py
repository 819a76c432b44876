"""The main loop of a worker process: calls its stages with what it is sent, and sends back their results.

The process begins as a copy of the whole program, in the middle of a call, and never returns from there: it
ends with `os._exit`, so nothing that the program does at its end is done twice. It ends when the program
hangs up or dies, even if a function never returns: a thread of its own waits for that, and answers where the
function is when asked.
"""

from __future__ import annotations

import gc
import linecache
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, field
from multiprocessing.connection import Connection as PipeEnd
from types import FrameType
from typing import Any

import numpy as np

from penstock.accounts import Accounts
from penstock.caller import is_ours
from penstock.clock import Clock
from penstock.engines.local.processes.transport import Connection, Message
from penstock.engines.wire import failure_to_dict, pack_batch, unpack_batch
from penstock.errors import EngineError
from penstock.frozen import dataclass
from penstock.plan.plan import Step
from penstock.stages.build import build_stage
from penstock.stages.stage import StageContext

N_FRAMES = 3
"""Frames to show where none is the user's."""


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


FAILED = 70
"""Exit code of a worker process that failed by itself."""


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
        site = StageContext(self.step.name, self.step.where, self.accounts, self.clock, self.read)
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
