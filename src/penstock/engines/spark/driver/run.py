"""A run on Spark: a Structured Streaming query whose every batch is a micro-batch of the driver loop.

The query's source only ticks. What a micro-batch reads, and how far it has come, is in the driver loop and in
its checkpoint, because batches must be cut by readers, the same on every engine.

Starting a query takes Spark longer than a small run does, so a query whose run is over waits, inside a batch,
for the next one: several graphs share one query, one after the other. A query that nobody wants is left to
Spark, which ends it with its context. Runs that keep a checkpoint, or ask for a trigger, have a query of
their own, under their own name.
"""

from __future__ import annotations

import atexit
import copy
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import describe_graph
from penstock.engines.ends import load_tables
from penstock.engines.protocol import BackgroundRun, RunOptions, RunResult
from penstock.engines.spark.driver.harness import SparkHarness
from penstock.engines.spark.driver.jobs import SparkJobs
from penstock.engines.spark.driver.loop import DriverLoop
from penstock.engines.spark.failures import translate_failure
from penstock.engines.spark.fragments import split_into_fragments
from penstock.engines.spark.session.session import RunSession
from penstock.errors import EngineError
from penstock.events import BatchDone, Event, EventSink, RunEnded, RunStarted
from penstock.plan.plan import Plan

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
        """Returns whether the query can serve a run."""
        try:
            return self._context._jsc is not None and bool(self._query.isActive)
        except Exception:  # the JVM itself is gone
            return False

    def serve(self, micro_batch: MicroBatch) -> None:
        """Runs the micro-batches of a run, one per batch of the query, until one says it was the last."""
        with self._changed:
            self._micro_batch = micro_batch
            self._changed.notify_all()
            while self._micro_batch is not None:
                self._changed.wait(0.2)
                if self._micro_batch is not None and not self.alive:
                    raise self._stopped_error()

    def close(self) -> None:
        """Ends the query."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._query.stop()

    def _tick(self, batch: Any, number: int) -> None:
        """Runs one micro-batch; behind the last one of a run, waits for the next run."""
        while (micro_batch := self._wait_for_run()) is not None:
            if micro_batch():
                return
            with self._changed:
                self._micro_batch = None
                self._changed.notify_all()

    def _wait_for_run(self) -> MicroBatch | None:
        """Waits for a run to serve; returns None when there will be none any more."""
        with self._changed:
            while self._micro_batch is None and not self._closing and self._context._jsc is not None:
                self._changed.wait(_POLL_S)
            return self._micro_batch

    def _stopped_error(self) -> EngineError:
        reason = "Spark itself was stopped"
        with suppress(Exception):  # the JVM may be gone, and with it what it could tell
            reason = str(self._query.exception() or reason)
        return EngineError("Spark stopped the query", detail=reason.partition("\n")[0])


_WAITING: list[DriverQuery] = []
_LOCK = threading.Lock()


def borrow_query(spark: SparkSession, name: str) -> DriverQuery:
    """Returns a query that waits for a run, or a new one."""
    with _LOCK:
        _WAITING[:] = [query for query in _WAITING if query.alive]
        if _WAITING:
            return _WAITING.pop()
    folder = tempfile.mkdtemp(prefix="penstock-ticks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return DriverQuery(spark, name, folder=folder)


def return_query(query: DriverQuery) -> None:
    """Keeps the query of a run that is over, so that it may serve another."""
    with _LOCK:
        keep = query.alive and len(_WAITING) < _MOST_WAITING
        if keep:
            _WAITING.append(query)
    if not keep:
        query.close()


class SparkRun(BackgroundRun):
    """A run that goes by itself."""

    grace_seconds = 30.0  # a micro-batch takes longer than a round of the other engines

    def __init__(
        self,
        plan: Plan,
        loop: DriverLoop,
        checkpoint: Checkpoint,
        session: RunSession,
        stopping: threading.Event,
        *,
        clock: Clock,
        events: EventSink,
        options: RunOptions,
    ) -> None:
        super().__init__(plan.graph, "spark")
        self._plan, self._loop, self._checkpoint, self._session = plan, loop, checkpoint, session
        self._clock, self._events, self._options = clock, events, options
        self._stopping = stopping
        self._name = f"{plan.graph}-{uuid.uuid4().hex[:8]}"  # a session has each name once
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """Returns the accounts so far."""
        return copy.deepcopy(self._loop.accounts)

    def execute(self) -> RunResult:
        """Runs all micro-batches, from the first to the last."""
        try:
            result = self._run_to_end()
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                self._end("failed")
            raise
        self._end(result.outcome)
        return result

    def _run_to_end(self) -> RunResult:
        steps = tuple(step.name for step in self._plan)
        self._events(RunStarted(self._clock.now(), self._plan.graph, "spark", steps))
        try:
            self._loop.open()
            self._serve()
        except BaseException:
            with suppress(Exception):
                self._loop.close()
            raise
        self._loop.close()
        outcome = "drained" if self._loop.is_drained else "stopped"
        return RunResult(outcome, self._loop.batches, copy.deepcopy(self._loop.accounts), self._loop.tables())

    def _end(self, outcome: str) -> None:
        try:
            self._events(RunEnded(self._clock.now(), outcome, self._loop.batches))
        finally:
            self._checkpoint.close()

    def _serve(self) -> None:
        """Lets a query run micro-batches until there are no more, the run is stopped, or it fails."""
        trigger = getattr(self._options.engine, "trigger", None)
        if not self._checkpoint.durable and trigger is None:
            query = borrow_query(self._session.spark, "penstock")
            query.serve(self._run_micro_batch)
            return_query(query)
        else:
            folder = self._checkpoint.spark_folder()
            query = DriverQuery(self._session.spark, self._name, folder=folder, trigger=trigger)
            try:
                query.serve(self._run_micro_batch)
            finally:
                query.close()
        if self._failure is not None:
            raise self._failure

    def _run_micro_batch(self) -> bool:
        """Runs one micro-batch; keeps what fails for `wait`, since Spark would only keep its text."""
        try:
            goes_on = self._loop.run_micro_batch()
        except BaseException as failure:
            self._failure = translate_failure(failure, self._plan)
            goes_on = False
        return goes_on and not self._stopping.is_set()


_ADAPTIVE = "spark.sql.adaptive.enabled"
"""Planning again between stages: worth it for what a user's DataFrame may be, not for jobs that are known."""


