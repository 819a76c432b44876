"""What a run has measured of itself: how long rows took, and where the time went (WindFlow, 5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """From the reading of a batch to what came of it being committed by a sink, in microseconds.

    Percentiles are over rows, and at most an eighth too high; the longest is exact.
    """

    rows: int
    p50_us: int
    p95_us: int
    p99_us: int
    max_us: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Latency by sink, and time and memory by step.

    user_us       in what the step is there for: its functions, expressions and windows, its reader or writer
    system_us     in all else that its nodes did: dealing, channels, rounds; of fused steps at the first
    state_nbytes  the most memory that the windows of a step have held, its replicas together
    """

    latency: Mapping[str, Latency]
    user_us: Mapping[str, int]
    system_us: Mapping[str, int]
    state_nbytes: Mapping[str, int]

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)
