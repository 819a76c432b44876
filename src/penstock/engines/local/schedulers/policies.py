"""Schedulers: the protocol, and the five policies of C-Stream (3.2.6).

A scheduler picks the next task for a worker. It sees tasks only through their statistics, which it must not
change, and knows no clock: the time comes with the question. Several workers may ask it, but never two at
once: the pool holds its lock while it asks. When a task has run for a quantum, the scheduler is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from random import Random as RandomNumbers
from typing import Protocol, TypeVar

from penstock.engines.local.metrics.statistics import TaskStatistics


class Ready(Protocol):
    """A task that could run now."""

    @property
    def statistics(self) -> TaskStatistics:
        """What it has counted so far: to look at, not to change."""


N = TypeVar("N", bound=Ready)


class Scheduler(Protocol):
    """Picks the next task.

    Users write their own like this, and run with `LocalOptions(scheduler="sinks-first")`:

    >>> class SinksFirst:
    ...     def choose(self, ready, worker, now):
    ...         return min(ready, key=lambda task: len(task.statistics.outputs))
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Returns one of `ready` (never empty), for worker number `worker`, at `now` nanoseconds."""


class Random:
    """Picks any ready task at random.

    It keeps no order and needs no statistics, and the paper finds it robust in throughput on every topology.
    The random numbers come from outside, so that a seed replays a run.
    """

    def __init__(self, random: RandomNumbers) -> None:
        self._random = random

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implements `Scheduler.choose`."""
        return self._random.choice(ready)


class LeastRecentlyRun:
    """Picks the task that ran longest ago; tasks that never ran come first, in the order of the graph.

    Every task gets its turn, so rows do not pile up anywhere for long: the paper finds the lowest latencies
    with it on chains, trees and parallel replicas.
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implements `Scheduler.choose`."""
        return min(ready, key=_last_ran)


def _last_ran(task: Ready) -> int:
    last = task.statistics.last_ran
    return -1 if last is None else last


class MaxQueueLength:
    """Picks a source if one is ready, else the task with the most rows waiting; ties are broken at random.

    Long quanta over full queues: good throughput on trees and parallel replicas, at the price of latency,
    because a short queue waits until the long ones are empty.
    """

    def __init__(self, random: RandomNumbers) -> None:
        self._random = random

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implements `Scheduler.choose`."""
        lengths = [_queue_length(task) for task in ready]
        longest = max(lengths)
        return self._random.choice(
            [task for task, length in zip(ready, lengths, strict=True) if length == longest]
        )


def _queue_length(task: Ready) -> float:
    statistics = task.statistics
    return statistics.waiting_rows if statistics.inputs else inf


class MaxRunningTime:
    """Picks the task that can run longest before it must block.

    A task can read for as long as its input ports hold rows at the rate it reads them, and write for as long
    as its subscribers have room at the rate it writes; the shortest of these is how long it can run. Rates
    are rows per nanosecond of running time over its last quanta. A task without a rate yet may run for ever,
    so it is tried early; ties go to the one that ran longest ago.
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implements `Scheduler.choose`."""
        return max(ready, key=_rank)


def _rank(task: Ready) -> tuple[float, int]:
    statistics = task.statistics
    last = statistics.last_ran
    return can_run_for(statistics), 1 if last is None else -last


def can_run_for(statistics: TaskStatistics) -> float:
    """Returns the nanoseconds until the first port is empty or the first subscriber is full."""
    if not statistics.recent_ns:
        return inf
    return min(_remaining_quanta(statistics), default=inf) * statistics.recent_ns


def _remaining_quanta(statistics: TaskStatistics) -> Iterator[float]:
    """Yields, per port with a rate, how many times the rows of the last quanta it has, or has room for."""
    for port in statistics.inputs:
        if port.recent_rows:
            yield port.waiting_rows / port.recent_rows
    for out in statistics.outputs:
        if out.recent_rows and out.subscribers:
            yield min(port.space for port in out.subscribers) / out.recent_rows


class MinLatency:
    """Picks the task whose front row has waited longest (the paper's plots call it MaxTupleWait).

    A batch is stamped when it is put into a port; the oldest front goes first. Sources have no queue, so the
    time of their last quantum stands in for the stamp.
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implements `Scheduler.choose`."""
        return min(ready, key=_stamp)


def _stamp(task: Ready) -> float:
    statistics = task.statistics
    if statistics.inputs:
        oldest = statistics.oldest
        return inf if oldest is None else oldest
    last = statistics.last_ran
    return -1 if last is None else last
