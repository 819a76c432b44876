"""The runtime of a run: its execution graph, dispatcher and progress, built from a plan and settings.

Runs in threads (`run.py`) and runs that a test harness drives (`harness.py`) are built here in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.options import Settings
from penstock.engines.local.processes import ProcessPool
from penstock.engines.local.progress import Progress
from penstock.engines.local.schedulers.registry import make_scheduler
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.tasks.source import SourceInput
from penstock.engines.local.topology.build import TaskBuilder
from penstock.engines.local.topology.connect import ChannelBuilder
from penstock.engines.local.topology.graph import ExecutionGraph
from penstock.engines.protocol import Measurements, RunOptions, RunResult
from penstock.engines.sources import load_tables
from penstock.frozen import dataclass
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.checkpoint.checkpoint import Checkpoint
    from penstock.engines.local.checkpoint import CheckpointCoordinator
    from penstock.engines.local.metrics.latency import TimeBreakdown
    from penstock.events import EventSink

MAX_SIMULATED_QUANTUM = 5
"""Messages in a quantum of a simulated run, at most."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that a run is made of."""

    graph: ExecutionGraph
    dispatcher: Dispatcher
    progress: Progress
    breakdown: TimeBreakdown | None = None

    def open_sinks(self, checkpoint: Checkpoint | None = None) -> None:
        """Opens all sinks; if one fails, everything is closed again."""
        known = ((checkpoint and checkpoint.saved_graph) or {}).get("steps", {})
        coordinator = self.progress.checkpoint
        try:
            for name, writer in self.graph.writers.items():
                n_written = 0 if coordinator is None else coordinator.n_written(name)
                writer.open(resume=name in known, n_written=n_written)
            if checkpoint is not None:
                checkpoint.adopt()
        except BaseException:
            with suppress(Exception):
                self.close()
            raise

    def close(self) -> None:
        """Closes all readers and sinks, whatever happens to one of them; then raises the first error."""
        first: Exception | None = None
        closes = [reader.close for reader in self.graph.readers.values()]
        closes += [writer.close for writer in self.graph.writers.values()]
        for close in closes:
            try:
                close()
            except Exception as failure:
                first = first or failure
        if first is not None:
            raise first

    def begin_shutdown(self) -> None:
        """Tells all sinks that the run is to end soon."""
        for writer in self.graph.writers.values():
            writer.begin_shutdown()

    def measurements(self) -> Measurements | None:
        """Returns latencies and where the time went so far, if they are measured."""
        latencies = self.progress.latencies
        if self.breakdown is None or latencies is None:
            return None
        return self.breakdown.measurements(self.graph, latencies)

    def result(self, outcome: str) -> RunResult:
        """Returns the result of a run that has ended."""
        tables = {ref: rows.table() for ref, rows in self.graph.collections.items()}
        return RunResult(outcome, self.progress.batches, self.graph.accounts(), tables, self.measurements())


def build_runtime(
    plan: Plan,
    settings: Settings,
    options: RunOptions,
    *,
    clock: Clock,
    events: EventSink,
    inputs: Mapping[str, SourceInput] | None = None,
    checkpoint: CheckpointCoordinator | None = None,
    processes: ProcessPool | None = None,
) -> Runtime:
    """Builds tasks, channels and the dispatcher; tables are read here, and nothing is opened yet.

    inputs      source -> its batches, if a harness pushes them
    checkpoint  restores the tasks from its latest checkpoint
    processes   worker processes, forked before
    """
    plan = load_tables(plan)
    in_rounds = settings.deterministic or inputs is not None or checkpoint is not None
    first = 0 if checkpoint is None else checkpoint.done.rounds
    progress = Progress(clock, events, until=options.until, first=first)
    progress.checkpoint = checkpoint
    dispatcher, breakdown = _build_dispatcher(settings), None
    if (progress.has_listener or settings.measure) and settings.seed is None:
        from penstock.engines.local.metrics.latency import LatencyTracker, TimeBreakdown

        progress.latencies, breakdown = LatencyTracker(), TimeBreakdown(dispatcher.now)
    # Why: a worker that also runs a borrowed task would seem busy with two tasks at once.
    dispatcher.allows_borrowing = settings.elastic is None and breakdown is None
    tasks = TaskBuilder(
        plan,
        clock,
        progress,
        in_rounds=in_rounds,
        drain=options.drain,
        inputs=inputs,
        processes=processes,
        max_replicas=settings.max_replicas if inputs is None else 1,
        observe=(lambda worker: None) if breakdown is None else breakdown.observe,
        preaggregate=settings.preaggregate,
    )
    channels = ChannelBuilder(
        tasks,
        dispatcher,
        progress,
        queue_size=settings.queue_size,
        in_rounds=in_rounds,
        composition=settings.composition,
    )
    graph = channels.connect()
    progress.rescaler = graph.rescaler if graph.assignments else None
    if checkpoint is not None:
        checkpoint.restore(graph)
    return Runtime(graph, dispatcher, progress, breakdown)


def _build_dispatcher(settings: Settings) -> Dispatcher:
    """Returns a dispatcher by the clock, or one of a simulated run with every choice from one seed."""
    if settings.seed is None:
        scheduler = make_scheduler(settings.scheduler, Random())  # noqa: S311  # no secrets: it picks tasks
        return Dispatcher(scheduler, time.perf_counter_ns, settings.quantum_ns)
    random = Random(settings.seed)  # noqa: S311  # no secrets: it picks tasks
    return Dispatcher(make_scheduler("random", random), count().__next__, MAX_SIMULATED_QUANTUM, random)
