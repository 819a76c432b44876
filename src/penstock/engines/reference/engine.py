"""The reference engine: the judge of the others, plain Python, one row at a time.

Slow, obvious and independent: nothing in this folder imports a stage or a kernel, even where that means
writing a rule twice (frontiers, sinks, source times). There are two ways to drive its interpreter: a run in a
thread of its own, and a harness fed by its caller.
"""

from __future__ import annotations

import copy
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import OpeningStopped, SourceBatch, WaitingReader, may_wait
from penstock.connect.read_claims import AbandonedRead, WaitingRead
from penstock.engines.background_run import BackgroundRun
from penstock.engines.deadlines import Deadlines
from penstock.engines.protocol import Gap, RoundHarness, RunOptions, RunResult
from penstock.engines.reference.rounds import Interpreter, lower
from penstock.errors import ConnectorError, NotSupported, PenstockError, describe_cause
from penstock.events import EventSink, RunEnded, RunStarted
from penstock.operators.op import Op
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Step


class ReferenceRun(BackgroundRun):
    """A run that reads its sources round by round."""

    def __init__(self, interpreter: Interpreter, options: RunOptions) -> None:
        super().__init__(interpreter.plan, "reference", interpreter.clock)
        self._interpreter, self._options = interpreter, options
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """Implement `Run.metrics`."""
        return copy.deepcopy(self._interpreter.accounts)

    def watermarks(self) -> Mapping[str, float]:
        """Implement `BackgroundRun.watermarks`."""
        return {name: frontier.watermark for name, frontier in self._interpreter.source_frontiers().items()}

    def idle_sources(self) -> frozenset[str]:
        """Implement `BackgroundRun.idle_sources`."""
        frontiers = self._interpreter.source_frontiers()
        return frozenset(name for name, frontier in frontiers.items() if frontier.idle and not frontier.over)

    def execute(self) -> RunResult:
        """Run the plan from its first batch to its end, and close everything whatever happens."""
        interpreter = self._interpreter
        try:
            begin_run(interpreter)
        except OpeningStopped:
            return build_result(interpreter, "stopped")
        batches = {step.name: SourceFeed(step, interpreter.clock) for step in interpreter.plan.sources}
        outcome = "failed"
        try:
            try:
                reached = self._run_rounds(batches)
            except BaseException:
                with suppress(Exception):  # what stopped the run matters more than what followed from it
                    self._close(batches)
                raise
            self._close(batches)
            outcome = reached
        finally:
            end_run(interpreter, outcome)
        return build_result(interpreter, outcome)

    def _run_rounds(self, sources: Mapping[str, SourceFeed]) -> str:
        """Run rounds until the sources end, then drain if asked to; return the outcome."""
        interpreter, drain = self._interpreter, self._options.drain
        deadlines = Deadlines(interpreter.plan, interpreter.clock.now())
        while interpreter.batches != self._options.until:
            if not self._wait_for_round(sources, deadlines):
                self._run_last_rounds(sources)
                if self._drains:
                    self._finish(sources)
                    interpreter.drain()
                return "drained" if self._drains else "stopped"
            now = interpreter.clock.now()
            batches = {
                name: batch for name, source in sources.items() if (batch := source.take()) is not None
            }
            ended = {name for name, source in sources.items() if source.ended}
            if not batches and len(ended) == len(sources):
                if drain:
                    interpreter.drain()
                return "drained" if drain else "ended"
            oldest = {name: source.find_oldest() for name, source in sources.items()}
            pending = {name: at for name, (is_known, at) in oldest.items() if is_known}
            # Why: with drain=False a later run may resume where a source ended: it still holds windows open.
            interpreter.round(batches, ended=ended if drain else (), pending=pending)
            deadlines.end_round(now, [name for name, batch in batches.items() if batch.rows.num_rows])
            if not batches:
                interpreter.batches -= 1  # the clock has made the round, and it brought none
        return "stopped"

    def _run_last_rounds(self, sources: Mapping[str, SourceFeed]) -> None:
        """Run rounds of the rows that have come by the time at which the run was stopped."""
        waiting = {name: source for name, source in sources.items() if source.waits}
        # At most these were read by then: one in hand, one in the queue, one on its way there, and some rows.
        # Why a limit: a source that never pauses would go on for ever.
        for _ in range(4):
            for name, source in waiting.items():
                with self._interpreter.report_errors(self._interpreter.plan[name]):
                    source.poll(None)
            batches = {
                name: batch for name, source in waiting.items() if (batch := source.take()) is not None
            }
            if not batches:
                return
            self._interpreter.round(batches, pending={})

    def _finish(self, sources: Mapping[str, SourceFeed]) -> None:
        """Run rounds of what is left of sources that have an end wherever they are told to end."""
        for name, source in sources.items():
            is_told = source.finish()
            while is_told and not source.ended:
                with self._interpreter.report_errors(self._interpreter.plan[name]):
                    source.poll(None)
                if (batch := source.take()) is not None:
                    self._interpreter.round({name: batch}, pending={})
                else:
                    time.sleep(POLL_S)

    def _wait_for_round(self, sources: Mapping[str, SourceFeed], deadlines: Deadlines) -> bool:
        """Wait until every source has a batch or has ended, or the clock asks for a round.

        A batch of one source waits for those of others for a while only. Returns False if the run is to stop.
        """
        interpreter, had_some_at = self._interpreter, None
        while not self._stopping.is_set():
            now = interpreter.clock.now()
            for name, source in sources.items():
                with interpreter.report_errors(interpreter.plan[name]):
                    source.poll(now)
            if all(source.ready or source.ended for source in sources.values()):
                return True
            if any(source.ready for source in sources.values()):
                had_some_at = now if had_some_at is None else min(had_some_at, now)
                if now - had_some_at >= OTHERS_US:
                    return True
            if deadlines.next is not None and deadlines.next <= now:
                return True
            self._stopping.wait(POLL_S)
        return False

    def _close(self, batches: Mapping[str, SourceFeed]) -> None:
        """Let readers release what they hold, a generator running its `finally`, and close all nodes."""
        try:
            for source in batches.values():
                source.close()
        finally:
            self._interpreter.close()


