"""The interface between a plan and what runs it, how an engine is found by its name, and a run in a thread.

An engine says what it cannot do before it starts (`gaps`). `start` begins a run that executes by itself, in a
thread that is a daemon, so it never keeps a process alive; `open_harness` begins one that is fed round by
round, which the public test harness drives.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import asdict, field
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import STOP_REQUESTED, SourceBatch
from penstock.engines.run_log import FIRST_LOOK_S, LOGGER, LOOK_S, RunLog, RunStatus, describe_status
from penstock.errors import EngineError, GraphError, nearest_first
from penstock.frozen import Frozen
from penstock.plan.plan import Plan, Ref

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from penstock.engines.local.metrics.statistics import TaskStatistics
    from penstock.events import EventSink


ENTRY_POINTS = "penstock.engines"
"""The group of entry points under which other packages offer engines."""
BUILT_IN = {
    "local": "penstock.engines.local.engine:LocalEngine",
    "reference": "penstock.engines.reference.engine:ReferenceEngine",
    "spark": "penstock.engines.spark.engine:SparkEngine",
}


class Gap(Frozen):
    """Something in a plan that an engine cannot do: which step, why, and what to do instead."""

    step: str
    reason: str
    instead: str


class RunOptions(Frozen):
    """The options of a run.

    checkpoint  folder for state and positions; None saves nothing
    until       stop after this many rounds of batches; None runs to the end of the sources
    drain       close all windows at the end of the sources; False keeps them for the next run
    master      where to run, for engines that can run elsewhere
    engine      the engine's own options object (LocalOptions, SparkOptions)
    """

    checkpoint: str | None = None
    until: int | None = None
    drain: bool = True
    master: str | None = None
    engine: object = None


class Latency(Frozen):
    """Time from reading a batch until its results were committed by a sink, in microseconds.

    Percentiles are over rows and at most an eighth too high; the maximum is exact.
    """

    rows: int
    p50_us: int
    p95_us: int
    p99_us: int
    max_us: int


class Measurements(Frozen):
    """Latency by sink, and time and memory by step (WindFlow, 5.4).

    user_us       time in the step's own work: its functions, expressions and windows, its reader or writer
    system_us     time in everything else its tasks did: partitioning, channels, rounds; for fused steps this
                  is counted at the first of them
    state_nbytes  the most memory that the windows of a step held, summed over its replicas
    """

    latency: Mapping[str, Latency]
    user_us: Mapping[str, int]
    system_us: Mapping[str, int]
    state_nbytes: Mapping[str, int]

    def to_dict(self) -> dict[str, object]:
        """Return the measurements as plain data for JSON."""
        return asdict(self)


class RunResult(Frozen):
    """The result of a finished run.

    outcome       "drained", or "stopped" when it was stopped before the sources ended
    batches       number of rounds of source batches that were processed
    accounts      step -> what became of its rows
    collected     the tables that were asked for in memory
    measurements  latency and where the time went, where the engine measures that
    """

    outcome: str
    batches: int
    accounts: Mapping[str, Accounts]
    collected: Mapping[Ref, pa.Table] = field(default_factory=dict)
    measurements: Measurements | None = None


class Run(Protocol):
    """A run in progress."""

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run is over; raise what stopped it, or TimeoutError after `timeout` seconds."""

    def stop(self, *, drain: bool = False) -> None:
        """Ask the run to stop after the current batch, with `drain` after closing all windows."""

    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""

    def status(self) -> RunStatus:
        """Return how the run is doing: its state, rows in and out, watermarks, lag, and its error."""

    async def finished(self) -> RunResult:
        """Wait for the end as `wait` does, without blocking the event loop; it does not stop the run."""

    def statistics(self) -> Sequence[TaskStatistics]:
        """Return what every task has counted so far; nothing where the engine does not count."""

    def measurements(self) -> Measurements | None:
        """Return latencies and where the time went so far, where the engine measures them."""


class EngineHarness(Protocol):
    """A run that is fed by its caller: one `push` is one round of batches."""

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """Process one batch for each named source, through all steps."""

    def promise(self, watermark: int) -> None:
        """Move every source's watermark to a time in microseconds, as an empty round."""

    def take(self, ref: Ref) -> pa.Table:
        """Return the rows emitted on a collected port since the last call."""

    def end(self) -> RunResult:
        """End all sources and drain."""

    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""


