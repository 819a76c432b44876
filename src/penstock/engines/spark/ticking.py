"""Structured Streaming queries that only tick, and serve one run after the other.

Starting a query takes Spark longer than a small run does, so a query whose run is over waits, inside a batch,
for the next one; several graphs share one query, one after the other. A query that nobody wants is left to
Spark, which ends it with its context. Runs that keep a checkpoint, or ask for a trigger, have a query of
their own, under their own name.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

Turn = Callable[[], bool]
"""One turn of a run; False when it was the last."""

_LOOK = 1.0
"""Seconds between looks whether Spark is still there."""
_MOST_WAITING = 2
"""Queries that wait for another run; more than that are stopped."""


class Ticking:
    """One query. `serve` has it call a run's turns until the run is over."""

    def __init__(self, spark: SparkSession, name: str, *, folder: str, trigger: str | None = None) -> None:
        self._changed = threading.Condition()
        self._turn: Turn | None = None
        self._closing = False
        self._context = spark.sparkContext
        ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = ticks.writeStream.foreachBatch(self._tick).queryName(name)
        writer = writer.option("checkpointLocation", folder)
        if trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        self._query: StreamingQuery = writer.start()

    @property
    def alive(self) -> bool:
        """Whether the query can serve a run."""
        try:
            return self._context._jsc is not None and bool(self._query.isActive)
        except Exception:  # the JVM itself is gone
            return False

    def serve(self, turn: Turn) -> None:
        """Have the turns of a run called, one per batch of the query, until one says that it was the last."""
        with self._changed:
            self._turn = turn
            self._changed.notify_all()
            while self._turn is not None:
                self._changed.wait(0.2)
                if self._turn is not None and not self.alive:
                    raise self._stopped()

    def close(self) -> None:
        """End the query."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._query.stop()

    def _tick(self, batch: Any, number: int) -> None:
        """A batch of the query: one turn of the run at hand. Behind a last turn it waits for the next run."""
        while (turn := self._next()) is not None:
            if turn():
                return
            with self._changed:
                self._turn = None
                self._changed.notify_all()

    def _next(self) -> Turn | None:
        """The run's turn; None when there will be none any more."""
        with self._changed:
            while self._turn is None and not self._closing and self._context._jsc is not None:
                self._changed.wait(_LOOK)
            return self._turn

    def _stopped(self) -> EngineError:
        told = "Spark itself was stopped"
        with suppress(Exception):  # the JVM may be gone, and with it what it could tell
            told = str(self._query.exception() or told)
        return EngineError("Spark stopped the query", detail=told.partition("\n")[0])


_WAITING: list[Ticking] = []
_LOCK = threading.Lock()


def borrowed(spark: SparkSession, name: str) -> Ticking:
    """A query that waits for a run, or a new one."""
    with _LOCK:
        _WAITING[:] = [each for each in _WAITING if each.alive]
        if _WAITING:
            return _WAITING.pop()
    folder = tempfile.mkdtemp(prefix="penstock-ticks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Ticking(spark, name, folder=folder)


def given_back(ticking: Ticking) -> None:
    """The run is over: the query may serve another."""
    with _LOCK:
        keep = ticking.alive and len(_WAITING) < _MOST_WAITING
        if keep:
            _WAITING.append(ticking)
    if not keep:
        ticking.close()
