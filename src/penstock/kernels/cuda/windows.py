"""Time windows on a CUDA device: rows and watermarks in, windows out.

The pane stage (`add`) and the window stage (`queue_windows`) are queued on streams of their own, and
results are copied back on a third. The first two use the ring, one after the other; apart from that the
pane stage of the next batch runs while the window stage still works on its trees. The host waits in two
places: when a copy slot is needed again, and when a watermark asks which slices have rows.

Each kind of window moves on by itself, and from window to window with rows: a time without rows is skipped,
however long. The windows that one watermark closes are queued on the device, and read when they are asked
for.

Slots are dense numbers for keys, times are integers of the slicing's unit. All windows of the slicing share
its slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.frozen import dataclass
from penstock.kernels.cuda.device import Launch, choose_device, default_launch
from penstock.kernels.cuda.kernels import CudaAccumulator
from penstock.kernels.cuda.pane_stage import UNCHANGED, CudaPaneStage, KeyGroups, Rows
from penstock.kernels.cuda.slices import Forest, Ring, SliceStates
from penstock.kernels.windows.accumulate import Rule
from penstock.timing.slices import Slicing, first_open
from penstock.timing.windows import TimeWindow

Array = npt.NDArray[Any]
BEFORE_TIME = -(2**62)
MAX_RESULTS = 1 << 22
"""Windows of all slots in one call: with many slots, fewer windows of each."""
_GONE = -(2**63)
"""The latest time of a slot without rows."""


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
    """Return the slices under `n_windows` consecutive windows of any kind: m in the paper (IV-B2), in slices.

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


class PendingResults(NamedTuple):
    """Results on their way back from the device."""

    rules: Sequence[Rule]
    copies: list[ResultCopy]

    def results(self) -> WindowCells:
        """Return all the windows; while the first are read, the device may still be at the last."""
        empty = np.empty(0, np.int64)
        parts = [copy.read() for copy in self.copies]
        kinds, slots, starts = (
            np.concatenate([empty, *(getattr(part, name) for part in parts)])
            for name in ("kinds", "slots", "starts")
        )
        cells = tuple(
            np.concatenate([rule.neutral_cells(0), *(part.cells[i] for part in parts)])
            for i, rule in enumerate(self.rules)
        )
        return WindowCells(kinds, slots, starts, cells)