class RoundHarness(ABC):
    """What the harnesses of all engines share.

    again      what to do once the run is over, for the error
    collected  what was emitted on the collected ports so far
    table      returns the rows of such a port, without the first so many of its items
    """

    again: ClassVar[str]
    collected: Mapping[Ref, Sized]
    table: Callable[[Ref, int], pa.Table]

    def __init__(self, plan: Plan) -> None:
        self._plan, self._over = plan, False
        self._n_taken: dict[Ref, int] = {}

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """Implement `EngineHarness.push`."""
        sources = [step.name for step in self._plan.sources]
        for name in batches:
            if name not in sources:
                raise GraphError(
                    f'there is no source "{name}" in this run',
                    detail=f"the sources are {', '.join(nearest_first(name, sources))}",
                )
        self._refuse_over()
        self._round(batches)

    def promise(self, watermark: int) -> None:
        """Implement `EngineHarness.promise`."""
        self._refuse_over()
        self._promise(watermark)
        self._round({})

    def take(self, ref: Ref) -> pa.Table:
        """Implement `EngineHarness.take`."""
        collected = self.collected
        if ref not in collected:
            ports = nearest_first(str(ref), map(str, collected))
            raise GraphError(
                f'rows of "{ref}" are not collected in this run', detail=f"collected are {', '.join(ports)}"
            )
        first, self._n_taken[ref] = self._n_taken.get(ref, 0), len(collected[ref])
        return self.table(ref, first)

    def _refuse_over(self) -> None:
        if self._over:
            raise EngineError(f'the run of "{self._plan.graph}" is over', hint=self.again)

    @abstractmethod
    def _round(self, batches: Mapping[str, SourceBatch]) -> None:
        """Process one round."""

    @abstractmethod
    def _promise(self, watermark: int) -> None:
        """Move the watermark of every source."""


class Engine(Protocol):
    """Something that runs plans."""

    @property
    def name(self) -> str:
        """Return the name in `run(engine=...)`."""

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Return what it cannot do in this plan; empty when it runs as written."""

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> Run:
        """Begin a run."""

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        """Begin a run that is fed by its caller."""

    def explain(self, plan: Plan) -> Sequence[str]:
        """Return the engine's choices and why, one line each, for `graph.explain()`."""


