"""Which rows of a join can meet at all: by their times, by the windows that they share, or by their numbers.

Each bound gives a row a clock, and to a new row a range of the clocks of the other side. A row is over when
no row that is still to come, and not late, has it in its range: then its clock is before the horizon.

within 5           the clock is the time; left 10 meets right 5 to 15, and is over when W - lateness > 15
window 10 every 5  a row is stored once for each of its windows; the clock is the window's start
last rows 3        the clock is the row's number on its side, in order; the seventh meets 3 numbers
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from penstock.frozen import Frozen
from penstock.kernels.windows.ring import expand_ranges
from penstock.operators.stream_join import ResolvedJoin
from penstock.stages.rows.batch import Ints, Mask
from penstock.timing.windows import TimeWindow

LEFT_SIDE, RIGHT_SIDE = 0, 1
ALL_OVER = 2**63 - 1
"""The horizon at the end of the streams."""
NONE_OVER = -(2**63)


class Admission(Frozen):
    """What becomes of new rows by the watermark.

    clock      int64[e]  of the rows that are stored
    rows       int64[e]  which these are, each once for each of its open windows; None for all, each once
    late       bool[n]   which are late; None for none
    no_window  bool[n]   which are in no window; None for none
    """

    clock: Ints
    rows: Ints | None = None
    late: Mask | None = None
    no_window: Mask | None = None


class Bound(Protocol):
    """How rows of the two sides meet."""

    def admit(self, times: Ints, watermark: float) -> Admission:
        """Judge new rows."""

    def ranges(self, side: int, clock: Ints) -> tuple[Ints, Ints]:
        """Return the clocks of the other side, first and last, that rows of a side meet."""

    def horizon(self, side: int, watermark: float) -> int:
        """Return the clock before which all rows of a side are over."""

    def span(self, side: int) -> int:
        """Return how far the horizon moves while a row of a side is stored."""


class WithinBound:
    """Rows whose times are near each other (DP-Join, Definition 4.1)."""

    def __init__(self, resolved: ResolvedJoin) -> None:
        self._reach = (resolved.older_left, resolved.older_right)
        self._lateness = resolved.lateness

    def admit(self, times: Ints, watermark: float) -> Admission:
        """Implement `Bound.admit`."""
        if self.admits_all(int(times.min()), watermark):
            return Admission(times)
        late = _is_before(times, watermark, self._lateness)
        rows = np.flatnonzero(~late)
        return Admission(times[rows], rows, late)

    def admits_all(self, least: int, watermark: float) -> bool:
        """Return whether no row is late; the times of none are before `least`."""
        if math.isinf(watermark):
            return watermark < 0
        return least >= int(watermark) - self._lateness

    def reach(self, side: int) -> tuple[int, int]:
        """Return how far before and behind the clock of a row of a side others are met."""
        return self._reach[1 - side], self._reach[side]

    def ranges(self, side: int, clock: Ints) -> tuple[Ints, Ints]:
        """Implement `Bound.ranges`."""
        before, after = self.reach(side)
        return clock - before, clock + after

    def horizon(self, side: int, watermark: float) -> int:
        """Implement `Bound.horizon`."""
        if math.isinf(watermark):
            return ALL_OVER if watermark > 0 else NONE_OVER
        return int(watermark) - self._reach[side] - self._lateness

    def span(self, side: int) -> int:
        """Implement `Bound.span`."""
        return self._reach[side] + self._lateness


class WindowBound:
    """Rows of one window (AIR's Join); of sliding windows, once for each that both are in."""

    def __init__(self, window: TimeWindow, lateness: int) -> None:
        self._window, self._lateness = window, lateness

    def admit(self, times: Ints, watermark: float) -> Admission:
        """Implement `Bound.admit`."""
        size, every = self._window.size, self._window.every
        first, last = (times - size) // every + 1, times // every
        n_windows = last - first + 1
        windows, rows = expand_ranges(first, last + 1)
        clock = windows * every
        is_open = clock >= self.horizon(LEFT_SIDE, watermark)
        if not is_open.all():
            rows, clock = rows[is_open], clock[is_open]
        has_open = np.zeros(len(times), np.bool_)
        has_open[rows] = True
        no_window = n_windows <= 0
        return Admission(clock, rows, ~has_open & ~no_window, no_window)

    def ranges(self, side: int, clock: Ints) -> tuple[Ints, Ints]:
        """Implement `Bound.ranges`."""
        return clock, clock

    def horizon(self, side: int, watermark: float) -> int:
        """Implement `Bound.horizon`: a window closes when W >= end + lateness."""
        if math.isinf(watermark):
            return ALL_OVER if watermark > 0 else NONE_OVER
        every = self._window.every
        # The last start that has closed, and one more, because what is before the horizon is over.
        return (int(watermark) - self._lateness - self._window.size) // every * every + 1

    def span(self, side: int) -> int:
        """Implement `Bound.span`."""
        return self._window.size + self._lateness


def _is_before(times: Ints, watermark: float, lateness: int) -> Mask:
    """Return which times are behind the watermark by more than the lateness."""
    if math.isinf(watermark):
        return np.full(len(times), watermark > 0)
    return np.asarray(times < int(watermark) - lateness)


def build_bound(resolved: ResolvedJoin) -> Bound:
    """Return the bound of a join."""
    if resolved.window is not None:
        return WindowBound(resolved.window, resolved.lateness)
    return WithinBound(resolved)
