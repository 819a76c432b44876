"""LeastRecentlyRun: the ready node that a worker took longest ago (C-Stream 3.2.6).

Nodes that never ran come first, in the order of the graph. Every node gets its turn, so rows do not pile
up anywhere for long: the paper finds the lowest latencies with it on chains, trees and parallel replicas.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engines.local.schedulers.protocol import N, Ready


class LeastRecentlyRun:
    """Takes the node whose last turn began first."""

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """The node that ran longest ago."""
        return min(ready, key=_last_ran)


def _last_ran(node: Ready) -> int:
    last = node.statistics.last_ran
    return -1 if last is None else last
