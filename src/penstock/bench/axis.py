"""Axes: round places on them, and from a value to a place in the drawing.

A linear axis begins at zero, so that lengths may be compared; a logarithmic one is for values that span
more than lengths can show, and its label says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDE = 12
"""Values that differ by more than this factor are shown on a logarithmic axis."""


def ticks(end: float) -> list[float]:
    """Round places on an axis from 0 to `end`: three to six of them, in steps of 1, 2 or 5.

    >>> ticks(0.9)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    rough = end / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.999)
    return [round(step * at, 12) for at in range(int(end / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round places on a logarithmic axis: powers of ten, with 2 and 5 between them where those are few.

    >>> log_ticks(3.0, 4_000.0)
    [10.0, 100.0, 1000.0]
    """
    digits = (1, 2, 5) if high / low < 200 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    places = [digit * 10.0**power for power in powers for digit in digits]
    return [place for place in places if low * 0.999 <= place <= high * 1.001]


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` as places from `begin` to `end`; `end` may be the smaller (upwards)."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    def place(self, value: float) -> float:
        """Where a value lies, to a tenth."""
        low, high, at = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return round(self.begin + (self.end - self.begin) * share, 1)

    @property
    def ticks(self) -> list[float]:
        """The round places on it."""
        return log_ticks(self.low, self.high) if self.log else ticks(self.high)


def scale_of(values: Sequence[float], begin: float, end: float) -> Scale:
    """A scale with room for all of these values, logarithmic where they differ much."""
    least, most = min(values), max(values)
    if least > 0 and most / least > WIDE:
        return Scale(10 ** math.floor(math.log10(least)), most * 1.25, begin, end, log=True)
    return Scale(0.0, (most * 1.08) or 1.0, begin, end, log=False)
