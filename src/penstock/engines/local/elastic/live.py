"""The elastic controller of a run: a look every adaptation period, decisions carried out and reported.

Everything is done by `ElasticController.adapt`, at the end of each period. Threads come and go in the pool.
The replicas of an elastic step all exist from the start, and as many as are needed get rows: a step without
state through its outputs (`RoundRobinOutput`), so that the order behind it is kept; a keyed step by a
rescale, which moves its state (`rescale.py`). A change that cannot be made now, because a step has ended for
example, is left out, and the next sample shows that it was.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.clock import Clock
from penstock.engines.local.build import ExecutionGraph, Replicas
from penstock.engines.local.dispatch import ThreadPool
from penstock.engines.local.elastic.controller import THREADS, Limits, ScalingDecision, ScalingPolicy
from penstock.engines.local.elastic.sample import Sampler
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.engines.local.options import check_length
from penstock.errors import EngineError
from penstock.events import EventSink, ScaleDecided
from penstock.options import Elastic

MAX_UNJUDGED = 5
"""Periods in a row that a change of replicas may take before the controller judges everything else again."""


class ReplicaScaling:
    """The elastic steps of an execution graph: how many replicas they have, and changes of that."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._assignments = {assignment.step: assignment for assignment in graph.assignments.values()}

    @property
    def most(self) -> dict[str, int]:
        """Return step -> replicas that it may have."""
        stateless = {step: len(outputs[0].channels) for step, outputs in self._graph.elastic_outputs.items()}
        return stateless | {step: keyed.max_replicas for step, keyed in self._assignments.items()}

    @property
    def least(self) -> dict[str, int]:
        """Return step -> replicas that it must have."""
        return {step: self._graph.plan[step].degree.least for step in self.most}

    def set_replicas(self, step: str, n: int) -> bool:
        """Change the replicas of a step, from its next batches or the end of a round on.

        Returns False if that is impossible, or if an earlier change of the step is still in progress: the
        decision would be reported again and again.
        """
        assignment = self._assignments.get(step)
        if assignment is not None:
            rescaler = assignment.rescaler
            return not rescaler.is_requested(assignment) and rescaler.request(assignment, n)
        outputs = self._graph.elastic_outputs.get(step, ())
        if not 1 <= n <= self.most.get(step, 0) or any(output.is_rescaling for output in outputs):
            return False
        for output in outputs:
            output.rescale(n)
        return True

    def is_rescaling(self) -> bool:
        """Return whether a requested change is still in progress."""
        outputs = (output for outputs in self._graph.elastic_outputs.values() for output in outputs)
        if any(keyed.rescaler.is_requested(keyed) for keyed in self._assignments.values()):
            return True
        return any(output.is_rescaling for output in outputs)

    def active_tasks(self) -> list[TaskStatistics]:
        """Return the statistics of the replicas that get rows."""
        return [
            task.statistics
            for replicas in self._graph.replicas
            for task in replicas.tasks[: self._n_active(replicas)]
        ]

    def _n_active(self, replicas: Replicas) -> int:
        assignment = self._graph.assignments.get(replicas.group.number)
        if assignment is not None:
            return assignment.n
        outputs = self._graph.elastic_outputs.get(replicas.group.head.name)
        return len(replicas.tasks) if outputs is None else outputs[0].n_active


class ElasticController:
    """Looks at a run once per period, and changes it.

    now  nanoseconds by the clock of the statistics
    """

    def __init__(
        self,
        scaling: ReplicaScaling,
        pool: ThreadPool,
        limits: Limits,
        *,
        now: Callable[[], int],
        clock: Clock,
        events: EventSink,
    ) -> None:
        self._scaling, self._pool, self._now = scaling, pool, now
        self._clock, self._events = clock, events
        self._policy = ScalingPolicy(limits)
        self._sampler = Sampler(scaling.most, now(), scaling.least)
        self._n_rescaling = 0

    def adapt(self) -> list[ScalingDecision]:
        """Decide at the end of a period, carry decisions out and report them."""
        is_rescaling = self._scaling.is_rescaling()
        n_before, self._n_rescaling = self._n_rescaling, self._n_rescaling + 1 if is_rescaling else 0
        sample = self._sampler.look(self._scaling.active_tasks(), self._pool.n_threads, self._now())
        # Why: in a period that begins or ends during a rescale state may be on its way and nobody works, so
        # it says nothing about the load. But a rescale that waits for rows must not hold up the others for
        # ever.
        if max(n_before, self._n_rescaling) and self._n_rescaling <= MAX_UNJUDGED:
            return []
        decisions = []
        for decision in self._policy.decide(sample):
            if decision.step == THREADS:
                self._pool.set_threads(decision.after)
            elif not self._scaling.set_replicas(decision.step, decision.after):
                continue
            decisions.append(decision)
            now = self._clock.now()
            self._events(ScaleDecided(now, decision.step, decision.before, decision.after, decision.reason))
        return decisions


def resolve_limits(options: Elastic, cores: int) -> tuple[Limits, int]:
    """Return the limits that `ps.Elastic` asks for on so many cores, and the period in microseconds."""
    if not 0 < options.low < options.high <= 1:
        raise EngineError(
            f"low={options.low!r} and high={options.high!r} leave no utilisation to aim for",
            hint="shares with low below high: ps.Elastic(low=0.9, high=0.95)",
        )
    period, hold = (
        check_length(name, getattr(options, name), "look", f'ps.Elastic({name}="10 s")')
        for name in ("period", "hold")
    )
    n_periods = max(1, round(hold / period))
    return Limits(low=options.low, high=options.high, most_threads=cores, hold=n_periods), period