POLL_S = 0.002
"""Seconds between looks at sources that wait."""
LEAVE_S = 0.1
"""Seconds that a thread has to leave at the end."""
OTHERS_US = 100_000
"""How long the rows of one source wait for those of a silent one."""
_END = object()


class SourceFeed:
    """The batches of a source; one that may wait is read in a thread of its own, a batch ahead.

    ended  whether there are no more
    """

    def __init__(self, step: Step, clock: Clock) -> None:
        self._reader, self.ended = step.as_source.reader, False
        self._next: SourceBatch | None = None
        time = step.as_source.resolve()
        stamp = clock.now if time is not None and time.follows_clock else None
        self._watched: Any = None  # the reader, if it can be interrupted and told to end
        self._read: Iterator[SourceBatch] | WaitingRead
        self._queue: queue.Queue[Any] | None = None
        if not may_wait(self._reader):
            self._read = iter(self._reader.batches())
            return
        if isinstance(self._reader, WaitingReader):
            self._read = self._reader.open(stamp)
        else:
            watch = getattr(self._reader, "watch", None)
            self._watched = self._reader if watch is None else watch()
            self._read = WaitingRead(iter(self._watched.batches()), self._watched)
        self._first, self._first_at, self._looked_at = -1, 0, clock.now()
        self._queue = queue.Queue(1)
        self._thread = threading.Thread(target=self._pump, name=f"penstock-{step.name}", daemon=True)
        self._thread.start()

    @property
    def waits(self) -> bool:
        """Return whether it is read in a thread of its own."""
        return self._queue is not None

    @property
    def ready(self) -> bool:
        """Return whether there is a batch."""
        return self._next is not None

    def find_oldest(self) -> tuple[bool, int | None]:
        """Return whether it is known which rows were read and not taken, and when the first of them was.

        Unknown is that of a batch which the thread has read and not put into the queue yet.
        """
        read = self._read
        if not isinstance(read, WaitingRead) or self._queue is None:
            return True, None
        if not read.claim():
            return self.ended, None
        try:
            with self._queue.mutex:
                batches = [item for item in self._queue.queue if isinstance(item, SourceBatch)]
            batches += [] if self._next is None else [self._next]
            stamps = [
                int(batch.read_at[0]) for batch in batches if batch.read_at is not None and batch.num_rows
            ]
            stamps += [] if read.first_read_at is None else [read.first_read_at]
            return True, min(stamps, default=None)
        finally:
            read.release()

    def finish(self) -> bool:
        """Let the source end as it is now, if it has an end wherever it is; return whether it does."""
        finish = getattr(self._watched, "finish", None)
        if finish is not None:
            finish()
        return finish is not None

    def take(self) -> SourceBatch | None:
        """Return the batch, if there is one."""
        batch, self._next = self._next, None
        return batch

    def poll(self, now: int | None) -> None:
        """Look for a batch; without a thread, read it. Raise what the reader raised.

        now  None if rows need not wait for others any more
        """
        if self._next is not None or self.ended:
            return
        try:
            item: Any = next(self._read, _END) if self._queue is None else self._look(self._queue, now)
        except PenstockError:
            raise
        except Exception as cause:
            fact = f"could not read {self._reader.describe()}"
            raise ConnectorError(fact, detail=describe_cause(cause)) from cause
        if item is _END:
            self.ended = True
        else:
            self._next = item

    def close(self) -> None:
        """Let the reader release what it holds, a generator running its `finally`."""
        if isinstance(self._read, WaitingRead):
            self._read.abandon()
            self._thread.join(LEAVE_S)  # unless it waits for something that may never come
        close = getattr(self._read, "close", None)
        if close is not None:
            close()

    def _look(self, batches: queue.Queue[Any], now: int | None) -> Any:
        """Return what the thread has read, or the rows that have waited for as long as they may."""
        read = self._read
        assert isinstance(read, WaitingRead), "only such reads have a thread"
        if not batches.empty():
            item = batches.get()
            if isinstance(item, BaseException):
                raise item
            return item
        first, wait_us = read.first_number, getattr(self._reader, "wait_us", None)
        if first is not None and first != self._first:
            self._first, self._first_at = first, self._looked_at
        if now is not None:
            self._looked_at = now
            if first is None or wait_us is None or now - min(now, self._first_at) < wait_us:
                return None
        if first is None or not read.claim():
            return None
        try:
            return read.take() if batches.empty() else None
        finally:
            read.release()

    def _pump(self) -> None:
        assert self._queue is not None, "only sources that wait have a thread"
        try:
            for batch in self._read:
                self._put(batch)
            self._put(_END)
        except AbandonedRead:
            return
        except BaseException as failure:  # raised again where the batch would have been taken
            with suppress(AbandonedRead):
                self._put(failure)

    def _put(self, item: Any) -> None:
        """Put an item into the queue when there is room; raise AbandonedRead if nobody wants it any more."""
        assert isinstance(self._read, WaitingRead), "only such reads have a thread"
        assert self._queue is not None, "they have a queue too"
        while not self._read.abandoned:
            with suppress(queue.Full):
                self._queue.put(item, timeout=POLL_S)
                return
        raise AbandonedRead


