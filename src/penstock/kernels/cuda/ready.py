"""Which windows of several kinds are next, given the slices that have rows.

Each kind of window moves on by itself, and from window to window with rows: a stretch without rows is
skipped, however long. Plain integer arithmetic; nothing here knows CUDA.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.timing.slices import Slicing, first_open
from penstock.timing.windows import TimeWindow

Array = npt.NDArray[Any]
BEFORE_TIME = -(2**62)


class Ready:
    """The first window of each kind that has not left yet."""

    def __init__(self, slicing: Slicing) -> None:
        self._slicing = slicing
        self._next = [first_open(window, BEFORE_TIME, 0) for window in slicing.windows]

    @property
    def needed_from(self) -> int:
        """The first slice that a window needs which has not left."""
        return min(self._slicing.id_of(start) for start in self._next)

    def leave_until(self, upto: int) -> None:
        """Every window that ends at or before `upto` has left."""
        bounds = [first_open(window, upto, 0) for window in self._slicing.windows]
        self._next = [max(pair) for pair in zip(self._next, bounds, strict=True)]

    def skip(self, touched: Array, parked: Array, upto: int) -> bool:
        """Go on to windows that may have rows; False when none is left that ends at or before `upto`.

        touched  the slices in reach that have rows, least first
        parked   those that are further ahead, least first: all after the ones in reach
        """
        for kind, window in enumerate(self._slicing.windows):
            first = self._slicing.id_of(self._next[kind])
            bound = first_open(window, upto, 0)
            found = _at_or_after(touched, first)
            found = _at_or_after(parked, first) if found is None else found
            if found is not None:
                begins = self._slicing.start_of(found)
                bound = min(bound, first_open(window, begins, 0))
            self._next[kind] = max(self._next[kind], bound)
        return any(self._has_more(kind, upto) for kind in range(len(self._next)))

    def take(self, end: int, most: int, upto: int) -> tuple[Array, Array, Array, Array]:
        """The next windows of all kinds before slice `end`, at most so many each: (kinds, starts, lo, hi)."""
        taken = [self._take(kind, end, most, upto) for kind in range(len(self._next))]
        kinds = np.repeat(np.arange(len(taken)), [len(starts) for starts, _, _ in taken])
        starts, lo, hi = (np.concatenate(each) for each in zip(*taken, strict=True))
        return kinds, starts, lo, hi

    def _take(self, kind: int, end: int, most: int, upto: int) -> tuple[Array, Array, Array]:
        window, slicing = self._slicing.windows[kind], self._slicing
        n = min(most, (first_open(window, upto, 0) - self._next[kind]) // window.every)
        starts = self._next[kind] + np.arange(max(0, n), dtype=np.int64) * window.every
        lo, hi = slicing.ids(starts), slicing.ids(starts + window.size)
        inside = int(np.searchsorted(hi, end, side="right"))
        self._next[kind] += inside * window.every
        return starts[:inside], lo[:inside], hi[:inside]

    def _has_more(self, kind: int, upto: int) -> bool:
        return self._next[kind] < first_open(self._slicing.windows[kind], upto, 0)


def leaves_of(slicing: Slicing, n_windows: int) -> int:
    """Slices under `n_windows` consecutive windows of any kind: m in the paper (IV-B2), in slices.

    Of several kinds, one may wait for the watermark while another goes on, a window's length ahead of it.
    """
    spans = [_span(slicing, window, n_windows) for window in slicing.windows]
    return max(spans) + (slicing.longest + 2 if len(spans) > 1 else 0)


def _span(slicing: Slicing, window: TimeWindow, n_windows: int) -> int:
    """The most slices under `n_windows` consecutive windows, wherever they begin."""
    length = (n_windows - 1) * window.every + window.size
    starts = range(0, max(slicing.period, window.every), window.every)
    return max(slicing.id_of(start + length) - slicing.id_of(start) for start in starts)


def _at_or_after(slices: Array, first: int) -> int | None:
    at = int(np.searchsorted(slices, first))
    return int(slices[at]) if at < len(slices) else None
