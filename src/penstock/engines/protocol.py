"""The interface between a plan and what runs it, and how an engine is found by its name.

An engine says what it cannot do before it starts (`gaps`). `start` begins a run that executes by itself
(`background_run.py`); `open_harness` begins one that is fed round by round, which the public test harness
drives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import asdict, field
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.errors import EngineError, GraphError, nearest_first
from penstock.frozen import Frozen
from penstock.plan.plan import Plan, Ref

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from penstock.engines.local.metrics.statistics import TaskStatistics
    from penstock.engines.run_log import RunStatus
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
    renamed     the name of a step in the checkpoint -> in the plan
    """

    checkpoint: str | None = None
    until: int | None = None
    drain: bool = True
    master: str | None = None
    engine: object = None
    renamed: Mapping[str, str] = field(default_factory=dict)


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

    outcome       "drained"; "ended" when the sources have ended, and what was not closed is kept for the next
                  run; "stopped" when it was stopped before
    batches       number of rounds of source batches that were processed
    accounts      step -> what became of its rows
    collected     the tables that were asked for in memory
    measurements  latency and where the time went, where the engine measures that
    waiting       step -> what waits in the checkpoint for the next run: open windows of a window step, else
                  rows; `run(checkpoint=…, drain=True)` closes them
    """

    outcome: str
    batches: int
    accounts: Mapping[str, Accounts]
    collected: Mapping[Ref, pa.Table] = field(default_factory=dict)
    measurements: Measurements | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)


class Run(Protocol):
    """A run in progress."""

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run is over; raise what stopped it, or TimeoutError after `timeout` seconds."""

    def stop(self, *, drain: bool = False) -> None:
        """Ask the run to stop after the current batch; `wait` then returns.

        With `drain` all windows are closed first, as at the end of the sources.
        """

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
    raise EngineError(
        f'there is no engine "{name}"',
        detail=f"available: {', '.join(names)}",
        hint=f'use engine="{names[0]}"',
    )


def engine_names() -> list[str]:
    """Return the names of all installed engines."""
    return sorted({*BUILT_IN, *(entry_point.name for entry_point in _entry_points())})


def _entry_points() -> EntryPoints:
    """Return the engines of other packages. Called only for other names: it looks into every package."""
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)
