"""Random: any ready node, all alike (C-Stream 3.2.6).

It keeps no order and needs no statistics, and the paper finds it robust in throughput on every topology.
The random numbers come from outside, so that a seed replays a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random as RandomNumbers

from penstock.engines.local.schedulers.protocol import N


class Random:
    """Takes a ready node by chance."""

    def __init__(self, random: RandomNumbers) -> None:
        self._random = random

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Any of them, each as likely as the others."""
        return self._random.choice(ready)
