"""A run that adapts itself: the elastic controller beside it, and what it may change.

Threads come and go in the pool. The replicas of a stateless elastic step are all there from the start, and as
many as are needed have their turn (`outlets.InTurn`): a change is a message among the others, so the order
behind them is kept. Steps with state per key keep the replicas that they began with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.clock import Clock
from penstock.engines.local.elastic.live import Elasticity, Plant, limits_of
from penstock.engines.local.making import Made
from penstock.engines.local.network import Network
from penstock.engines.local.pool import Pool
from penstock.engines.local.settings import Settings
from penstock.engines.local.statistics import NodeStatistics
from penstock.events import Event, EventSink


class Scaling:
    """The replicas of a network that can be more or fewer."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def most(self) -> dict[str, int]:
        """Step -> replicas that it may have."""
        return {step: len(dealers[0].channels) for step, dealers in self._network.dealers.items()}

    def set_replicas(self, step: str, n: int) -> bool:
        """Let so many replicas have their turn, from the next batches on; gives whether that can be done."""
        if not 1 <= n <= self.most.get(step, 0):
            return False
        for dealer in self._network.dealers[step]:
            dealer.rescale(n)
        return True

    def active(self) -> list[NodeStatistics]:
        """The statistics of the replicas that have their turn."""
        found = []
        for bench in self._network.benches:
            dealers = self._network.dealers.get(bench.group.head.name)
            n_active = len(bench.nodes) if dealers is None else dealers[0].n_active
            found += [node.statistics for node in bench.nodes[:n_active]]
        return found


@contextmanager
def adapting(run: Made, pool: Pool, settings: Settings, clock: Clock) -> Iterator[None]:
    """The controller beside what happens inside, if one was asked for."""
    if settings.elastic is None or settings.seed is not None:
        yield
        return
    scaling = Scaling(run.network)
    limits, period_us = limits_of(settings.elastic, settings.cores)
    plant = Plant(
        nodes=scaling.active,
        threads=lambda: pool.n_threads,
        set_threads=pool.set_threads,
        set_replicas=scaling.set_replicas,
        now=run.dispatcher.now,
        most=scaling.most,
    )
    controller = Elasticity(plant, limits, period_us, clock=clock, events=_teller(run))
    controller.start()
    try:
        yield
    finally:
        controller.stop()


def _teller(run: Made) -> EventSink:
    def tell(event: Event) -> None:
        try:
            run.progress.tell(event)
        except Exception as failure:  # who listens has failed, and so has the run
            run.dispatcher.failed(run.network.nodes[0], failure)

    return tell
