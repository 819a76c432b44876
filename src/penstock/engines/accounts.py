"""Accounts round by round: taken where rows are counted, and added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from penstock.accounts import Accounts
from penstock.frozen import dataclass


def taken(accounts: Accounts) -> Accounts:
    """What was counted since the last call; counting begins anew, in the same object."""
    found, fresh = Accounts(**asdict(accounts)), Accounts()
    for each in fields(Accounts):
        setattr(accounts, each.name, getattr(fresh, each.name))
    return found


def add(total: Accounts, more: Accounts) -> None:
    """Add what was counted in a round."""
    for name, value in asdict(more).items():
        if name == "late_by_window":
            merged: dict[str, Any] = dict(total.late_by_window)
            for window, missed in value.items():
                merged[window] = merged.get(window, 0) + missed
            total.late_by_window = merged
        else:
            setattr(total, name, getattr(total, name) + value)


# What a run has measured of itself: how long rows took, and where the time went (WindFlow, 5.4).


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
