"""A run that adapts itself: the elastic controller beside it, and what it may change.

Threads come and go in the pool. The replicas of an elastic step are all there from the start, and as many as
are needed have something to do. Those without state have their turn (`outlets.InTurn`): a change is a message
among the others, so the order behind them is kept. Where rows go by key, state moves too (`moves.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.metrics.statistics import NodeStatistics
from penstock.engines.local.options import Settings
from penstock.engines.local.runtime import Made
from penstock.engines.local.scheduling.pool import Pool
from penstock.engines.local.topology.network import Bench, Network

if TYPE_CHECKING:
    from penstock.events import Event, EventSink


class Scaling:
    """The replicas of a network that can be more or fewer."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._leaders = {leader.step: leader for leader in network.leaders.values()}

    @property
    def most(self) -> dict[str, int]:
        """Step -> replicas that it may have."""
        dealt = {step: len(dealers[0].channels) for step, dealers in self._network.dealers.items()}
        return dealt | {step: leader.most for step, leader in self._leaders.items()}

    def set_replicas(self, step: str, n: int) -> bool:
        """Have so many replicas, from the next batches or the end of a round on; whether that can be done.

        Not as long as the change before has not been made: it would be told again and again.
        """
        if step in self._leaders:
            leader = self._leaders[step]
            return not self._network.moves.is_asked(leader) and leader.ask(n)
        dealers = self._network.dealers.get(step, ())
        if not 1 <= n <= self.most.get(step, 0) or any(dealer.is_changing for dealer in dealers):
            return False
        for dealer in self._network.dealers[step]:
            dealer.rescale(n)
        return True

    def is_changing(self) -> bool:
        """Whether a change that was asked for has not been made yet."""
        dealers = (dealer for found in self._network.dealers.values() for dealer in found)
        return self._network.moves.under_way or any(dealer.is_changing for dealer in dealers)

    def active(self) -> list[NodeStatistics]:
        """The statistics of the replicas that have something to do."""
        return [node.statistics for bench in self._network.benches for node in bench.nodes[: self._n(bench)]]

    def _n(self, bench: Bench) -> int:
        leader = self._network.leaders.get(bench.group.number)
        if leader is not None:
            return leader.n
        dealers = self._network.dealers.get(bench.group.head.name)
        return len(bench.nodes) if dealers is None else dealers[0].n_active


@contextmanager
def adapting(run: Made, pool: Pool, settings: Settings, clock: Clock) -> Iterator[None]:
    """The controller beside what happens inside, if one was asked for."""
    if settings.elastic is None or settings.seed is not None:
        yield
        return
    from penstock.engines.local.elastic.live import Elasticity, Plant, limits_of

    scaling = Scaling(run.network)
    # More threads than cores are what the user wants: blocking functions can use them.
    limits, period_us = limits_of(settings.elastic, max(settings.cores, settings.threads))
    plant = Plant(
        nodes=scaling.active,
        threads=lambda: pool.n_threads,
        set_threads=pool.set_threads,
        set_replicas=scaling.set_replicas,
        is_changing=scaling.is_changing,
        now=run.dispatcher.now,
        most=scaling.most,
        least={step: run.network.plan[step].degree.least for step in scaling.most},
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
