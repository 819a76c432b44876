"""The watchdog: tells of a step that does not come back from its work, and shows where it is.

A node gives way when its turn is over, after the batch at hand at the latest. One that has not for long is
told of once, by name, with the Python stack of its thread, or of its worker process, trimmed to the user's
frames. That is all: a slow function is no error, and the run goes on. Readers may wait for input as long as
they like.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from penstock.clock import Clock
from penstock.engines.local.dispatch import Dispatcher
from penstock.engines.local.node import Node
from penstock.engines.local.pool import run_turn
from penstock.engines.local.processes.stacks import user_stack
from penstock.engines.local.processes.worker import Worker
from penstock.engines.local.seats import Seat
from penstock.engines.local.source_node import ByReader
from penstock.engines.local.statistics import RUNNING
from penstock.events import Event, StepStalled

LOOKS = 4
"""How often it looks in the time that a turn may take."""

_LOG = logging.getLogger("penstock")


class Found(NamedTuple):
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
        for node in self._dispatcher.nodes:
            statistics = node.statistics
            took, turn = now - statistics.since, statistics.turns
            if statistics.state != RUNNING or took < self._limit_ns or self._told.get(node.number) == turn:
                continue
            found = _found(node, sys._current_frames())
            if found is not None and statistics.turns == turn:
                self._told[node.number] = turn
                self._warn(node, took // 1_000, found)

    def _warn(self, node: Node, took_us: int, found: Found) -> None:
        shown = "".join(f"\n  {line}" for line in found.stack)
        busy = took_us / 1e6
        _LOG.warning('step "%s" (replica %d) is busy for %.0f s:%s', found.step, node.replica, busy, shown)
        try:
            self._tell(StepStalled(self._clock.now(), found.step, node.replica, took_us, tuple(found.stack)))
        except Exception as failure:  # who listens has failed
            self._dispatcher.failed(node, failure)


@contextmanager
def watched(
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


def _found(node: Node, frames: Mapping[int, FrameType]) -> Found | None:
    """Where a node's code is; None when it is at no work any more, or waits for input."""
    for innermost in frames.values():
        inside = list(_up_to_turn(innermost))
        turn = inside[-1].f_back if inside else innermost
        if turn is None or turn.f_locals.get("node") is not node:
            continue
        if any(frame.f_code is ByReader.next.__code__ for frame in inside):
            return None
        seats = (frame.f_locals.get("self") for frame in inside)
        steps = [seat.step for seat in seats if isinstance(seat, Seat)]
        return Found((steps or node.steps)[0].name, _shown(innermost, inside))
    return None


def _up_to_turn(innermost: FrameType) -> Iterator[FrameType]:
    """The frames of a turn, innermost first; of a thread that runs no node, all of them."""
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code is not run_turn.__code__:
        yield frame
        frame = frame.f_back


def _shown(innermost: FrameType, inside: list[FrameType]) -> list[str]:
    for frame in inside:
        if frame.f_code is Worker.call.__code__:
            worker: Worker = frame.f_locals["self"]
            return [f"in worker process {worker.pid}", *worker.stack()]
    return user_stack(innermost, {run_turn.__code__})