def begin_run(interpreter: Interpreter) -> None:
    """Emit the event that a run begins, and open it."""
    steps = tuple(step.name for step in interpreter.plan)
    now = interpreter.clock.now()
    interpreter.events(RunStarted(now, interpreter.plan.graph, "reference", steps))
    try:
        interpreter.open()
    except BaseException as failure:
        end_run(interpreter, "stopped" if isinstance(failure, OpeningStopped) else "failed")
        raise


def end_run(interpreter: Interpreter, outcome: str) -> None:
    """Emit the event that a run is over."""
    interpreter.events(RunEnded(interpreter.clock.now(), outcome, interpreter.batches))


def build_result(interpreter: Interpreter, outcome: str) -> RunResult:
    """Return the result of a finished run."""
    collected = {ref: interpreter.table(ref) for ref in interpreter.plan.collects}
    return RunResult(outcome, interpreter.batches, copy.deepcopy(interpreter.accounts), collected)


class ReferenceHarness(RoundHarness):
    """A run that is fed by its caller, in the calling thread: all is done when a call returns."""

    again = "open another harness"

    def __init__(self, interpreter: Interpreter, options: RunOptions) -> None:
        super().__init__(interpreter.plan)
        self._interpreter, self._options = interpreter, options
        self.collected, self.table = interpreter.collected, interpreter.table
        begin_run(interpreter)

    def end(self) -> RunResult:
        """Implement `EngineHarness.end`."""
        self._refuse_over()
        outcome = "failed"
        try:
            if self._options.drain:
                self._interpreter.drain()
            outcome = "drained" if self._options.drain else "ended"
        finally:
            self._close(outcome)
        return build_result(self._interpreter, outcome)

    def metrics(self) -> Mapping[str, Accounts]:
        """Implement `EngineHarness.metrics`."""
        return copy.deepcopy(self._interpreter.accounts)

    def _round(self, batches: Mapping[str, SourceBatch]) -> None:
        try:
            self._interpreter.round(batches)
        except BaseException:
            self._close("failed")
            raise

    def _close(self, outcome: str) -> None:
        self._over = True
        try:
            self._interpreter.close()
        finally:
            end_run(self._interpreter, outcome)

    def _promise(self, watermark: int) -> None:
        for step in self._plan.sources:
            self._interpreter.source(step.name).promise(watermark)


