"""MaxRunningTime: the node that can run longest before it must block (C-Stream 3.2.6).

A node can read for as long as its input ports hold rows at the rate it reads them, and write for as long
as its subscribers have room at the rate it writes; the shortest of these is how long it can run. Rates are
rows per nanosecond of running time over its last turns. A node without a rate yet can run for ever as far
as anyone knows, so it is tried early; ties go to the one that ran longest ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from penstock.engines.local.schedulers.protocol import N, Ready
from penstock.engines.local.statistics import NodeStatistics


class MaxRunningTime:
    """Takes the node with the longest stretch of work ahead."""

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """The node that could go on longest without blocking."""
        return max(ready, key=_rank)


def _rank(node: Ready) -> tuple[float, int]:
    statistics = node.statistics
    last = statistics.last_ran
    return can_run_for(statistics), 1 if last is None else -last


def can_run_for(statistics: NodeStatistics) -> float:
    """Nanoseconds until the first port runs dry or the first subscriber is full."""
    if not statistics.recent_ns:
        return inf
    return min(_stretches(statistics), default=inf) * statistics.recent_ns


def _stretches(statistics: NodeStatistics) -> Iterator[float]:
    """For every port with a rate, how many times the last turns' rows it still has, or has room for."""
    for port in statistics.inputs:
        if port.recent_rows:
            yield port.waiting_rows / port.recent_rows
    for out in statistics.outputs:
        if out.recent_rows and out.subscribers:
            yield min(port.space for port in out.subscribers) / out.recent_rows
