"""The seam between a plan and what runs it.

An engine says what it cannot do before it starts, then carries a plan's batches. `start` gives a run
that goes by itself; `open_harness` gives one that is fed by hand, which the public test harness drives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.frozen import dataclass
from penstock.plan.plan import Plan, Ref

if TYPE_CHECKING:
    from penstock.events import EventSink


@dataclass(frozen=True, slots=True)
class Gap:
    """Something in a plan that an engine cannot do: which step, why, and what to do instead."""

    step: str
    reason: str
    instead: str


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run is given beside its plan.

    checkpoint  folder for state and positions; None keeps nothing
    until       stop after so many rounds of batches; None runs to the end of the sources
    drain       close all windows at the end of the sources; False keeps them for the next run
    master      where to run, for engines that can run elsewhere
    engine      the engine's own options object (LocalOptions, SparkOptions)
    """

    checkpoint: str | None = None
    until: int | None = None
    drain: bool = True
    master: str | None = None
    engine: object = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Time from reading a batch until its results were committed by a sink, in microseconds.

    Percentiles are over rows and at most an eighth too high; the maximum is exact.
    """

    rows: int
    p50_us: int
    p95_us: int
    p99_us: int
    max_us: int


@dataclass(frozen=True, slots=True)
class Measurements:
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
        """Returns the measurements as plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a finished run says of itself.

    outcome    "drained", or "stopped" when it was stopped before the sources ended
    batches    rounds of source batches that went through
    accounts   step -> what became of its rows
    collected  the tables that were asked for in hand
    measured   latency and where the time went, where the engine measures that
    """

    outcome: str
    batches: int
    accounts: Mapping[str, Accounts]
    collected: Mapping[Ref, pa.Table] = field(default_factory=dict)
    measurements: Measurements | None = None


class Run(Protocol):
    """A run under way."""

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run is over; raises what stopped it, TimeoutError if it takes longer (seconds)."""

    def stop(self) -> None:
        """Ask the run to stop after the batch at hand; `wait` then returns."""

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""


class EngineHarness(Protocol):
    """A run fed by hand: one `push` is one round of batches."""

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """Take one batch per named source, all the way through."""

    def promise(self, watermark: int) -> None:
        """Move every source's watermark to a time in microseconds, as an empty round."""

    def take(self, ref: Ref) -> pa.Table:
        """Rows that left on a collected port since the last take."""

    def end(self) -> RunResult:
        """End all sources and drain."""

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""


class Engine(Protocol):
    """Something that runs plans."""

    @property
    def name(self) -> str:
        """What `run(engine=...)` calls it."""

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """What it cannot do in this plan; empty when it runs as written."""

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> Run:
        """Begin a run."""

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        """Begin a run fed by hand."""

    def explain(self, plan: Plan) -> Sequence[str]:
        """The engine's choices and why, one line each, for `graph.explain()`."""
