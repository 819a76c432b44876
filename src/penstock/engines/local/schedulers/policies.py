"""Random: any ready node, all alike (C-Stream 3.2.6).

It keeps no order and needs no statistics, and the paper finds it robust in throughput on every topology.
The random numbers come from outside, so that a seed replays a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from random import Random as RandomNumbers

from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.engines.local.schedulers.protocol import N, Ready


class Random:
    """Takes a ready node by chance."""

    def __init__(self, random: RandomNumbers) -> None:
        self._random = random

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Any of them, each as likely as the others."""
        return self._random.choice(ready)


# LeastRecentlyRun: the ready node that a worker took longest ago (C-Stream 3.2.6).
#
# Nodes that never ran come first, in the order of the graph. Every node gets its turn, so rows do not pile
# up anywhere for long: the paper finds the lowest latencies with it on chains, trees and parallel replicas.


class LeastRecentlyRun:
    """Takes the node whose last turn began first."""

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """The node that ran longest ago."""
        return min(ready, key=_last_ran)


def _last_ran(node: Ready) -> int:
    last = node.statistics.last_ran
    return -1 if last is None else last


# MaxQueueLength: the node with the most rows waiting, but a ready source before all (C-Stream 3.2.6).
#
# Long turns over full queues: good throughput on trees and parallel replicas, at the price of latency,
# because a short queue waits until the long ones are empty. Ties are broken by chance, sources among
# themselves too.


class MaxQueueLength:
    """Takes a source if one is ready, else the node with the longest input queues."""

    def __init__(self, random: RandomNumbers) -> None:
        self._random = random

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """A source, or the node with the most rows waiting."""
        lengths = [_length(node) for node in ready]
        longest = max(lengths)
        return self._random.choice(
            [node for node, length in zip(ready, lengths, strict=True) if length == longest]
        )


def _length(node: Ready) -> float:
    statistics = node.statistics
    return statistics.waiting_rows if statistics.inputs else inf


# MaxRunningTime: the node that can run longest before it must block (C-Stream 3.2.6).
#
# A node can read for as long as its input ports hold rows at the rate it reads them, and write for as long
# as its subscribers have room at the rate it writes; the shortest of these is how long it can run. Rates are
# rows per nanosecond of running time over its last turns. A node without a rate yet can run for ever as far
# as anyone knows, so it is tried early; ties go to the one that ran longest ago.


class MaxRunningTime:
    """Takes the node with the longest context of work ahead."""

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """The node that could go on longest without blocking."""
        return max(ready, key=_rank)


def _rank(node: Ready) -> tuple[float, int]:
    statistics = node.statistics
    last = statistics.last_ran
    return can_run_for(statistics), 1 if last is None else -last


def can_run_for(statistics: TaskStatistics) -> float:
    """Nanoseconds until the first port runs dry or the first subscriber is full."""
    if not statistics.recent_ns:
        return inf
    return min(_stretches(statistics), default=inf) * statistics.recent_ns


def _stretches(statistics: TaskStatistics) -> Iterator[float]:
    """For every port with a rate, how many times the last turns' rows it still has, or has room for."""
    for port in statistics.inputs:
        if port.recent_rows:
            yield port.waiting_rows / port.recent_rows
    for out in statistics.outputs:
        if out.recent_rows and out.subscribers:
            yield min(port.space for port in out.subscribers) / out.recent_rows


# MinLatency: the node whose front row has waited longest (C-Stream 3.2.6, where the plots say MaxTupleWait).
#
# A batch is stamped when it is put into a port; the front of the longest queue in time, not in rows, goes
# first. Sources have no queue, so the time of their last turn stands in for the stamp.


class MinLatency:
    """Takes the node with the oldest waiting row."""

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """The node whose front row is oldest; a node with nothing to read comes last."""
        return min(ready, key=_stamp)


def _stamp(node: Ready) -> float:
    statistics = node.statistics
    if statistics.inputs:
        oldest = statistics.oldest
        return inf if oldest is None else oldest
    last = statistics.last_ran
    return -1 if last is None else last
