"""A run on Spark: one Structured Streaming query whose every batch is a turn of the rounds.

The query's source only ticks; what a turn reads, and how far it has come, is in the rounds and in their
checkpoint, because batches must be cut by readers, the same on every engine.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.clock import Clock
from penstock.engines.protocol import RunOptions, RunResult
from penstock.engines.spark.checkpoint import Checkpoint
from penstock.engines.spark.described import described
from penstock.engines.spark.failures import from_spark
from penstock.engines.spark.jobs import Jobs
from penstock.engines.spark.legs import cut
from penstock.engines.spark.rounds import Rounds
from penstock.engines.spark.session import Opened
from penstock.engines.spark.tables import with_tables
from penstock.errors import EngineError
from penstock.events import EventSink, RunEnded, RunStarted
from penstock.plan.accounts import Accounts
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_PATIENCE = 30.0
"""Seconds to let the turn at hand end after Ctrl-C."""


class SparkRun:
    """A run under way, watched by a thread that is a daemon, so it never keeps a process alive."""

    def __init__(
        self, plan: Plan, opened: Opened, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> None:
        plan = with_tables(plan)
        self._plan, self._opened, self._clock, self._events = plan, opened, clock, events
        self._options = options
        self._stopping, self._over = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._result: RunResult | None = None
        self._checkpoint = Checkpoint(options.checkpoint, described(plan))
        legs = cut(plan)
        run = uuid.uuid4().hex
        self._name = f"{plan.graph}-{run[:8]}"  # a session has each name once
        jobs = Jobs(opened.spark, plan, legs, run=run, n_parts=opened.partitions)
        self._rounds = Rounds(
            plan,
            legs,
            jobs,
            self._checkpoint,
            clock=clock,
            events=events,
            until=options.until,
            drain=options.drain,
            n_parts=opened.partitions,
        )
        self._thread = threading.Thread(target=self._go, name="penstock-spark", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run is over; raises what stopped it, TimeoutError if it takes longer."""
        try:
            self._thread.join(timeout)
        except KeyboardInterrupt:
            self.stop()
            self._thread.join(_PATIENCE)
            raise
        if self._thread.is_alive():
            raise TimeoutError(f"the run of {self._plan.graph} is not over after {timeout} s")
        if self._failure is not None:
            raise self._failure
        assert self._result is not None, "a run that did not fail has a result"
        return self._result

    def stop(self) -> None:
        """Ask the run to stop after the turn at hand; `wait` then returns."""
        self._stopping.set()

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""
        return copy.deepcopy(self._rounds.accounts)

    def _go(self) -> None:
        outcome = "failed"
        steps = tuple(step.name for step in self._plan)
        try:
            self._events(RunStarted(self._clock.now(), self._plan.graph, "spark", steps))
            try:
                self._rounds.open()
                self._query()
            except BaseException:
                with suppress(Exception):  # what stopped the run matters more than what followed from it
                    self._rounds.close()
                raise
            self._rounds.close()
            outcome = "drained" if self._rounds.drained else "stopped"
            self._result = RunResult(
                outcome, self._rounds.batches, copy.deepcopy(self._rounds.accounts), self._collected()
            )
        except BaseException as failure:  # raised again in wait(), in the user's thread
            self._failure = failure
        finally:
            self._end(outcome)

    def _end(self, outcome: str) -> None:
        try:
            self._events(RunEnded(self._clock.now(), outcome, self._rounds.batches))
        except BaseException as failure:
            self._failure = self._failure or failure
        self._checkpoint.close()

    def _query(self) -> None:
        """Run the query until the rounds are over, somebody stops it, or it fails."""
        spark = self._opened.spark
        ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = ticks.writeStream.foreachBatch(self._tick).queryName(self._name)
        writer = writer.option("checkpointLocation", self._checkpoint.ticks())
        trigger = getattr(self._options.engine, "trigger", None)
        if trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        query = writer.start()
        try:
            self._watch(query)
        finally:
            query.stop()
        if self._failure is not None:
            raise self._failure

    def _watch(self, query: StreamingQuery) -> None:
        while not self._over.wait(0.2):
            if not query.isActive and not self._over.is_set():
                cause = query.exception()
                raise EngineError(
                    "Spark stopped the query", detail=None if cause is None else str(cause).partition("\n")[0]
                )

    def _tick(self, batch: Any, number: int) -> None:
        """One batch of the query; what fails is kept for `wait`, since Spark would only keep its text."""
        if self._over.is_set():
            return
        try:
            goes_on = self._rounds.turn()
        except BaseException as failure:
            self._failure = from_spark(failure, self._plan)
            goes_on = False
        if not goes_on or self._stopping.is_set():
            self._over.set()

    def _collected(self) -> dict[Any, pa.Table]:
        return {
            ref: pa.Table.from_batches(batches, schema=self._plan[ref.step].outputs[ref.port].schema)
            for ref, batches in self._rounds.collected.items()
        }
