"""Windows as people write them; `resolve` turns them into microseconds once the time column is known."""

from __future__ import annotations

from penstock.caller import find_call_site
from penstock.errors import TimeError
from penstock.frozen import dataclass
from penstock.timing.column import TimeType
from penstock.timing.duration import MICROS, Duration, spell
from penstock.timing.windows import LONGEST, CountWindow, SessionWindow, TimeWindow, Window

_EXAMPLES = {
    "window size": 'ps.tumbling("10 s")',
    "window slide": 'ps.sliding("10 s", every="1 s")',
    "session gap": 'ps.session("30 s")',
}


@dataclass(frozen=True, slots=True)
class SlidingSpec:
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


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """Windows that last as long as rows keep coming."""

    gap: Duration

    def __str__(self) -> str:
        return f"session with gap {self.gap}"

    def resolve(self, time: TimeType) -> Window:
        """Return the window in microseconds."""
        return SessionWindow(_resolve_length(self.gap, time, "session gap"))


@dataclass(frozen=True, slots=True)
class CountSpec:
    """Windows of a number of rows."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"count {self.size}" + ("" if self.size == self.every else f" every {self.every}")

    def resolve(self, time: TimeType) -> Window:
        """Return the window, which does not depend on the time column."""
        return CountWindow(self.size, self.every)


WindowSpec = SlidingSpec | SessionSpec | CountSpec


def tumbling(size: Duration) -> SlidingSpec:
    """Cut time into windows of `size`, one after the other: [0, size), [size, 2 size), ..."""
    return SlidingSpec(size, size)


def sliding(size: Duration, every: Duration) -> SlidingSpec:
    """Start a window of `size` at every multiple of `every`; longer than `size`, it leaves gaps (hopping)."""
    return SlidingSpec(size, every)


def session(gap: Duration) -> SessionSpec:
    """Group rows at most `gap` apart; a window ends `gap` after its last row."""
    return SessionSpec(gap)


def count_window(size: int, every: int | None = None) -> CountSpec:
    """Group `size` rows per key, a new window `every` rows (`size` by default), in order of time."""
    step = size if every is None else every
    for role, rows in (("size", size), ("slide", step)):
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise TimeError(
                f"{role} {rows!r} of a count window is not a number of rows",
                where=find_call_site(),
                hint="use ps.count_window(100, every=10)",
            )
    return CountSpec(size, step)


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
