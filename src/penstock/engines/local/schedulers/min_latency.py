"""MinLatency: the node whose front row has waited longest (C-Stream 3.2.6, where the plots say MaxTupleWait).

A batch is stamped when it is put into a port; the front of the longest queue in time, not in rows, goes
first. Sources have no queue, so the time of their last turn stands in for the stamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from penstock.engines.local.schedulers.protocol import N, Ready


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
