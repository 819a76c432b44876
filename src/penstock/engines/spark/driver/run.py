"""A run on Spark: a Structured Streaming query whose every batch is a micro-batch of the driver loop.

A harness runs the same loop, fed by its caller and without a query.

The query's source only ticks. What a micro-batch reads, and how far it has come, is in the driver loop and in
its checkpoint, because batches must be cut by readers, the same on every engine.

Starting a query takes Spark longer than a small run does, so a query whose run is over waits, inside a batch,
for the next one: several graphs share one query, one after the other. A query that nobody wants is left to
Spark, which ends it with its context. Runs that keep a checkpoint, or ask for a trigger, have a query of
their own, under their own name.
"""

from __future__ import annotations

import copy
import shutil
import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import describe_graph
from penstock.engines.ends import load_tables
from penstock.engines.protocol import BackgroundRun, RunOptions, RunResult
from penstock.engines.spark.driver.jobs import SparkJobs, translate_failure
from penstock.engines.spark.driver.loop import DriverLoop
from penstock.engines.spark.session.java import temporary_folder
from penstock.engines.spark.session.session import RunSession
from penstock.errors import EngineError, GraphError, nearest_first
from penstock.events import BatchDone, Event, EventSink, RunEnded, RunStarted
from penstock.plan.plan import Plan, Ref

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

MicroBatch = Callable[[], bool]
"""One micro-batch of a run; returns False when it was the last."""

_POLL_S = 1.0
"""Seconds between checks whether Spark is still there."""
_MOST_WAITING = 2
"""Queries that wait for another run; more than that are stopped."""


class DriverQuery:
    """One query, whose batches call the micro-batches of the run that it serves."""

    def __init__(self, spark: SparkSession, name: str, *, folder: str, trigger: str | None = None) -> None:
        self._changed = threading.Condition()
        self._micro_batch: MicroBatch | None = None
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
        """Return whether the query can serve a run."""
        try:
            return self._context._jsc is not None and bool(self._query.isActive)
        except Exception:  # the JVM itself is gone
            return False

    def serve(self, micro_batch: MicroBatch) -> None:
        """Run the micro-batches of a run, one per batch of the query, until one says it was the last."""
        with self._changed:
            self._micro_batch = micro_batch
            self._changed.notify_all()
            while self._micro_batch is not None:
                self._changed.wait(0.2)
                if self._micro_batch is not None and not self.alive:
                    reason = "Spark itself was stopped"
                    with suppress(Exception):  # the JVM may be gone, and with it what it could tell
                        reason = str(self._query.exception() or reason)
                    raise EngineError("Spark stopped the query", detail=reason.partition("\n")[0])

    def close(self) -> None:
        """End the query."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._query.stop()

    def _tick(self, batch: Any, number: int) -> None:
        """Run one micro-batch; behind the last one of a run, waits for the next run."""
        while (micro_batch := self._wait_for_run()) is not None:
            if micro_batch():
                return
            with self._changed:
                self._micro_batch = None
                self._changed.notify_all()

    def _wait_for_run(self) -> MicroBatch | None:
        """Wait for a run to serve; return None when there will be none any more."""
        with self._changed:
            while self._micro_batch is None and not self._closing and self._context._jsc is not None:
                self._changed.wait(_POLL_S)
            return self._micro_batch


_WAITING: list[DriverQuery] = []
_LOCK = threading.Lock()


def borrow_query(spark: SparkSession) -> DriverQuery:
    """Return a query that waits for a run, or a new one."""
    with _LOCK:
        _WAITING[:] = [query for query in _WAITING if query.alive]
        if _WAITING:
            return _WAITING.pop()
    return DriverQuery(spark, "penstock", folder=str(temporary_folder("penstock-ticks-")))


def return_query(query: DriverQuery) -> None:
    """Keep the query of a run that is over, so that it may serve another."""
    with _LOCK:
        keep = query.alive and len(_WAITING) < _MOST_WAITING
        if keep:
            _WAITING.append(query)
    if not keep:
        query.close()


class SparkRun(BackgroundRun):
    """A run that goes by itself."""

    grace_seconds = 30.0  # a micro-batch takes longer than a round of the other engines

    def __init__(self, loop: DriverLoop, session: RunSession, options: RunOptions) -> None:
        super().__init__(loop.plan.graph, "spark")
        self._loop, self._session, self._stopping = loop, session, loop.stopping
        self._trigger = getattr(options.engine, "trigger", None)
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""
        return copy.deepcopy(self._loop.accounts)

    def execute(self) -> RunResult:
        """Run all micro-batches, from the first to the last."""
        try:
            self._loop.open()
            self._serve()
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                self._loop.end(failed=True)
            raise
        return self._loop.end()

    def _serve(self) -> None:
        """Let a query run micro-batches until there are no more, the run is stopped, or it fails."""
        checkpoint, spark = self._loop.checkpoint, self._session.spark
        if not checkpoint.durable and self._trigger is None:
            query = borrow_query(spark)
            query.serve(self._run_micro_batch)
            return_query(query)
        else:
            name = f"{self._graph}-{uuid.uuid4().hex[:8]}"  # a session has each name once
            query = DriverQuery(spark, name, folder=checkpoint.spark_folder(), trigger=self._trigger)
            try:
                query.serve(self._run_micro_batch)
            finally:
                query.close()
        if self._failure is not None:
            raise self._failure

    def _run_micro_batch(self) -> bool:
        """Run one micro-batch; keep what fails for `wait`, since Spark would only keep its text."""
        try:
            goes_on = self._loop.run_micro_batch()
        except BaseException as failure:
            self._failure = translate_failure(failure, self._loop.plan)
            goes_on = False
        return goes_on and not self._stopping.is_set()


class SparkHarness:
    """A run that is fed by hand: a push is a round, run by Spark jobs before the call returns."""

    def __init__(self, loop: DriverLoop, options: RunOptions) -> None:
        self._loop, self._drain, self._over = loop, options.drain, False
        self._n_taken: dict[Ref, int] = {}
        weakref.finalize(self, loop.checkpoint.close)  # a session need not be ended, and is then just let go
        try:
            loop.open()
        except BaseException:
            self._fail()
            raise

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """Implement `EngineHarness.push`."""
        sources = [step.name for step in self._loop.plan.sources]
        for name in batches:
            if name not in sources:
                raise GraphError(
                    f'there is no source "{name}" in this run',
                    detail=f"the sources are {', '.join(nearest_first(name, sources))}",
                )
        self._round(batches)

    def promise(self, watermark: int) -> None:
        """Implement `EngineHarness.promise`."""
        self._refuse_over()
        self._loop.promise(watermark)
        self._round({})

    def take(self, ref: Ref) -> pa.Table:
        """Implement `EngineHarness.take`."""
        collected = self._loop.sinks.collected
        if ref not in collected:
            ports = nearest_first(str(ref), map(str, collected))
            raise GraphError(
                f'rows of "{ref}" are not collected in this run', detail=f"collected are {', '.join(ports)}"
            )
        first, self._n_taken[ref] = self._n_taken.get(ref, 0), len(collected[ref])
        return self._loop.sinks.table(ref, first)

    def end(self) -> RunResult:
        """Implement `EngineHarness.end`."""
        if self._drain:
            self._round({}, last=True)
        self._refuse_over()
        self._over = True
        return self._loop.end()

    def metrics(self) -> Mapping[str, Accounts]:
        """Implement `EngineHarness.metrics`."""
        return copy.deepcopy(self._loop.accounts)

    def _round(self, batches: Mapping[str, SourceBatch], *, last: bool = False) -> None:
        self._refuse_over()
        try:
            self._loop.run_round(batches, last=last)
        except BaseException as failure:
            self._fail()
            error = translate_failure(failure, self._loop.plan)
            if error is failure:
                raise
            raise error from failure

    def _fail(self) -> None:
        self._over = True
        with suppress(Exception):  # what stopped the run matters more than what followed from it
            self._loop.end(failed=True)

    def _refuse_over(self) -> None:
        if self._over:
            raise EngineError(f'the run of "{self._loop.plan.graph}" is over', hint="begin another session")


_ADAPTIVE = "spark.sql.adaptive.enabled"
"""Planning again between stages: worth it for what a user's DataFrame may be, not for jobs that are known."""


