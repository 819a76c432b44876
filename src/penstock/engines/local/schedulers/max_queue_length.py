"""MaxQueueLength: the node with the most rows waiting, but a ready source before all (C-Stream 3.2.6).

Long turns over full queues: good throughput on trees and parallel replicas, at the price of latency, because
a short queue waits until the long ones are empty. Ties are broken by chance, sources among themselves too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random as RandomNumbers

from penstock.engines.local.schedulers.protocol import N, Ready


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
