"""Medians and spread of a handful of samples: what a figure is and how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some samples and how they scatter: least, quartiles, median, greatest."""

    least: float
    low: float
    median: float
    high: float
    greatest: float

    def overlaps(self, other: Spread) -> bool:
        """Return whether the inter-quartile ranges share a point."""
        return self.low <= other.high and other.low <= self.high


def spread(samples: Sequence[float]) -> Spread:
    """Summarise samples; a quartile between two samples is interpolated linearly.

    >>> spread([1, 2, 3, 4, 100]).median
    3.0
    """
    assert samples, "a spread needs at least one sample"
    ranked = sorted(samples)
    return Spread(*(_at(ranked, share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)))


def _at(ranked: Sequence[float], share: float) -> float:
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return float(ranked[below] + (ranked[above] - ranked[below]) * (place - below))
