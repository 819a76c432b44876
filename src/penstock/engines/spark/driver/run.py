"""One line on a terminal that says how a run goes; nothing anywhere else.

It is a reader of events like any other: batches, rows per second, how long the last batch took, and how far
the watermark is behind the clock. Short runs are over before it shows.
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
from penstock.engines.background_run import BackgroundRun
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import describe_graph
from penstock.engines.protocol import RunOptions, RunResult
from penstock.engines.sources import load_tables
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

_FIRST_US, _EVERY_US = 1_000_000, 200_000
_UNITS = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))


def add_progress_line(events: EventSink, stream: TextIO | None = None) -> EventSink:
    """The same sink, and a line beside it if somebody looks."""
    screen = stream or sys.stderr
    if screen is None or not screen.isatty():
        return events
    line = ProgressLine(screen)

    def told(event: Event) -> None:
        line.tell(event)
        events(event)

    return told


class ProgressLine:
    """The line of one run."""

    def __init__(self, screen: TextIO) -> None:
        self._screen, self._graph = screen, ""
        self._began = self._shown_at = self._rows = self._batches = 0
        self._shown = False

    def tell(self, event: Event) -> None:
        """Take an event in, and show the line if it is time."""
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
        """Instead of what the line says; ESC [K ends it there."""
        width = shutil.get_terminal_size().columns
        self._screen.write(f"\r{text[: width - 1]}\x1b[K")
        self._screen.flush()


def _format_duration(us: int) -> str:
    for size, unit in _UNITS:
        if abs(us) >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us} us"


# Structured Streaming queries that only tick, and serve one run after the other.
#
# Starting a query takes Spark longer than a small run does, so a query whose run is over waits, inside a
# batch, for the next one; several graphs share one query, one after the other. A query that nobody wants
# is left to Spark, which ends it with its context. Runs that keep a checkpoint, or ask for a trigger, have
# a query of their own, under their own name.

MicroBatch = Callable[[], bool]
"""One turn of a run; False when it was the last."""

_LOOK = 1.0
"""Seconds between looks whether Spark is still there."""
_MOST_WAITING = 2
"""Queries that wait for another run; more than that are stopped."""


class DriverQuery:
    """One query. `serve` has it call a run's turns until the run is over."""

    def __init__(self, spark: SparkSession, name: str, *, folder: str, trigger: str | None = None) -> None:
        self._changed = threading.Condition()
        self._turn: MicroBatch | None = None
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

    def serve(self, turn: MicroBatch) -> None:
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

    def _next(self) -> MicroBatch | None:
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


_WAITING: list[DriverQuery] = []
_LOCK = threading.Lock()


def borrow_query(spark: SparkSession, name: str) -> DriverQuery:
    """A query that waits for a run, or a new one."""
    with _LOCK:
        _WAITING[:] = [each for each in _WAITING if each.alive]
        if _WAITING:
            return _WAITING.pop()
    folder = tempfile.mkdtemp(prefix="penstock-ticks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return DriverQuery(spark, name, folder=folder)


def return_query(ticking: DriverQuery) -> None:
    """The run is over: the query may serve another."""
    with _LOCK:
        keep = ticking.alive and len(_WAITING) < _MOST_WAITING
        if keep:
            _WAITING.append(ticking)
    if not keep:
        ticking.close()


# A run on Spark: a Structured Streaming query whose every batch is a turn of the rounds.
#
# The query's source only ticks; what a turn reads, and how far it has come, is in the rounds and in their
# checkpoint, because batches must be cut by readers, the same on every engine.


class SparkRun(BackgroundRun):
    """A run under way."""

    grace_seconds = 30.0  # a micro-batch takes longer than a round of the other engines

    def __init__(
        self,
        plan: Plan,
        rounds: DriverLoop,
        checkpoint: Checkpoint,
        opened: RunSession,
        stopping: threading.Event,
        *,
        clock: Clock,
        events: EventSink,
        options: RunOptions,
    ) -> None:
        super().__init__(plan.graph, "spark")
        self._plan, self._rounds, self._checkpoint, self._opened = plan, rounds, checkpoint, opened
        self._clock, self._events, self._options = clock, events, options
        self._stopping = stopping
        self._name = f"{plan.graph}-{uuid.uuid4().hex[:8]}"  # a session has each name once
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""
        return copy.deepcopy(self._rounds.accounts)

    def execute(self) -> RunResult:
        """From the first turn to the last."""
        try:
            result = self._turns()
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                self._end("failed")
            raise
        self._end(result.outcome)
        return result

    def _turns(self) -> RunResult:
        steps = tuple(step.name for step in self._plan)
        self._events(RunStarted(self._clock.now(), self._plan.graph, "spark", steps))
        try:
            self._rounds.open()
            self._query()
        except BaseException:
            with suppress(Exception):
                self._rounds.close()
            raise
        self._rounds.close()
        outcome = "drained" if self._rounds.drained else "stopped"
        return RunResult(
            outcome, self._rounds.batches, copy.deepcopy(self._rounds.accounts), self._rounds.tables()
        )

    def _end(self, outcome: str) -> None:
        try:
            self._events(RunEnded(self._clock.now(), outcome, self._rounds.batches))
        finally:
            self._checkpoint.close()

    def _query(self) -> None:
        """Have a query call turns until the rounds are over, somebody stops the run, or it fails."""
        trigger = getattr(self._options.engine, "trigger", None)
        if not self._checkpoint.durable and trigger is None:
            query = borrow_query(self._opened.spark, "penstock")
            query.serve(self._turn)
            return_query(query)
        else:
            folder = self._checkpoint.spark_folder()
            query = DriverQuery(self._opened.spark, self._name, folder=folder, trigger=trigger)
            try:
                query.serve(self._turn)
            finally:
                query.close()
        if self._failure is not None:
            raise self._failure

    def _turn(self) -> bool:
        """One turn; what fails is kept for `wait`, since Spark would only keep its text."""
        try:
            goes_on = self._rounds.turn()
        except BaseException as failure:
            self._failure = translate_failure(failure, self._plan)
            goes_on = False
        return goes_on and not self._stopping.is_set()


# A plan made ready to run on a session: cut into fragments, with its checkpoint, jobs and rounds.

_ADAPTIVE = "spark.sql.adaptive.enabled"
"""Planning again between stages: worth it for what a user's DataFrame may be, not for jobs that are known."""


def start_run(
    plan: Plan, opened: RunSession, *, clock: Clock, events: EventSink, options: RunOptions
) -> SparkRun:
    """A run that goes by itself."""
    plan, events = load_tables(plan), add_progress_line(events)
    stopping = threading.Event()
    rounds, checkpoint = _build(plan, opened, clock, events, options, stopping)
    return SparkRun(plan, rounds, checkpoint, opened, stopping, clock=clock, events=events, options=options)


def start_harness(
    plan: Plan, opened: RunSession, *, clock: Clock, events: EventSink, options: RunOptions
) -> SparkHarness:
    """A run that is fed by hand."""
    plan = load_tables(plan)
    rounds, checkpoint = _build(plan, opened, clock, events, options, threading.Event())
    return SparkHarness(plan, rounds, checkpoint, clock=clock, events=events, options=options)


def _build(
    plan: Plan,
    opened: RunSession,
    clock: Clock,
    events: EventSink,
    options: RunOptions,
    stopping: threading.Event,
) -> tuple[DriverLoop, Checkpoint]:
    checkpoint = Checkpoint(options.checkpoint, describe_graph(plan))
    fragments = split_into_fragments(plan)
    jobs = SparkJobs(opened.spark, plan, fragments, run=uuid.uuid4().hex, n_partitions=opened.partitions)
    asked = getattr(options.engine, "conf", {})
    if _ADAPTIVE not in asked and not any(native.frames.of_frame for native in jobs.native.values()):
        opened.spark.conf.set(_ADAPTIVE, "false")
    rounds = DriverLoop(
        plan,
        fragments,
        jobs,
        checkpoint,
        clock=clock,
        events=events,
        until=options.until,
        drain=options.drain,
        n_partitions=opened.partitions,
        stopping=stopping,
    )
    return rounds, checkpoint
