"""A run on Spark: the micro-batches of the driver loop, as a query where the run streams, else as plain jobs.

A run streams if it has a checkpoint, a trigger, or a source that does not end by itself (`query.py`); a
stream of Spark's brings a query of its own. Starting a query takes Spark longer than many a bounded run, so
any other run has none. A harness runs the same loop, fed by its caller.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import OpeningStopped, SourceBatch
from penstock.engines.background_run import BackgroundRun
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import describe_graph
from penstock.engines.protocol import RoundHarness, RunOptions, RunResult
from penstock.engines.run_log import LOGGER
from penstock.engines.spark.driver.job_results import translate_failure
from penstock.engines.spark.driver.jobs import SparkJobs
from penstock.engines.spark.driver.loop import DriverLoop
from penstock.engines.spark.driver.sinks import place_sinks
from penstock.engines.spark.driver.sources import StreamSourceReader
from penstock.engines.spark.engine import spell_trigger
from penstock.engines.spark.session.executors import check_executors, shared_folders
from penstock.engines.spark.session.java import temporary_folder
from penstock.engines.spark.session.session import RunSession
from penstock.events import BatchDone, Event, EventSink, RunEnded, RunStarted
from penstock.plan.plan import Plan, load_tables
from penstock.timing.windows import BEFORE_ALL

if TYPE_CHECKING:
    from penstock.engines.spark.driver.query import RunQuery

MOMENT_S = 0.15
"""How long the micro-batch in progress may take to end after a stop, before it is given up."""
CANCEL_POLL_S = 0.05
"""Seconds between tries to cancel what is left of it."""
EXIT_S = 2.0
"""How long the end of the program waits for the thread that a stop has left behind."""


@contextmanager
def _end_on_failure(loop: DriverLoop) -> Iterator[None]:
    """End the run if it fails, and raise what stopped it: that matters more than what followed from it."""
    try:
        yield
    except BaseException as failure:
        with suppress(Exception):
            loop.end(failed=True)
        folder = loop.checkpoint.folder if loop.checkpoint.durable else None
        raise translate_failure(failure, loop.plan, folder)  # noqa: B904  # it knows its cause


class SparkRun(BackgroundRun):
    """A run that goes by itself."""

    grace_seconds = 30.0  # a commit may take longer than a round of the other engines
    _worker: threading.Thread | None = None
    _query: RunQuery | None = None
    _worker_failure: BaseException | None = None

    def __init__(self, loop: DriverLoop, session: RunSession) -> None:
        super().__init__(loop.plan, "spark", loop.clock)
        self._loop, self._session, self._stopping, self._gives_up = loop, session, loop.stopping, False
        self._left, self._starting = threading.Event(), threading.Lock()
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""
        return self._loop.metrics()

    def watermarks(self) -> Mapping[str, float]:
        """Implement `BackgroundRun.watermarks`: those of the last micro-batch."""
        timed = [reader.step.name for reader in self._loop.readers if reader.timed]
        return {name: self._loop.watermarks.get(name, BEFORE_ALL) for name in timed}

    def abandon(self) -> None:
        """Cancel what the run still does, in a thread, because Spark may take long to answer."""
        spark = self._session.spark

        def cancel() -> None:
            with suppress(Exception):  # a Spark that is gone has nothing to cancel
                spark.interruptAll()
                for query in spark.streams.active:
                    query.stop()

        threading.Thread(target=cancel, name="penstock-cancel", daemon=True).start()

    def stop(self, *, drain: bool = False) -> None:
        """Implement `Run.stop`: the micro-batch in progress has a moment to end, and is given up then.

        With `drain` it is always completed.
        """
        super().stop(drain=drain)
        with self._lock:
            is_first, self._gives_up = not (drain or self._gives_up), self._gives_up or not drain
        if is_first:
            threading.Thread(target=self._give_up, name="penstock-stop", daemon=True).start()

    def _give_up(self) -> None:
        """Give up what is not committed, after a moment; leave the thread behind that waits for Spark."""
        wait_s, loop = MOMENT_S, self._loop
        while not (self._over.wait(wait_s) or self._drains):
            wait_s = CANCEL_POLL_S
            if loop.abandoned.is_set():
                loop.jobs.cancel()  # Why again: a job may have been planned, and not begun, before
            elif loop.abandon():
                LOGGER.info('run of "%s": the micro-batch in progress is given up', self._plan.graph)
            if loop.abandoned.is_set() and not self._left.is_set():
                # Why: a run that resumes reads Spark's own log, so that nobody may still write it.
                if loop.checkpoint.durable:
                    with self._starting:
                        query = self._query
                    if query is not None:
                        query.close()
                if self._worker is not None:
                    # Why: Python ends such a thread wherever it is, and one inside of Arrow takes the program
                    # down with it, so that its exit code is that of a crash.
                    atexit.register(self._worker.join, EXIT_S)
                self._left.set()

    def is_worker(self, thread: threading.Thread) -> bool:
        """Implement `BackgroundRun.is_worker`."""
        return thread is self._worker

    def execute(self) -> RunResult:
        """Run all micro-batches, from the first to the last, in a thread that a stop can leave behind."""
        loop = self._loop
        with _end_on_failure(loop), suppress(OpeningStopped):
            loop.open()
            self._worker = threading.Thread(target=self._work, name="penstock-micro-batches", daemon=True)
            self._worker.start()
            self._left.wait()
            if self._worker_failure is not None:
                raise self._worker_failure
        return loop.end()

    def _work(self) -> None:
        try:
            self._run_to_end()
            if self._drains:
                self._loop.drain()
        except BaseException as failure:  # raised again in the thread of the run
            self._worker_failure = failure
        finally:
            self._left.set()
            atexit.unregister(threading.current_thread().join)

    def _run_to_end(self) -> None:
        """Run all micro-batches: of a query if the run streams, else as plain jobs."""
        loop, spark, trigger = self._loop, self._session.spark, self._loop.jobs.trigger
        spark.sparkContext.setJobDescription(self._plan.graph)
        loop.jobs.tag()
        is_endless = not all(reader.bounded for reader in loop.readers)
        streams = is_endless or loop.checkpoint.durable or trigger is not None
        # A stream of Spark's brings a query of its own, which then cuts the micro-batches.
        if not streams or any(isinstance(reader, StreamSourceReader) for reader in loop.readers):
            loop.run_micro_batches()
            return
        from penstock.engines.spark.driver.query import RunQuery

        with self._starting:
            if loop.abandoned.is_set():
                return
            query = self._query = RunQuery(
                spark,
                f"{self._plan.graph}-{uuid.uuid4().hex[:8]}",  # a session has each name once
                checkpoint=str(loop.checkpoint.folder / "spark"),
                folder=temporary_folder("penstock-plans-"),
                trigger=trigger,
                timed=[reader.step.name for reader in loop.readers if reader.timed],
                abandoned=loop.abandoned,
            )
        try:
            loop.run_micro_batches(query)
            query.finish()
        finally:
            query.close()


class SparkHarness(RoundHarness):
    """A run that is fed by hand: a push is a round, run by Spark jobs before the call returns."""

    again = "begin another session"

    def __init__(self, loop: DriverLoop, options: RunOptions) -> None:
        super().__init__(loop.plan)
        self._loop, self._drain = loop, options.drain
        self.collected, self.table = loop.sinks.collected, loop.sinks.table
        weakref.finalize(self, loop.checkpoint.close)  # a session need not be ended, and is then just let go
        with _end_on_failure(loop):
            loop.open()
            if loop.refusal is not None:
                raise loop.refusal

    def end(self) -> RunResult:
        """Implement `EngineHarness.end`."""
        self._refuse_over()
        if self._drain:
            self._round({}, last=True)
        self._over = True
        return self._loop.end()

    def metrics(self) -> Mapping[str, Accounts]:
        """Implement `EngineHarness.metrics`."""
        return self._loop.metrics()

    def _round(self, batches: Mapping[str, SourceBatch], *, last: bool = False) -> None:
        self._over = True  # unless the round is done
        with _end_on_failure(self._loop):
            self._loop.run_round(batches, last=last)
        self._over = False

    def _promise(self, watermark: int) -> None:
        for reader in self._loop.readers:
            reader.promise(watermark)


_ADAPTIVE = "spark.sql.adaptive.enabled"
"""Planning again between stages: worth it for what a user's DataFrame may be, not for jobs that are known."""


