"""Windows and watermarks: which windows a time lies in, and when they close.

A window is [start, end) with start = floor((t - 0) / every) * every, also for negative times. Python's floor
division is exactly that, so nothing here treats negatives apart. People write windows as specifications,
whose `resolve` turns them into microseconds once the time column is known.

The watermark W of a source promises no more rows with time < W. W(n), which judges batch n, is the greatest
valid time of the batches before n minus the delay, or what the source itself promised, whichever is later;
minus infinity before the first row. It never goes back.
"""

from __future__ import annotations

import math

from penstock.caller import find_call_site
from penstock.errors import TimeError
from penstock.frozen import Frozen
from penstock.timing.units import MICROS, Duration, TimeType, spell

BEFORE_ALL = -math.inf
AFTER_ALL = math.inf
LONGEST = 2**60
"""No size, slide, gap or lateness is longer: about 36,500 years in microseconds.

Times are within 2^61 of 1970, so a time plus any two of them is no later than the watermark at the end of a
stream, 2^62.
"""
_EXAMPLES = {
    "window size": 'ps.tumbling("10 s")',
    "window slide": 'ps.sliding("10 s", every="1 s")',
    "session gap": 'ps.session("30 s")',
}


class TimeWindow(Frozen):
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


class SessionWindow(Frozen):
    """Rows less than or exactly `gap` apart; [first time, last time + gap), merged when they touch."""

    gap: int

    def __str__(self) -> str:
        return f"session with gap {spell(self.gap)}"


class CountWindow(Frozen):
    """`size` rows, a new window every `every` rows, in the order (time, seq)."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"count {self.size}" + ("" if self.size == self.every else f" every {self.every}")

    def resolve(self, time: TimeType) -> Window:
        """Return the window itself: it does not depend on the time column."""
        return self


Window = TimeWindow | SessionWindow | CountWindow


def is_late_for(watermark: float, end: int, lateness: int) -> bool:
    """Return whether a window has closed: W >= end + lateness."""
    return watermark >= end + lateness


class SlidingSpec(Frozen):
    """Windows of one size that start at regular times; tumbling where they start at each other's end."""

    size: Duration
    every: Duration

    def __str__(self) -> str:
        return (
            f"tumbling {self.size}" if self.size == self.every else f"sliding {self.size} every {self.every}"
        )

    def resolve(self, time: TimeType) -> Window:
        """Return the window in microseconds."""
        return TimeWindow(
            _resolve_length(self.size, time, "window size"), _resolve_length(self.every, time, "window slide")
        )


class SessionSpec(Frozen):
    """Windows that last as long as rows keep coming."""

    gap: Duration

    def __str__(self) -> str:
        return f"session with gap {self.gap}"

    def resolve(self, time: TimeType) -> Window:
        """Return the window in microseconds."""
        return SessionWindow(_resolve_length(self.gap, time, "session gap"))


WindowSpec = SlidingSpec | SessionSpec | CountWindow


def tumbling(size: Duration) -> SlidingSpec:
    """Cut time into windows of `size`, one after the other: [0, size), [size, 2 size), ..."""
    return SlidingSpec(size, size)


def sliding(size: Duration, every: Duration) -> SlidingSpec:
    """Start a window of `size` at every multiple of `every`; longer than `size`, it leaves gaps (hopping)."""
    return SlidingSpec(size, every)


def session(gap: Duration) -> SessionSpec:
    """Group rows at most `gap` apart; a window ends `gap` after its last row."""
    return SessionSpec(gap)


def count_window(size: int, every: int | None = None) -> CountWindow:
    """Group `size` rows per key, a new window `every` rows (`size` by default), in order of time."""
    step = size if every is None else every
    for role, rows in (("size", size), ("slide", step)):
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise TimeError(
                f"{role} {rows!r} of a count window is not a number of rows",
                where=find_call_site(),
                hint="use ps.count_window(100, every=10)",
            )
    return CountWindow(size, step)


def check_length(us: int, role: str) -> int:
    """Return a length that times can be added to, or raise a TimeError."""
    if us > LONGEST:
        raise TimeError(
            f"{role} {spell(us)} is too long",
            detail=f"the longest is 2^60 microseconds, {LONGEST // MICROS['d']} days",
            hint='use a duration such as "10 s", or leave the window out if all rows are meant',
        )
    return us


def _resolve_length(duration: Duration, time: TimeType, role: str) -> int:
    us = check_length(time.length(duration, role), role)
    if us <= 0:
        raise TimeError(
            f"{role} {spell(us)} is not longer than zero", hint=f"use a duration such as {_EXAMPLES[role]}"
        )
    if us % time.step:
        unit = "days" if time.unit == "day" else time.unit
        raise TimeError(
            f"{role} {spell(us)} is not a whole number of {unit}, the unit of the time column",
            detail="window bounds are given in the time column's own type",
            hint="use a multiple of the unit, or a timestamp column for time=",
        )
    return us


class SourceWatermark:
    """Follows one source, batch by batch.

    now  W, which judges the next batch; it never goes back
    """

    def __init__(self, delay: int | None) -> None:
        self._delay = delay  # None: only what the source promises counts
        self.now = BEFORE_ALL

    def observe(self, greatest_time: int | None) -> None:
        """Take note of a batch by its greatest valid time, None if it has none."""
        if greatest_time is not None and self._delay is not None:
            self.now = max(self.now, greatest_time - self._delay)

    def promise(self, watermark: int) -> None:
        """Take note of a watermark from the source itself; one that goes back changes nothing."""
        self.now = max(self.now, watermark)

    def end(self) -> None:
        """End the source: it no longer holds anything back."""
        self.now = AFTER_ALL