class CudaWindows:
    """Registers over the windows of a slicing, per slot; the first accumulator counts rows.

    n_windows           windows of a slot and kind computed at once: an upper bound, never a wait
    batch_rows          rows copied to the device at once: a few megabytes are enough (VI-B, observation 1)
    max_keys_per_batch  slots that may share a batch (VI-C); None for any number. The paper's 25 is for one
                        launch per key; here a launch serves all keys of a batch
    max_pending         slices per slot in device memory; the rest waits on the host
    """

    def __init__(
        self,
        slicing: Slicing,
        accumulators: Sequence[CudaAccumulator],
        *,
        n_windows: int = 64,
        batch_rows: int = 1 << 18,
        max_keys_per_batch: int | None = 1024,
        max_pending: int = 1 << 16,
        launch: Launch | None = None,
    ) -> None:
        assert accumulators[0].lift == "row", "only windows with rows leave, so rows are counted first"
        choose_device("cuda")
        self._slicing, self._n_windows, launch = slicing, n_windows, launch or default_launch()
        self._rules = tuple(accumulator.rule for accumulator in accumulators)
        n_leaves = count_leaves(slicing, n_windows)
        self._leaves = n_leaves
        # One call's windows must fit in the ring.
        self._ring = Ring(self._rules, launch, max(max_pending, n_leaves))
        self._panes = CudaPaneStage(accumulators, launch, slicing, self._ring, batch_rows)
        self._forest = Forest(self._ring, launch, n_leaves, slicing.longest)
        self._groups = KeyGroups(batch_rows, max_keys_per_batch)
        self._ready = ReadyWindows(slicing)
        self._latest = np.full(1, _GONE)
        self._stream, self._back = cuda.stream(), cuda.stream()

    def add(self, rows: Rows) -> None:
        """Add rows to the slices of their slots. Invariant: each lies in a window that has not left."""
        if len(rows) == 0:
            return
        self._note(rows.slots, rows.times)
        for batch in self._groups.add(rows):
            self._panes.send(batch)

    def close_windows(self, upto: int) -> WindowCells:
        """Return the windows that end at or before `upto` and have not left yet."""
        return self.queue_windows(upto).results()

    def queue_windows(self, upto: int) -> PendingResults:
        """Queue the windows that end by `upto`; their results are waited for when they are asked for."""
        self._flush()
        self._touched = self._ring.touched_slices(self._stream)
        runs: list[ResultCopy] = []
        while self._go_on(upto):
            run = self._run(upto)
            if run is not None:
                runs.append(run)
        self._ready.leave_until(upto)
        self._forget()
        self._ring.shrink()
        return PendingResults(self._rules, runs)

    def holds(self, slots: Array) -> Array:
        """Return which of these slots have rows in a window that has not left."""
        held = np.zeros(len(slots), np.bool_)
        known = slots < len(self._latest)
        held[known] = self._latest[slots[known]] >= self._slicing.start_of(self._ready.needed_from)
        return held

    def take_emptied(self) -> Array:
        """Return the slots that hold no rows any more; each is returned once."""
        old = self._latest < self._slicing.start_of(self._ready.needed_from)
        slots = np.flatnonzero(old & (self._latest > _GONE))
        self._latest[slots] = _GONE
        return slots

    @property
    def nbytes(self) -> int:
        """Return the memory in use: slices, trees and buffers on the device, waiting rows on the host."""
        parts = (self._ring, self._forest, self._panes, self._groups)
        return sum(part.nbytes for part in parts) + self._latest.nbytes

    def states(self) -> SliceStates:
        """Return the cells of all slices that open windows need, on the host. Waits for the device."""
        self._flush()
        self._touched = self._ring.touched_slices(self._stream)
        self._bring_near()
        held = self._ring.states()
        parked = self._ring.parked
        cells = tuple(np.concatenate(pair) for pair in zip(held.cells, parked.cells, strict=True))
        return SliceStates(
            np.concatenate([held.slots, parked.slots]), np.concatenate([held.slices, parked.slices]), cells
        )

    def load(self, states: SliceStates, left_to: int) -> None:
        """Take up cells of slots that have none; windows that end at or before `left_to` have closed."""
        self._ready.leave_until(left_to)
        if len(states):
            self._ring.park(states)
            self._note(states.slots, self._slicing.starts(states.slices))

    def _note(self, slots: Array, times: Array) -> None:
        """Remember the latest time of each slot, by which the host knows who has rows."""
        n_slots = int(slots.max()) + 1
        if n_slots > len(self._latest):
            more = np.full(max(n_slots, 2 * len(self._latest)), _GONE)
            more[: len(self._latest)] = self._latest
            self._latest = more
        if n_slots == 1:
            self._latest[0] = max(self._latest[0], times.max())
        else:
            np.maximum.at(self._latest, slots, times)

    def _flush(self) -> None:
        for batch in self._groups.take_all():
            self._panes.send(batch)

    def _go_on(self, upto: int) -> bool:
        """Move on to the next windows that may have rows; False when there are none that end by `upto`."""
        while True:
            self._bring_near()
            has_more = self._ready.skip(self._touched, self._ring.parked.slices, upto)
            start = self._ring.low
            self._forget()
            if self._ring.low == start or len(self._ring.parked) == 0:
                return has_more

    def _bring_near(self) -> None:
        """Let the ring begin at the first slice with rows, and take back what is parked and in reach."""
        self._ring.start_at(self._touched)
        first = self._ring.unpark()
        if first is not None:
            self._panes.changed = min(self._panes.changed, first)
            self._touched = self._ring.touched_slices(self._stream)

    def _forget(self) -> None:
        """Clear the slices that no window needs any more."""
        ring, keep_from = self._ring, self._ready.needed_from
        ring.access.acquire(self._stream)
        ring.clear_below(keep_from, self._stream)
        ring.access.release(self._stream)
        self._touched = self._touched[np.searchsorted(self._touched, keep_from) :]
        ring.start_at(self._touched)

    def _run(self, upto: int) -> ResultCopy | None:
        """Queue the next windows of all kinds, of the slots that may have rows in them."""
        ring, stream, start = self._ring, self._stream, self._ready.needed_from
        # Slots that the ring has no room for have parked rows only, which these windows do not need.
        which = np.flatnonzero(self._latest[: ring.n_slots] >= self._slicing.start_of(start))
        most = max(1, min(self._n_windows, MAX_RESULTS // max(1, len(which))))
        kinds, starts, lo, hi = self._ready.take(start + self._leaves, most, upto)
        assert len(kinds), "the earliest window fits into a tree"
        if len(which) == 0:
            return None
        ring.access.acquire(stream)
        self._forest.load(which, start, self._panes.changed, stream)
        ring.access.release(stream)
        self._panes.changed = UNCHANGED
        self._forest.update(stream)
        on_device = self._forest.compute(which, lo, hi, stream)
        return ResultCopy.queue(which, kinds, starts, on_device, stream, self._back)
