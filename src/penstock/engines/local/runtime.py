"""Everything that a run is made of: for runs that go by themselves and for those fed by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.options import Settings
from penstock.engines.local.processes import Crew
from penstock.engines.local.progress import Progress
from penstock.engines.local.schedulers import make
from penstock.engines.local.scheduling.dispatch import Dispatcher
from penstock.engines.local.tasks.source import SourceInput
from penstock.engines.local.topology.build import Building
from penstock.engines.local.topology.connect import Wiring
from penstock.engines.local.topology.network import Network
from penstock.engines.protocol import Measurements, RunOptions
from penstock.engines.sources import load_tables
from penstock.frozen import dataclass
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.local.checkpoint import Saving
    from penstock.engines.local.metrics.latency import Breakdown
    from penstock.events import EventSink

LONGEST_TURN = 5
"""Messages in a turn of a simulated run, at most."""


@dataclass(frozen=True, slots=True)
class Made:
    """A run before it begins."""

    network: Network
    dispatcher: Dispatcher
    progress: Progress
    breakdown: Breakdown | None = None

    def measurements(self) -> Measurements | None:
        """Latency and where the time went so far, if that is measured."""
        latencies = self.progress.latencies
        if self.breakdown is None or latencies is None:
            return None
        return self.breakdown.measurements(self.network, latencies)


def made(
    plan: Plan,
    settings: Settings,
    options: RunOptions,
    *,
    clock: Clock,
    events: EventSink,
    feeds: Mapping[str, SourceInput] | None = None,
    saving: Saving | None = None,
    crew: Crew | None = None,
) -> Made:
    """Nodes, channels and the dispatcher; tables are read here, and nothing is opened yet."""
    plan = load_tables(plan)
    in_rounds = settings.deterministic or feeds is not None or saving is not None
    first = 0 if saving is None else saving.done.rounds
    progress = Progress(clock, events, until=options.until, first=first)
    progress.saving = saving
    dispatcher, breakdown = _dispatcher(settings), None
    if (progress.telling or settings.measure) and settings.seed is None:
        from penstock.engines.local.metrics.latency import Breakdown, Latencies

        progress.latencies, breakdown = Latencies(), Breakdown(dispatcher.now)
    # A worker that lends itself out would seem busy with two nodes at once.
    dispatcher.lends = settings.elastic is None and breakdown is None
    building = Building(
        plan,
        clock,
        progress,
        in_rounds=in_rounds,
        drain=options.drain,
        feeds=feeds,
        crew=crew,
        most=settings.most_replicas if feeds is None else 1,
        watch=_nobody if breakdown is None else breakdown.watch,
        preaggregate=settings.preaggregate,
    )
    wiring = Wiring(
        building,
        dispatcher,
        progress,
        queue_size=settings.queue_size,
        in_rounds=in_rounds,
        composition=settings.composition,
    )
    network = wiring.connect()
    progress.moves = network.moves if network.leaders else None
    if saving is not None:
        saving.restore(network)
    return Made(network, dispatcher, progress, breakdown)


def _nobody(worker: object) -> None:
    """Who watches a run that is not measured."""


def _dispatcher(settings: Settings) -> Dispatcher:
    """By the clock, or step by step with every choice from one seed."""
    if settings.seed is None:
        scheduler = make(settings.scheduler, Random())  # noqa: S311  # no secrets: it picks nodes
        return Dispatcher(scheduler, time.perf_counter_ns, settings.quantum_ns)
    chance = Random(settings.seed)  # noqa: S311  # no secrets: it picks nodes
    return Dispatcher(make("random", chance), count().__next__, LONGEST_TURN, chance)
