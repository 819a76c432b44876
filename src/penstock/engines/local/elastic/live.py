"""The controller on a run under way: a look every adaptation period, decisions carried out and told.

A thread of its own waits for the end of each period; everything it does is `look`, which can be called
without it. Whoever runs the nodes says how to change the pool and the replicas. A change that cannot be made
now, because a step is at its end for example, is left out, and the next sample shows that it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Protocol

from penstock.clock import Clock
from penstock.engines.local.elastic.controller import THREADS, Decision, Limits, ScalingPolicy
from penstock.engines.local.elastic.sample import Sampler
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.errors import EngineError, PenstockError
from penstock.events import EventSink, ScaleDecided
from penstock.frozen import dataclass
from penstock.timing.duration import micros

PATIENCE = 5
"""Periods in a row that a change of replicas may take before the controller looks at everything else."""


class ElasticOptions(Protocol):
    """What users say about elasticity (`ps.Elastic`)."""

    @property
    def low(self) -> float:
        """Utilisation below which threads are taken away."""

    @property
    def high(self) -> float:
        """Utilisation above which threads are added."""

    @property
    def period(self) -> str:
        """How often to look."""

    @property
    def hold(self) -> str:
        """How long to leave something alone after a change of it that was taken back."""


@dataclass(frozen=True, slots=True)
class ControlledRun:
    """The run that is controlled.

    nodes         the statistics of all replicas that there are now
    threads       the size of the pool now
    set_threads   changes it
    set_replicas  changes the replicas of a step; whether it could
    is_changing   whether a change of replicas has not been made yet
    now           nanoseconds by the clock of the statistics
    most          step -> replicas it may have; steps left out stay as they are
    least         step -> replicas it must have, if not one
    """

    nodes: Callable[[], Iterable[TaskStatistics]]
    threads: Callable[[], int]
    set_threads: Callable[[int], None]
    set_replicas: Callable[[str, int], bool]
    now: Callable[[], int]
    most: Mapping[str, int]
    least: Mapping[str, int] = field(default_factory=dict)
    is_changing: Callable[[], bool] = lambda: False


class ElasticController:
    """Looks at a run once per period, and changes it."""

    def __init__(
        self, plant: ControlledRun, limits: Limits, period_us: int, *, clock: Clock, events: EventSink
    ) -> None:
        self._plant, self._clock, self._events = plant, clock, events
        self._controller = ScalingPolicy(limits)
        self._sampler = Sampler(plant.most, plant.now(), plant.least)
        self._period_s = period_us / 1e6
        self._n_changing = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-elastic", daemon=True)

    def start(self) -> None:
        """Look every period from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; returns when the thread has gone."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> list[Decision]:
        """One period is over: decide, carry out, tell.

        A period that ends while replicas are being changed, or began so, says nothing about those before or
        after: state may be on its way, and nobody works. It is not judged, and nothing is decided in it. A
        change that waits for rows which may never come does not hold the others up for long.
        """
        plant = self._plant
        n_before, self._n_changing = self._n_changing, self._n_changing + 1 if plant.is_changing() else 0
        sample = self._sampler.look(plant.nodes(), plant.threads(), plant.now())
        if max(n_before, self._n_changing) and self._n_changing <= PATIENCE:
            return []
        done = [d for d in self._controller.decide(sample) if self._carry_out(d)]
        for decision in done:
            self._events(
                ScaleDecided(
                    self._clock.now(), decision.step, decision.before, decision.after, decision.reason
                )
            )
        return done

    def _carry_out(self, decision: Decision) -> bool:
        if decision.step == THREADS:
            self._plant.set_threads(decision.after)
            return True
        return self._plant.set_replicas(decision.step, decision.after)

    def _watch(self) -> None:
        while not self._over.wait(self._period_s):
            self.look()


def resolve_limits(asked: ElasticOptions, cores: int) -> tuple[Limits, int]:
    """The limits that `ps.Elastic` asks for on so many cores, and the period in microseconds."""
    if not 0 < asked.low < asked.high <= 1:
        raise EngineError(
            f"low={asked.low!r} and high={asked.high!r} leave no utilisation to aim for",
            hint="shares with low below high: ps.Elastic(low=0.9, high=0.95)",
        )
    period, hold = (_length(name, getattr(asked, name)) for name in ("period", "hold"))
    return Limits(
        low=asked.low, high=asked.high, most_threads=cores, hold=max(1, round(hold / period))
    ), period


def _length(name: str, value: str) -> int:
    hint = f'ps.Elastic({name}="10 s")'
    try:
        found = micros(value)
    except PenstockError as problem:
        raise EngineError(f"{name}={value!r} is not a length of time", hint=hint) from problem
    if found <= 0:
        raise EngineError(f"{name}={value!r} leaves no time to look", hint=hint)
    return found