_SPARK = 'run it with engine="spark", or say it with col(...)'
_INSTEAD = 'run it on an engine that has one: engine="local" or engine="spark"'


class ReferenceEngine:
    """Runs a plan row by row, and saves no state."""

    name = "reference"

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Return the steps whose operator it has no rule for, and those that use Spark SQL."""
        gaps = [
            Gap(step.name, f"the reference engine has no rule for {type(step.op).__name__}", _INSTEAD)
            for step in plan
            if lower.dispatch(type(step.op)) is lower.dispatch(Op)
        ]
        spark_sql = [(step.name, find_spark_sql(step.op)) for step in plan]
        return gaps + [Gap(name, f"{sql} runs on Spark only", _SPARK) for name, sql in spark_sql if sql]

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> ReferenceRun:
        """Implement `Engine.start`."""
        self._refuse(plan, options)
        return ReferenceRun(Interpreter(plan, clock=clock, events=events), options)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> ReferenceHarness:
        """Implement `Engine.open_harness`."""
        self._refuse(plan, options)
        return ReferenceHarness(Interpreter(plan, clock=clock, events=events), options)

    def explain(self, plan: Plan) -> Sequence[str]:
        """Implement `Engine.explain`."""
        lines = [
            "plain Python, one row at a time: made to be right, not fast",
            f"{len(plan.steps)} steps in one thread, {len(plan.sources)} batches a round",
        ]
        ignored = [step.name for step in plan if step.degree.most > 1]
        if ignored:
            lines.append(f"one replica each; the degree changes no result: {', '.join(ignored)}")
        return lines

    def _refuse(self, plan: Plan, options: RunOptions) -> None:
        name = "the reference engine"
        no_use = f"{name} keeps no state, so checkpoint={options.checkpoint!r} is no use to it"
        elsewhere = f"{name} runs here and nowhere else, and was given a master"
        unknown = f"{name} has no options, and got {type(options.engine).__name__}"
        for option, fact, hint in (
            (options.checkpoint, no_use, "leave checkpoint out, or use another engine"),
            (options.master, elsewhere, "leave master out"),
            (options.engine, unknown, "leave options out"),
        ):
            if option is not None:
                raise NotSupported(fact, hint=hint)
        for gap in self.gaps(plan):
            raise NotSupported(gap.reason, step=gap.step, hint=gap.instead)
