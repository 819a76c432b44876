"""The elastic controller of a run: a look every adaptation period, decisions carried out and reported.

A thread waits for the end of each period; everything it does is `ElasticController.adapt`, which can be
called without it. Threads come and go in the pool. The replicas of an elastic step all exist from the start,
and as many as are needed get rows: a step without state through its outputs (`RoundRobinOutput`), so that the
order behind it is kept; a keyed step by a rescale, which moves its state (`rescale.py`). A change that cannot
be made now, because a step has ended for example, is left out, and the next sample shows that it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.elastic.controller import THREADS, Limits, ScalingDecision, ScalingPolicy
from penstock.engines.local.elastic.sample import Sampler
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.errors import EngineError, PenstockError
from penstock.events import Event, EventSink, ScaleDecided
from penstock.frozen import dataclass
from penstock.options import Elastic
from penstock.timing.units import micros

if TYPE_CHECKING:
    from penstock.engines.local.build import ExecutionGraph, Replicas
    from penstock.engines.local.dispatch import ThreadPool
    from penstock.engines.local.options import Settings
    from penstock.engines.local.run import Runtime

MAX_UNJUDGED = 5
"""Periods in a row that a change of replicas may take before the controller judges everything else again."""


@dataclass(frozen=True, slots=True)
class ControlledRun:
    """What the controller sees of a run, and how it changes the run.

    tasks         returns the statistics of all active replicas
    threads       returns the size of the pool
    set_threads   changes it
    set_replicas  changes the replicas of a step; returns whether it could
    is_rescaling  whether a change of replicas is in progress
    now           nanoseconds by the clock of the statistics
    most          step -> replicas it may have; steps left out stay as they are
    least         step -> replicas it must have, if not one
    """

    tasks: Callable[[], Iterable[TaskStatistics]]
    threads: Callable[[], int]
    set_threads: Callable[[int], None]
    set_replicas: Callable[[str, int], bool]
    now: Callable[[], int]
    most: Mapping[str, int]
    least: Mapping[str, int] = field(default_factory=dict)
    is_rescaling: Callable[[], bool] = lambda: False


class ElasticController:
    """Looks at a run once per period, and changes it."""

    def __init__(
        self, run: ControlledRun, limits: Limits, period_us: int, *, clock: Clock, events: EventSink
    ) -> None:
        self._run, self._clock, self._events = run, clock, events
        self._policy = ScalingPolicy(limits)
        self._sampler = Sampler(run.most, run.now(), run.least)
        self._period_s = period_us / 1e6
        self._n_rescaling = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._adapt_every_period, name="penstock-elastic", daemon=True)

    def start(self) -> None:
        """Adapt the run every period from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop adapting; return when the thread has ended."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def adapt(self) -> list[ScalingDecision]:
        """Decide at the end of a period, carry decisions out and report them."""
        run = self._run
        n_before, self._n_rescaling = self._n_rescaling, self._n_rescaling + 1 if run.is_rescaling() else 0
        sample = self._sampler.look(run.tasks(), run.threads(), run.now())
        # Why: in a period that begins or ends during a rescale state may be on its way and nobody
        # works, so
        # it
        # says nothing about the load. But a rescale that waits for rows must not hold up the others for ever.
        if max(n_before, self._n_rescaling) and self._n_rescaling <= MAX_UNJUDGED:
            return []
        decisions = [decision for decision in self._policy.decide(sample) if self._carry_out(decision)]
        for decision in decisions:
            now = self._clock.now()
            self._events(ScaleDecided(now, decision.step, decision.before, decision.after, decision.reason))
        return decisions

    def _carry_out(self, decision: ScalingDecision) -> bool:
        if decision.step == THREADS:
            self._run.set_threads(decision.after)
            return True
        return self._run.set_replicas(decision.step, decision.after)

    def _adapt_every_period(self) -> None:
        while not self._over.wait(self._period_s):
            self.adapt()


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

    def set_replicas(self, step: str, n: int) -> bool:
        """Change the replicas of a step, from its next batches or the end of a round on.

        Returns False if that is impossible, or if an earlier change of the step is still in progress: the
        decision would be reported again and again.
        """
        assignment = self._assignments.get(step)
        if assignment is not None:
            return not assignment.rescaler.is_requested(assignment) and assignment.rescale(n)
        outputs = self._graph.elastic_outputs.get(step, ())
        if not 1 <= n <= self.most.get(step, 0) or any(output.is_rescaling for output in outputs):
            return False
        for output in outputs:
            output.rescale(n)
        return True

    def is_rescaling(self) -> bool:
        """Return whether a requested change is still in progress."""
        outputs = (output for outputs in self._graph.elastic_outputs.values() for output in outputs)
        if any(assignment.rescaler.is_active for assignment in self._assignments.values()):
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


@contextmanager
def run_controller(runtime: Runtime, pool: ThreadPool, settings: Settings, clock: Clock) -> Iterator[None]:
    """Run the elastic controller beside the block."""

    def emit(event: Event) -> None:
        try:
            runtime.progress.emit(event)
        except Exception as failure:  # a listener has failed, and so has the run
            runtime.dispatcher.record_failure(runtime.graph.tasks[0], failure)

    assert settings.elastic is not None, "only elastic runs have a controller"
    scaling = ReplicaScaling(runtime.graph)
    # Why: more threads than cores are what the user wants, because blocking functions can use them.
    limits, period_us = resolve_limits(settings.elastic, max(settings.cores, settings.threads))
    run = ControlledRun(
        tasks=scaling.active_tasks,
        threads=lambda: pool.n_threads,
        set_threads=pool.set_threads,
        set_replicas=scaling.set_replicas,
        is_rescaling=scaling.is_rescaling,
        now=runtime.dispatcher.now,
        most=scaling.most,
        least={step: runtime.graph.plan[step].degree.least for step in scaling.most},
    )
    controller = ElasticController(run, limits, period_us, clock=clock, events=emit)
    controller.start()
    try:
        yield
    finally:
        controller.stop()


def resolve_limits(options: Elastic, cores: int) -> tuple[Limits, int]:
    """Return the limits that `ps.Elastic` asks for on so many cores, and the period in microseconds."""
    if not 0 < options.low < options.high <= 1:
        raise EngineError(
            f"low={options.low!r} and high={options.high!r} leave no utilisation to aim for",
            hint="shares with low below high: ps.Elastic(low=0.9, high=0.95)",
        )
    period, hold = (_resolve_length(name, getattr(options, name)) for name in ("period", "hold"))
    n_periods = max(1, round(hold / period))
    return Limits(low=options.low, high=options.high, most_threads=cores, hold=n_periods), period


def _resolve_length(name: str, value: str) -> int:
    hint = f'ps.Elastic({name}="10 s")'
    try:
        length = micros(value)
    except PenstockError as problem:
        raise EngineError(f"{name}={value!r} is not a length of time", hint=hint) from problem
    if length <= 0:
        raise EngineError(f"{name}={value!r} leaves no time to look", hint=hint)
    return length