def build_loop(
    plan: Plan, session: RunSession, *, clock: Clock, events: EventSink, options: RunOptions
) -> DriverLoop:
    """Return a plan at work on the driver, for a run or for a harness."""
    plan = load_tables(plan)
    checkpoint = Checkpoint(options.checkpoint, describe_graph(plan))
    jobs = SparkJobs(session.spark, plan, session.partitions)
    conf = getattr(options.engine, "conf", {})
    if _ADAPTIVE not in conf and not any(source.reads_dataframe for source in jobs.remote.values()):
        session.spark.conf.set(_ADAPTIVE, "false")
    return DriverLoop(plan, jobs, checkpoint, clock=clock, events=events, options=options)


_FIRST_US, _EVERY_US = 1_000_000, 200_000
_UNITS = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))


def add_progress_line(events: EventSink, stream: TextIO | None = None) -> EventSink:
    """Return a sink that also shows a line on the terminal, if there is one.

    Short runs are over before it shows.
    """
    screen = stream or sys.stderr
    if screen is None or not screen.isatty():
        return events
    return ProgressLine(screen, events).update


class ProgressLine:
    """One line that says how a run goes: batches, rows per second, latency, lag behind the clock."""

    def __init__(self, screen: TextIO, events: EventSink) -> None:
        self._screen, self._events, self._graph = screen, events, ""
        self._began = self._shown_at = self._rows = self._batches = 0
        self._shown = False

    def update(self, event: Event) -> None:
        """Take an event in, show the line if it is time, and pass the event on."""
        if isinstance(event, RunStarted):
            self._graph, self._began, self._shown_at = event.graph, event.at, event.at + _FIRST_US - _EVERY_US
        elif isinstance(event, BatchDone):
            self._batches += 1
            self._rows += sum(event.rows_in.values())
            if event.at - self._shown_at >= _EVERY_US:
                self._show(event)
        elif isinstance(event, RunEnded) and self._shown:
            self._put("")
        self._events(event)

    def _show(self, event: BatchDone) -> None:
        self._shown, self._shown_at = True, event.at
        rate = self._rows * 1_000_000 // max(1, event.at - self._began)
        parts = [self._graph, f"{self._batches:,} batches", f"{rate:,} rows/s"]
        parts.append(f"latency {_format_duration(event.took_us)}")
        if event.lag_us:
            parts.append(f"lag {_format_duration(max(event.lag_us.values()))}")
        self._put("  ".join(parts))

    def _put(self, text: str) -> None:
        """Replace the text of the line."""
        width = shutil.get_terminal_size().columns
        self._screen.write(f"\r{text[: width - 1]}\x1b[K")  # ESC [K clears the rest of the line
        self._screen.flush()


def _format_duration(us: int) -> str:
    for size, unit in _UNITS:
        if abs(us) >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us} us"
