"""A run that adapts itself: the elastic controller beside it, and what it may change.

Threads come and go in the pool. The replicas of an elastic step are all there from the start, and as many as
are needed have something to do. Those without state have their turn (`outputs.InTurn`): a change is a message
among the others, so the order behind them is kept. Where rows go by key, state moves too (`moves.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.engines.local.options import Settings
from penstock.engines.local.runtime import Runtime
from penstock.engines.local.scheduling.pool import ThreadPool
from penstock.engines.local.topology.network import ExecutionGraph, Replicas

if TYPE_CHECKING:
    from penstock.events import Event, EventSink


class ReplicaScaling:
    """The replicas of a network that can be more or fewer."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._leaders = {assignment.step: assignment for assignment in graph.assignments.values()}

    @property
    def most(self) -> dict[str, int]:
        """Step -> replicas that it may have."""
        dealt = {step: len(dealers[0].channels) for step, dealers in self._graph.elastic_outputs.items()}
        return dealt | {step: assignment.most for step, assignment in self._leaders.items()}

    def set_replicas(self, step: str, n: int) -> bool:
        """Have so many replicas, from the next batches or the end of a round on; whether that can be done.

        Not as long as the change before has not been made: it would be told again and again.
        """
        if step in self._leaders:
            assignment = self._leaders[step]
            return not self._graph.rescaler.is_asked(assignment) and assignment.ask(n)
        dealers = self._graph.elastic_outputs.get(step, ())
        if not 1 <= n <= self.most.get(step, 0) or any(dealer.is_changing for dealer in dealers):
            return False
        for dealer in self._graph.elastic_outputs[step]:
            dealer.rescale(n)
        return True

    def is_changing(self) -> bool:
        """Whether a change that was asked for has not been made yet."""
        dealers = (dealer for found in self._graph.elastic_outputs.values() for dealer in found)
        return self._graph.rescaler.under_way or any(dealer.is_changing for dealer in dealers)

    def active(self) -> list[TaskStatistics]:
        """The statistics of the replicas that have something to do."""
        return [node.statistics for bench in self._graph.replicas for node in bench.nodes[: self._n(bench)]]

    def _n(self, bench: Replicas) -> int:
        assignment = self._graph.assignments.get(bench.group.number)
        if assignment is not None:
            return assignment.n
        dealers = self._graph.elastic_outputs.get(bench.group.head.name)
        return len(bench.nodes) if dealers is None else dealers[0].n_active


@contextmanager
def elastic_controller(run: Runtime, pool: ThreadPool, settings: Settings, clock: Clock) -> Iterator[None]:
    """The controller beside what happens inside, if one was asked for."""
    if settings.elastic is None or settings.seed is not None:
        yield
        return
    from penstock.engines.local.elastic.live import ControlledRun, ElasticController, resolve_limits

    scaling = ReplicaScaling(run.graph)
    # More threads than cores are what the user wants: blocking functions can use them.
    limits, period_us = resolve_limits(settings.elastic, max(settings.cores, settings.threads))
    plant = ControlledRun(
        nodes=scaling.active,
        threads=lambda: pool.n_threads,
        set_threads=pool.set_threads,
        set_replicas=scaling.set_replicas,
        is_changing=scaling.is_changing,
        now=run.dispatcher.now,
        most=scaling.most,
        least={step: run.graph.plan[step].degree.least for step in scaling.most},
    )
    controller = ElasticController(plant, limits, period_us, clock=clock, events=_teller(run))
    controller.start()
    try:
        yield
    finally:
        controller.stop()


def _teller(run: Runtime) -> EventSink:
    def tell(event: Event) -> None:
        try:
            run.progress.emit(event)
        except Exception as failure:  # who listens has failed, and so has the run
            run.dispatcher.record_failure(run.graph.tasks[0], failure)

    return tell
