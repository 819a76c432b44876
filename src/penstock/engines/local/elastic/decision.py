"""Decisions of the controllers, each with its reason, and what the controllers may do."""

from __future__ import annotations

from penstock.frozen import dataclass

THREADS = "(threads)"  # stands where a decision names a step, and cannot be a step's name


@dataclass(frozen=True, slots=True)
class Decision:
    """Go from so many threads, or replicas of a step, to so many, and why."""

    step: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the controllers may do, and when (C-Stream 4 and 5.2 for the first three).

    low, high      utilisation below which threads are taken away, above which they are added
    congestion     write-blocked ratio from which a port is congested
    least_threads  never fewer threads than these
    most_threads   never more: the cores that there are
    hold           periods to leave something alone after a change of it that was taken back
    """

    low: float = 0.90
    high: float = 0.95
    congestion: float = 0.01
    least_threads: int = 1
    most_threads: int
    hold: int = 6
