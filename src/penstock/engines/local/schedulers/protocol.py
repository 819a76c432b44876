"""What a scheduler is: something that picks the next node for a worker.

A scheduler sees nodes only through their statistics, which it must not change, and knows no clock: the time
comes with the question. It may be asked by several workers, but never by two at once: the pool holds its
lock while it asks. When a node has run for a quantum it is asked again (C-Stream 3.2.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from penstock.engines.local.metrics.statistics import TaskStatistics


class Ready(Protocol):
    """A node that could run now."""

    @property
    def statistics(self) -> TaskStatistics:
        """What it has counted so far: to look at, not to change."""


N = TypeVar("N", bound=Ready)


class Scheduler(Protocol):
    """Picks the next node.

    Users write their own like this, and run with `LocalOptions(scheduler="sinks-first")`:

    >>> class SinksFirst:
    ...     def choose(self, ready, worker, now):
    ...         return min(ready, key=lambda node: len(node.statistics.outputs))
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """One of `ready` (never empty), for worker number `worker`, at `now` nanoseconds."""