def start_run(
    plan: Plan, session: RunSession, *, clock: Clock, events: EventSink, options: RunOptions
) -> SparkRun:
    """Starts a run that goes by itself."""
    plan, events = load_tables(plan), add_progress_line(events)
    stopping = threading.Event()
    loop, checkpoint = _build(plan, session, clock, events, options, stopping)
    return SparkRun(plan, loop, checkpoint, session, stopping, clock=clock, events=events, options=options)


def start_harness(
    plan: Plan, session: RunSession, *, clock: Clock, events: EventSink, options: RunOptions
) -> SparkHarness:
    """Starts a run that is fed by hand."""
    plan = load_tables(plan)
    loop, checkpoint = _build(plan, session, clock, events, options, threading.Event())
    return SparkHarness(plan, loop, checkpoint, clock=clock, events=events, options=options)


def _build(
    plan: Plan,
    session: RunSession,
    clock: Clock,
    events: EventSink,
    options: RunOptions,
    stopping: threading.Event,
) -> tuple[DriverLoop, Checkpoint]:
    checkpoint = Checkpoint(options.checkpoint, describe_graph(plan))
    fragments = split_into_fragments(plan)
    jobs = SparkJobs(session.spark, plan, fragments, run=uuid.uuid4().hex, n_partitions=session.partitions)
    conf = getattr(options.engine, "conf", {})
    if _ADAPTIVE not in conf and not any(source.reads_dataframe for source in jobs.remote.values()):
        session.spark.conf.set(_ADAPTIVE, "false")
    loop = DriverLoop(
        plan,
        fragments,
        jobs,
        checkpoint,
        clock=clock,
        events=events,
        until=options.until,
        drain=options.drain,
        n_partitions=session.partitions,
        stopping=stopping,
    )
    return loop, checkpoint


_FIRST_US, _EVERY_US = 1_000_000, 200_000
_UNITS = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))


def add_progress_line(events: EventSink, stream: TextIO | None = None) -> EventSink:
    """Returns a sink that also shows a line on the terminal, if there is one.

    Short runs are over before it shows.
    """
    screen = stream or sys.stderr
    if screen is None or not screen.isatty():
        return events
    line = ProgressLine(screen)

    def show_and_pass_on(event: Event) -> None:
        line.update(event)
        events(event)

    return show_and_pass_on


class ProgressLine:
    """One line that says how a run goes: batches, rows per second, latency, lag behind the clock."""

    def __init__(self, screen: TextIO) -> None:
        self._screen, self._graph = screen, ""
        self._began = self._shown_at = self._rows = self._batches = 0
        self._shown = False

    def update(self, event: Event) -> None:
        """Takes an event in, and shows the line if it is time."""
        if isinstance(event, RunStarted):
            self._graph, self._began, self._shown_at = event.graph, event.at, event.at + _FIRST_US - _EVERY_US
        elif isinstance(event, BatchDone):
            self._batches += 1
            self._rows += sum(event.rows_in.values())
            if event.at - self._shown_at >= _EVERY_US:
                self._show(event)
        elif isinstance(event, RunEnded) and self._shown:
            self._put("")

    def _show(self, event: BatchDone) -> None:
        self._shown, self._shown_at = True, event.at
        rate = self._rows * 1_000_000 // max(1, event.at - self._began)
        parts = [self._graph, f"{self._batches:,} batches", f"{rate:,} rows/s"]
        parts.append(f"latency {_format_duration(event.took_us)}")
        if event.lag_us:
            parts.append(f"lag {_format_duration(max(event.lag_us.values()))}")
        self._put("  ".join(parts))

    def _put(self, text: str) -> None:
        """Replaces the text of the line."""
        width = shutil.get_terminal_size().columns
        self._screen.write(f"\r{text[: width - 1]}\x1b[K")  # ESC [K clears the rest of the line
        self._screen.flush()


def _format_duration(us: int) -> str:
    for size, unit in _UNITS:
        if abs(us) >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us} us"
