"""Waiting for sources that do not end by themselves, and for the clock.

A round takes a batch of every source. One that is silent is waited for, but not for ever: the others go on
beside it. And where idle sources or early results are asked for, a round without rows is due when the clock
says so, once for every such moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.clock import Clock
from penstock.engines.reading import Reading
from penstock.engines.spark.waiting import WaitingReading
from penstock.operators.source import Source
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan

OTHERS = 0.1
"""Seconds that rows of one source wait for those of another."""
_LOOK = 0.02
"""Seconds between looks at the clock."""


class Patience:
    """Knows when a round is due. `stopping` ends the waiting."""

    def __init__(
        self, plan: Plan, readings: Sequence[Reading], clock: Clock, stopping: threading.Event
    ) -> None:
        self._readings, self._clock, self._stopping = readings, clock, stopping
        self._slow = [reading for reading in readings if isinstance(reading, WaitingReading)]
        self._came = threading.Condition()
        windows = [step.op.resolved(step.up) for step in plan if isinstance(step.op, Windows)]
        self._early = min((each.early for each in windows if each.early is not None), default=None)
        times = {step.name: step.op.resolved() for step in plan if isinstance(step.op, Source)}
        self._idle = {name: at.idle for name, at in times.items() if at is not None and at.idle is not None}
        clocked = [at for at in times.values() if at is not None and (at.column is None or at.max_future)]
        self.timely = bool(self._slow or self._idle or clocked)
        self._due: dict[str, int] = {}

    def now(self) -> int:
        """The time now."""
        return self._clock.now()

    def begin(self) -> None:
        """Have slow sources read."""
        for reading in self._slow:
            reading.begin(self._came)
        self.went(self.now(), self._idle, ())

    def went(self, now: int, came: Collection[str] | Mapping[str, Any], idle: Collection[str]) -> None:
        """A round went by with batches of these sources: when the next is due though nothing comes."""
        self._due = {what: at for what, at in self._due.items() if at > now}
        if came and self._early is not None:
            self._due["early results"] = now + self._early
        for name, after in self._idle.items():
            if name in came:
                self._due[name] = now + after
            elif name in idle:
                self._due.pop(name, None)

    def awaited(self) -> list[str] | None:
        """The sources to take a batch from now; none of them for a round that the clock asks for. None when
        the run is to stop.
        """
        waited_since: float | None = None
        while any(reading.silent for reading in self._slow):
            if self._stopping.is_set():
                return None
            if any(at <= self.now() for at in self._due.values()):
                break
            if self._some_came():
                waited_since = waited_since or time.monotonic()
                if time.monotonic() - waited_since >= OTHERS:
                    break
            with self._came:
                self._came.wait(_LOOK)
        silent = {reading.step.name for reading in self._slow if reading.silent}
        return [reading.step.name for reading in self._readings if reading.step.name not in silent]

    def _some_came(self) -> bool:
        here = (each for each in self._readings if not isinstance(each, WaitingReading) or not each.silent)
        return any(not each.ended for each in here)
