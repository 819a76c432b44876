"""Which windows of several kinds are next, and their results on the way back from the device.

Each kind of window moves on by itself, and from window to window with rows: a time without rows is skipped,
however long. The windows that one watermark closes are queued on the device, and read when they are asked
for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.frozen import dataclass
from penstock.kernels.windows.accumulate import Rule
from penstock.timing.slices import Slicing, first_open
from penstock.timing.windows import TimeWindow

Array = npt.NDArray[Any]
BEFORE_TIME = -(2**62)


class ReadyWindows:
    """The first window of each kind that has not left yet."""

    def __init__(self, slicing: Slicing) -> None:
        self._slicing = slicing
        self._next = [first_open(window, BEFORE_TIME, 0) for window in slicing.windows]

    @property
    def needed_from(self) -> int:
        """Return the first slice that a window needs which has not left."""
        return min(self._slicing.id_of(start) for start in self._next)

    def leave_until(self, upto: int) -> None:
        """Note that every window that ends at or before `upto` has been emitted."""
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
            slice_id = _at_or_after(touched, first)
            slice_id = _at_or_after(parked, first) if slice_id is None else slice_id
            if slice_id is not None:
                begins = self._slicing.start_of(slice_id)
                bound = min(bound, first_open(window, begins, 0))
            self._next[kind] = max(self._next[kind], bound)
        return any(self._has_more(kind, upto) for kind in range(len(self._next)))

    def take(self, end: int, most: int, upto: int) -> tuple[Array, Array, Array, Array]:
        """Return (kinds, starts, lo, hi) of the next windows before slice `end`, at most `most` a kind."""
        windows = [self._take(kind, end, most, upto) for kind in range(len(self._next))]
        kinds = np.repeat(np.arange(len(windows)), [len(starts) for starts, _, _ in windows])
        starts, lo, hi = (np.concatenate(columns) for columns in zip(*windows, strict=True))
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


def count_leaves(slicing: Slicing, n_windows: int) -> int:
    """Slices under `n_windows` consecutive windows of any kind: m in the paper (IV-B2), in slices.

    Of several kinds, one may wait for the watermark while another goes on, a window's length ahead of it.
    """
    spans = [_span(slicing, window, n_windows) for window in slicing.windows]
    return max(spans) + (slicing.longest + 2 if len(spans) > 1 else 0)


def _span(slicing: Slicing, window: TimeWindow, n_windows: int) -> int:
    """Return the most slices under `n_windows` consecutive windows, wherever they begin."""
    length = (n_windows - 1) * window.every + window.size
    starts = range(0, max(slicing.period, window.every), window.every)
    return max(slicing.id_of(start + length) - slicing.id_of(start) for start in starts)


def _at_or_after(slices: Array, first: int) -> int | None:
    at = int(np.searchsorted(slices, first))
    return int(slices[at]) if at < len(slices) else None


class WindowCells(NamedTuple):
    """The windows with rows: columns of equal length, in the order of their leaving per slot and kind.

    kinds  int64[m]  which of the slicing's windows
    slots  int64[m]
    starts int64[m]
    cells  one array [m, width] per accumulator
    """

    kinds: Array
    slots: Array
    starts: Array
    cells: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class ResultCopy:
    """Some windows of some slots; their cells arrive in pinned memory once `done` has happened."""

    which: Array
    kinds: Array
    starts: Array
    cells: list[Array]
    done: Any
    on_device: list[Any]
    """Held until the copies are done."""

    @staticmethod
    def queue(
        which: Array, kinds: Array, starts: Array, on_device: list[Any], stream: Any, back: Any
    ) -> ResultCopy:
        """Queue the copies on the stream `back`, after what `stream` has to do: so that it may go on."""
        computed, done = cuda.event(), cuda.event()
        computed.record(stream)
        computed.wait(back)
        cells = [cuda.pinned_array(array.shape, dtype=array.dtype) for array in on_device]
        for host, array in zip(cells, on_device, strict=True):
            array.copy_to_host(host, stream=back)
        done.record(back)
        return ResultCopy(which, kinds, starts, cells, done, on_device)

    def read(self) -> WindowCells:
        """Return the windows that have rows. Waits for the copies."""
        self.done.synchronize()
        n_windows = len(self.starts)
        filled = np.flatnonzero(self.cells[0][:, 0] > 0)
        slots, windows = np.divmod(filled, n_windows)
        cells = tuple(array[filled] for array in self.cells)
        return WindowCells(self.kinds[windows], self.which[slots], self.starts[windows], cells)


class PendingResults:
    """Results on their way back from the device."""

    def __init__(self, rules: Sequence[Rule], copies: list[ResultCopy]) -> None:
        self._rules, self._copies = rules, copies

    def results(self) -> WindowCells:
        """Return all the windows; while the first are read, the device may still be at the last."""
        empty = np.empty(0, np.int64)
        parts = [copy.read() for copy in self._copies]
        kinds, slots, starts = (
            np.concatenate([empty, *(getattr(part, name) for part in parts)])
            for name in ("kinds", "slots", "starts")
        )
        cells = tuple(
            np.concatenate([rule.neutral_cells(0), *(part.cells[i] for part in parts)])
            for i, rule in enumerate(self._rules)
        )
        return WindowCells(kinds, slots, starts, cells)
