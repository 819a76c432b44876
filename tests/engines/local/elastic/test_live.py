"""The controller on a run: decisions are carried out and told, and its thread leaves when it is stopped."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock as ps
from penstock.clock import ManualClock
from penstock.engines.local.dispatch import call_every
from penstock.engines.local.elastic.controller import (
    MAX_UNJUDGED,
    THREADS,
    ElasticController,
    Limits,
    resolve_limits,
)
from penstock.engines.local.metrics.statistics import InputStatistics, OutputStatistics, TaskStatistics
from penstock.errors import EngineError
from penstock.events import Event, EventSink, ScaleDecided


class Graph:
    """A source and a slow step whose replicas run all the time."""

    def __init__(self, *, fixed: bool = False) -> None:
        self.ns, self.n_threads, self.fixed, self.changing = 0, 1, fixed, list[bool]()
        self.most, self.least = {"slow": 8}, dict[str, int]()
        self.port = InputStatistics()
        self.source = TaskStatistics("source", outputs=(OutputStatistics((self.port,)),))
        self.slow = [TaskStatistics("slow", inputs=(self.port,))]
        self.slow[0].start(0)
        self.port.mark_full(0)

    def pass_time(self, ns: int, rows: int) -> None:
        self.ns += ns
        self.source.outputs[0].rows += rows
        self.port.taken_rows += rows

    def set_threads(self, n: int) -> None:
        self.n_threads = n

    def set_replicas(self, step: str, n: int) -> bool:
        if self.fixed:
            return False
        new = [TaskStatistics(step, i, (InputStatistics(),), since=self.ns) for i in range(len(self.slow), n)]
        for task in new:
            task.start(self.ns)
        self.slow = [*self.slow, *new][:n]
        return True

    def is_rescaling(self) -> bool:
        return bool(self.changing) and self.changing.pop(0)

    def active_tasks(self) -> list[TaskStatistics]:
        return [self.source, *self.slow]


def control(graph: Any, events: EventSink, clock: ManualClock | None = None) -> ElasticController:
    """The controller of a graph, which is its own pool of threads."""
    limits = Limits(most_threads=4)
    return ElasticController(
        graph, graph, limits, now=lambda: graph.ns, clock=clock or ManualClock(), events=events
    )


def test_decisions_are_carried_out_and_told() -> None:
    graph, events = Graph(), list[Event]()
    live = control(graph, events.append, ManualClock(77))
    graph.pass_time(1_000, 100)
    live.adapt()
    assert (graph.n_threads, len(graph.slow)) == (4, 5)
    first, second = events
    assert isinstance(first, ScaleDecided)
    assert isinstance(second, ScaleDecided)
    assert (first.at, first.step, first.replicas_before, first.replicas_after) == (77, "slow", 1, 5)
    assert (second.step, second.replicas_before, second.replicas_after) == (THREADS, 1, 4)
    assert first.reason
    assert second.reason


def test_a_change_that_cannot_be_made_is_not_told() -> None:
    graph, events = Graph(fixed=True), list[Event]()
    live = control(graph, events.append)
    graph.pass_time(1_000, 100)
    assert [decision.step for decision in live.adapt()] == [THREADS]
    assert len(events) == 1


def test_nothing_is_decided_while_a_change_is_being_made_nor_judged_by_what_that_took() -> None:
    graph, events = Graph(), list[Event]()
    graph.changing = [True, True, False, False]
    live = control(graph, events.append)
    for _ in range(3):  # the third begins in the change
        graph.pass_time(1_000, 100)
        assert live.adapt() == []
    assert events == []
    graph.pass_time(1_000, 100)
    assert live.adapt()


def test_a_change_that_is_never_made_does_not_hold_the_others_up_for_ever() -> None:
    graph, events = Graph(), list[Event]()
    graph.changing = [True] * (MAX_UNJUDGED + 1)
    live = control(graph, events.append)
    for _ in range(MAX_UNJUDGED):
        graph.pass_time(1_000, 100)
        assert live.adapt() == []
    graph.pass_time(1_000, 100)
    assert THREADS in [decision.step for decision in live.adapt()]


def test_the_thread_looks_every_period_and_leaves_when_it_is_stopped() -> None:
    graph = Graph()
    seen = threading.Event()
    live = control(graph, lambda event: seen.set())
    graph.pass_time(1_000, 100)
    with call_every(1e-6, live.adapt, "penstock-elastic"):
        assert seen.wait(10)
    assert "penstock-elastic" not in {thread.name for thread in threading.enumerate()}


def test_options_become_limits_in_periods() -> None:
    limits, period = resolve_limits(ps.Elastic(low=0.5, high=0.7, period="2 s", hold="7 s"), cores=6)
    assert (limits.low, limits.high, limits.most_threads, limits.hold) == (0.5, 0.7, 6, 4)
    assert period == 2_000_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"low": 0.95, "high": 0.9}, "low=0.95 and high=0.9 leave no utilisation to aim for"),
        ({"high": 1.5}, "low=0.9 and high=1.5 leave no utilisation"),
        ({"period": "often"}, "period='often' is not a length of time"),
        ({"period": "0 s"}, "period='0 s' leaves no time to look"),
        ({"hold": "-1 s"}, "hold='-1 s'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(EngineError, match=says) as caught:
        resolve_limits(ps.Elastic(**options), cores=4)
    assert caught.value.hint
