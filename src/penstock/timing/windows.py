"""Window arithmetic: which windows a time lies in, and when they close.

A window is [start, end) with start = floor((t - 0) / every) * every, also for negative times. Python's
floor division is exactly that, so nothing here treats negatives apart.
"""

from __future__ import annotations

from penstock.frozen import dataclass
from penstock.timing.duration import spell

LONGEST = 2**60
"""No size, slide, gap or lateness is longer: about 36,500 years in microseconds.

Times are within 2^61 of 1970, so a time plus any two of them is no later than the watermark at the end of a
stream, 2^62.
"""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Windows of `size` every `every` microseconds: tumbling when equal, hopping when every > size."""

    size: int
    every: int

    def starts(self, time: int) -> range:
        """Return the starts of the windows that hold `time`, earliest first; empty in a hopping gap.

        >>> list(TimeWindow(size=10, every=5).starts(-1))
        [-10, -5]
        """
        last = time // self.every * self.every
        first = (time - self.size) // self.every * self.every + self.every
        return range(first, last + 1, self.every)

    def __str__(self) -> str:
        if self.size == self.every:
            return f"tumbling {spell(self.size)}"
        return f"sliding {spell(self.size)} every {spell(self.every)}"


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Rows less than or exactly `gap` apart; [first time, last time + gap), merged when they touch."""

    gap: int

    def __str__(self) -> str:
        return f"session with gap {spell(self.gap)}"


@dataclass(frozen=True, slots=True)
class CountWindow:
    """`size` rows, a new window every `every` rows, in the order (time, seq)."""

    size: int
    every: int

    def __str__(self) -> str:
        if self.size == self.every:
            return f"count {self.size}"
        return f"count {self.size} every {self.every}"


Window = TimeWindow | SessionWindow | CountWindow


def is_late_for(watermark: float, end: int, lateness: int) -> bool:
    """Return whether a window has left: W >= end + lateness."""
    return watermark >= end + lateness