def find_engine(name: str) -> Engine:
    """Return the engine of that name; raise EngineError with the available names if there is none."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        engine: Engine = getattr(import_module(module), attribute)()
        return engine
    for entry_point in _entry_points().select(name=name):
        offered: Engine = entry_point.load()()
        return offered
    names = nearest_first(name, engine_names())
    detail, hint = f"available: {', '.join(names)}", f'use engine="{names[0]}"'
    raise EngineError(f'there is no engine "{name}"', detail=detail, hint=hint)


def engine_names() -> list[str]:
    """Return the names of all installed engines."""
    return sorted({*BUILT_IN, *(entry_point.name for entry_point in _entry_points())})


def _entry_points() -> EntryPoints:
    """Return the engines of other packages. Called only for other names: it looks into every package."""
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)


GRACE_SECONDS = 5.0
"""How long the rounds in progress may take to end after a signal; a reader that never ends is left behind."""
POLL_SECONDS = 0.2
"""How long it takes at most until a signal is noticed."""
CLAIM_SECONDS = 0.2
"""How long a failed run waits for somebody who takes its error, where no log is set up."""


class BackgroundRun(ABC):
    """A run that executes in its own thread once it has begun."""

    grace_seconds = GRACE_SECONDS

    def __init__(self, plan: Plan, engine: str, clock: Clock) -> None:
        self._plan, self._clock, self._engine, self._log = plan, clock, engine, RunLog(plan)
        self._stopping, self._over, self._drains = threading.Event(), threading.Event(), False
        self._claimed = threading.Event()  # somebody waits for the end, and gets the error
        self._abandoned = False
        self._lock, self._wakes = threading.Lock(), list[Callable[[], None]]()
        self._result: RunResult | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-{engine}", daemon=True)
        self._observer = threading.Timer(FIRST_LOOK_S, self._observe)
        self._observer.name, self._observer.daemon = "penstock-log", True

    @abstractmethod
    def execute(self) -> RunResult:
        """Execute the whole run, from opening to closing."""

    @abstractmethod
    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""

    def watermarks(self) -> Mapping[str, float]:
        """Return the watermark of every source that has a time; infinite before the first and at the end."""
        return {}

    def idle_sources(self) -> frozenset[str]:
        """Return the sources whose watermark is not waited for, because they are silent."""
        return frozenset()

    def begin(self) -> None:
        """Start the thread; a signal before anyone can wait for the run stops it as well."""
        plan = self._plan
        LOGGER.info('run of "%s" started on engine %s: %d steps', plan.graph, self._engine, len(plan.steps))
        try:
            self._thread.start()  # returns when the thread runs, which may be long after rows flow
            self._observer.start()
        except (KeyboardInterrupt, SystemExit):
            self.stop_after_signal()
            raise

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run is over; raise what stopped it, or TimeoutError if it takes longer."""
        thread = threading.current_thread()
        may_work = thread is not threading.main_thread()  # that one never does
        if thread is self._thread or (may_work and self.is_worker(thread)):
            graph = self._plan.graph
            raise EngineError(
                f"a function of the run of {graph} waits for the end of that run, which waits for it",
                hint="call wait() in the thread that started the run; stop() may be called anywhere",
            )
        self._claimed.set()
        # Why not join(): interrupted, it would take the thread for ended. And why in short waits: a signal
        # that arrives while a thread is about to wait does not end the wait, since Python only notes it.
        deadline = inf if timeout is None else time.monotonic() + timeout
        try:
            while not self._over.wait(min(POLL_SECONDS, deadline - time.monotonic())):
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"the run of {self._plan.graph} is not over after {timeout} s")
        except (KeyboardInterrupt, SystemExit):
            self.stop_after_signal()
            raise
        self._thread.join()
        self._observer.join()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None, "a run that did not fail has a result"
        return self._result

    async def finished(self) -> RunResult:
        """Wait for the end without blocking the event loop; to stop waiting does not stop the run."""
        import asyncio  # for those whose program has it already

        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                loop.call_soon_threadsafe(over.set)

        self._claimed.set()
        with self._lock:
            if self._over.is_set():
                over.set()
            else:
                self._wakes.append(wake)
        try:
            await over.wait()
        finally:
            with self._lock, suppress(ValueError):
                self._wakes.remove(wake)
        return self.wait()

    def stop(self, *, drain: bool = False) -> None:
        """Ask the run to stop after the rounds in progress, with `drain` after closing all windows."""
        self._drains = self._drains or drain
        self._stopping.set()

    def status(self) -> RunStatus:
        """Return how the run is doing: its state, rows in and out, watermarks, lag, and its error."""
        state = "stopping" if self._stopping.is_set() else "running"
        if self._over.is_set():
            state = "failed" if self._result is None else self._result.outcome
        now = self._clock.now()
        return describe_status(self._plan, state, self.metrics(), self.watermarks(), now, self._failure)

    def statistics(self) -> Sequence[TaskStatistics]:
        """Return what every task has counted so far; nothing where the engine does not count."""
        return ()

    def measurements(self) -> Measurements | None:
        """Return latencies and where the time went so far, where the engine measures them."""
        return None

    def is_worker(self, thread: threading.Thread) -> bool:
        """Return whether a thread, other than that of the run, does its work."""
        return False

    def abandon(self) -> None:
        """Give up at once, when the grace period after a signal has passed, or another signal has come."""
        return

    def stop_after_signal(self) -> None:
        """Stop, and wait for a while until it is over; give up at once if a stop was asked for before."""
        is_second = self._stopping.is_set()
        self._claimed.set()
        self.stop()
        deadline = time.monotonic() + (0.0 if is_second else self.grace_seconds)
        try:
            while not self._over.wait(POLL_SECONDS) and time.monotonic() < deadline:
                continue
        finally:
            if not self._over.is_set() and not self._abandoned:
                self._abandoned = True
                LOGGER.warning('run of "%s" has not stopped yet: its work is given up', self._plan.graph)
                self.abandon()
        self._thread.join(POLL_SECONDS)
        if self._observer.is_alive():
            self._observer.join(POLL_SECONDS)

    def _run(self) -> None:
        STOP_REQUESTED.set(self._stopping.is_set)  # of this thread
        reports = True
        try:
            result = self._result = self.execute()
            end = f"{result.outcome} after {result.batches:,} batches"
            self._log.report(result.accounts, end=end)
        except BaseException as failure:  # raised again in wait(), in the user's thread
            self._failure = failure
            # Why: without handlers Python prints errors, and who waits for the run is going to show this one.
            reports = LOGGER.hasHandlers()
            if reports:
                self._log.report_failure(failure)
        finally:
            with self._lock:
                self._over.set()
                wakes, self._wakes = self._wakes, []
            self._observer.cancel()
            for wake in wakes:
                wake()
        if not reports and self._failure is not None and not self._claimed.wait(CLAIM_SECONDS):
            self._log.report_failure(self._failure)

    def _observe(self) -> None:
        """Warn, now and then, of what the run has dropped."""
        is_over = self._over.is_set()
        while not is_over:
            with suppress(RuntimeError):  # counts that changed while they were copied: the next look has them
                self._log.report(self.metrics(), self.idle_sources())
            is_over = self._over.wait(LOOK_S)
