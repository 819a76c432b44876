"""Everything that a run is made of: for runs that go by themselves and for those fed by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
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
from penstock.engines.local.topology.network import ExecutionGraph
from penstock.engines.protocol import Measurements, RunOptions
from penstock.engines.sources import load_tables
from penstock.frozen import dataclass
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.local.checkpoint import CheckpointCoordinator
    from penstock.engines.local.metrics.latency import TimeBreakdown
    from penstock.events import EventSink

MAX_SIMULATED_QUANTUM = 5
"""Messages in a turn of a simulated run, at most."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A run before it begins."""

    graph: ExecutionGraph
    dispatcher: Dispatcher
    progress: Progress
    breakdown: TimeBreakdown | None = None

    def measurements(self) -> Measurements | None:
        """Latency and where the time went so far, if that is measured."""
        latencies = self.progress.latencies
        if self.breakdown is None or latencies is None:
            return None
        return self.breakdown.measurements(self.graph, latencies)


def build_runtime(
    plan: Plan,
    settings: Settings,
    options: RunOptions,
    *,
    clock: Clock,
    events: EventSink,
    feeds: Mapping[str, SourceInput] | None = None,
    saving: CheckpointCoordinator | None = None,
    processes: ProcessPool | None = None,
) -> Runtime:
    """Nodes, channels and the dispatcher; tables are read here, and nothing is opened yet."""
    plan = load_tables(plan)
    in_rounds = settings.deterministic or feeds is not None or saving is not None
    first = 0 if saving is None else saving.done.rounds
    progress = Progress(clock, events, until=options.until, first=first)
    progress.checkpoint = saving
    dispatcher, breakdown = _dispatcher(settings), None
    if (progress.has_listener or settings.measure) and settings.seed is None:
        from penstock.engines.local.metrics.latency import LatencyTracker, TimeBreakdown

        progress.latencies, breakdown = LatencyTracker(), TimeBreakdown(dispatcher.now)
    # A worker that lends itself out would seem busy with two nodes at once.
    dispatcher.allows_borrowing = settings.elastic is None and breakdown is None
    building = TaskBuilder(
        plan,
        clock,
        progress,
        in_rounds=in_rounds,
        drain=options.drain,
        feeds=feeds,
        processes=processes,
        most=settings.max_replicas if feeds is None else 1,
        watch=_nobody if breakdown is None else breakdown.watch,
        preaggregate=settings.preaggregate,
    )
    wiring = ChannelBuilder(
        building,
        dispatcher,
        progress,
        queue_size=settings.queue_size,
        in_rounds=in_rounds,
        composition=settings.composition,
    )
    graph = wiring.connect()
    progress.rescaler = graph.rescaler if graph.assignments else None
    if saving is not None:
        saving.restore(graph)
    return Runtime(graph, dispatcher, progress, breakdown)


def _nobody(worker: object) -> None:
    """Who watches a run that is not measured."""


def _dispatcher(settings: Settings) -> Dispatcher:
    """By the clock, or step by step with every choice from one seed."""
    if settings.seed is None:
        scheduler = make_scheduler(settings.scheduler, Random())  # noqa: S311  # no secrets: it picks nodes
        return Dispatcher(scheduler, time.perf_counter_ns, settings.quantum_ns)
    chance = Random(settings.seed)  # noqa: S311  # no secrets: it picks nodes
    return Dispatcher(make_scheduler("random", chance), count().__next__, MAX_SIMULATED_QUANTUM, chance)