def build_loop(
    plan: Plan, session: RunSession, *, clock: Clock, events: EventSink, options: RunOptions
) -> DriverLoop:
    """Return a plan at work on the driver, for a run or for a harness.

    Raise if executors elsewhere cannot run it, before its first row.
    """
    plan = load_tables(plan)
    checkpoint = Checkpoint(options.checkpoint, describe_graph(plan), "spark", options.renamed)
    try:
        plan = checkpoint.adapt(plan)
        plan = place_sinks(plan, checkpoint.folder)
        jobs = SparkJobs(session.spark, plan, session.partitions)
        jobs.trigger = spell_trigger(getattr(options.engine, "trigger", None))
        conf = getattr(options.engine, "conf", {})
        if _ADAPTIVE not in conf and not any(source.reads_dataframe for source in jobs.remote.values()):
            session.spark.conf.set(_ADAPTIVE, "false")
        loop = DriverLoop(plan, jobs, checkpoint, clock=clock, events=events, options=options)
        check_executors(session.spark, shared_folders(plan, checkpoint.folder, saved=checkpoint.durable))
    except BaseException:
        checkpoint.close()  # Why: it holds a lock, and nobody else ends a run that has not begun
        raise
    return loop


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
                self._shown, self._shown_at = True, event.at
                rate = self._rows * 1_000_000 // max(1, event.at - self._began)
                parts = [self._graph, f"{self._batches:,} batches", f"{rate:,} rows/s"]
                parts.append(f"latency {_format_duration(event.took_us)}")
                if event.lag_us:
                    parts.append(f"lag {_format_duration(max(event.lag_us.values()))}")
                self._put("  ".join(parts))
        elif isinstance(event, RunEnded) and self._shown:
            self._put("")
        self._events(event)

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
