"""Slices: the stretches of time between neighbouring window starts and ends.

Every window is a whole number of slices, so a row is added to one slice only and windows are put together
from slices. Boundaries repeat every `period`; slices are numbered by contiguous integers, also before 1970,
so a slice's number is arithmetic and the distance of two numbers is the number of slices between them.
Equal panes of gcd(size, every) (SPRINGALD, III-B) would do as well but are never fewer: 10 s every 3.001 s
has two slices per slide and 3,001 panes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.frozen import Frozen
from penstock.timing.windows import TimeWindow

MOST_BOUNDARIES = 64
"""Windows share slices while one period has at most this many boundaries; a longer table would cost more."""

Ints = npt.NDArray[np.int64]


class Slicing(Frozen):
    """Slices of `period` microseconds cut at `offsets`, the first of which is 0."""

    windows: tuple[TimeWindow, ...]
    period: int
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, windows: Sequence[TimeWindow]) -> Slicing:
        """Return the slices that these windows share.

        >>> Slicing.of([TimeWindow(size=10, every=3)]).offsets
        (0, 1)
        """
        boundaries = _boundaries(windows)
        assert boundaries is not None, "windows that cannot share slices: ask Slicing.groups"
        period, offsets = boundaries
        step, rest = divmod(period, len(offsets))
        if rest == 0 and all(offset == i * step for i, offset in enumerate(offsets)):
            return cls(tuple(windows), step, (0,))  # evenly spaced: equal panes, one cut per shorter period
        return cls(tuple(windows), period, offsets)

    @classmethod
    def groups(cls, windows: Iterable[TimeWindow]) -> tuple[Slicing, ...]:
        """Return the windows dealt to as few slicings as a greedy walk finds, in their order."""
        shares: list[list[TimeWindow]] = []
        for window in windows:
            home = next((share for share in shares if _boundaries([*share, window]) is not None), None)
            if home is None:
                shares.append(home := [])
            home.append(window)
        return tuple(cls.of(share) for share in shares)

    @property
    def longest(self) -> int:
        """Return the most slices that one window can hold."""
        spans = [
            self.span(window, start)  # of all windows that start within one round of boundaries and slides
            for window in self.windows
            for start in range(0, max(self.period, window.every), window.every)
        ]
        return max(end - first for first, end in spans)

    @property
    def has_gaps(self) -> bool:
        """Return whether some times lie in no window: every kind hops further than its size."""
        return all(window.every > window.size for window in self.windows)

    def ids(self, times: npt.NDArray[Any]) -> Ints:
        """Return the number of the slice that holds each time."""
        rounds, within = np.divmod(np.asarray(times, np.int64), np.int64(self.period))
        if len(self.offsets) == 1:
            return np.asarray(rounds, np.int64)
        index = np.searchsorted(np.array(self.offsets, np.int64), within, side="right") - 1
        return np.asarray(rounds * len(self.offsets) + index, np.int64)

    def starts(self, ids: npt.NDArray[Any]) -> Ints:
        """Return the first time of each slice; that of its successor is its end."""
        rounds, index = np.divmod(np.asarray(ids, np.int64), np.int64(len(self.offsets)))
        return np.asarray(rounds * self.period + np.array(self.offsets, np.int64)[index], np.int64)

    def id_of(self, time: int) -> int:
        """Return the number of the slice that holds a time, in Python's integers."""
        rounds, within = divmod(time, self.period)
        return rounds * len(self.offsets) + sum(offset <= within for offset in self.offsets) - 1

    def start_of(self, id_: int) -> int:
        """Return the first time of a slice, in Python's integers."""
        rounds, index = divmod(id_, len(self.offsets))
        return rounds * self.period + self.offsets[index]

    def bounds(self, id_: int) -> tuple[int, int]:
        """Return [start, end) of a slice."""
        return self.start_of(id_), self.start_of(id_ + 1)

    def span(self, window: TimeWindow, start: int) -> tuple[int, int]:
        """Return the slices of the window that starts at `start`: (first, one past last)."""
        return self.id_of(start), self.id_of(start + window.size)

    def open_from(self, watermark: int, lateness: int) -> int:
        """Return the least time in a window still open; rows before it are late for all their windows.

        Windows are open while end + lateness > watermark, and those of one kind close in the order of
        their starts, so it is the start of the earliest open one.
        """
        return min(first_open(window, watermark, lateness) for window in self.windows)

    def outside(self, times: Ints) -> npt.NDArray[np.bool_]:
        """Return which times lie in no window at all, in the gap of every hopping kind."""
        gaps = [np.mod(times, window.every) >= window.size for window in self.windows]
        return np.asarray(np.logical_and.reduce(gaps), np.bool_)


def first_open(window: TimeWindow, watermark: int, lateness: int) -> int:
    """Return the start of the earliest window that has not left: end + lateness > watermark."""
    return ((watermark - lateness - window.size) // window.every + 1) * window.every


def closed_windows_of(window: TimeWindow, times: Ints, watermark: int, lateness: int) -> Ints:
    """Return the number of windows of each time had left at the watermark: what the time's row has missed."""
    last = np.minimum(
        times // window.every * window.every, first_open(window, watermark, lateness) - window.every
    )
    first = (times - window.size) // window.every * window.every + window.every
    return np.asarray(np.maximum((last - first) // window.every + 1, 0), np.int64)


def _boundaries(windows: Sequence[TimeWindow]) -> tuple[int, tuple[int, ...]] | None:
    """Return the period of several windows and where it is cut; None when that takes too many cuts."""
    period = math.lcm(*(window.every for window in windows))
    if len(windows) > 1 and sum(period // window.every for window in windows) > 2 * MOST_BOUNDARIES:
        return None
    cuts = {
        cut % period
        for window in windows
        for start in range(0, period, window.every)
        for cut in (start, start + window.size)
    }
    return None if len(cuts) > MOST_BOUNDARIES else (period, tuple(sorted(cuts)))
