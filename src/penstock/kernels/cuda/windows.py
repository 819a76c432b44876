"""Time windows on a CUDA device: rows and watermarks in, windows out.

The pane stage (`add`) and the window stage (`close_windows`) are queued on streams of their own, and
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

from penstock.kernels.cuda.device import Launch, choose_device, default_launch
from penstock.kernels.cuda.kernels import CudaAccumulator
from penstock.kernels.cuda.pane_stage import UNCHANGED, CudaPaneStage, KeyGroups, Rows
from penstock.kernels.cuda.slices import Forest, Ring, SliceStates
from penstock.timing.slices import Slicing, first_open

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
            ahead = [*touched[np.searchsorted(touched, first) :][:1]]
            ahead += [*parked[np.searchsorted(parked, first) :][:1]]
            if ahead:
                begins = self._slicing.start_of(int(ahead[0]))
                bound = min(bound, first_open(window, begins, 0))
            self._next[kind] = max(self._next[kind], bound)
        bounds = [first_open(window, upto, 0) for window in self._slicing.windows]
        return any(start < bound for start, bound in zip(self._next, bounds, strict=True))

    def take(self, end: int, most: int, upto: int) -> tuple[Array, Array, Array, Array]:
        """Return (kinds, starts, lo, hi) of the next windows before slice `end`, at most `most` a kind."""
        slicing, windows = self._slicing, []
        for kind, window in enumerate(slicing.windows):
            n = min(most, (first_open(window, upto, 0) - self._next[kind]) // window.every)
            starts = self._next[kind] + np.arange(max(0, n), dtype=np.int64) * window.every
            lo, hi = slicing.ids(starts), slicing.ids(starts + window.size)
            inside = int(np.searchsorted(hi, end, side="right"))
            self._next[kind] += inside * window.every
            windows.append((np.full(inside, kind), starts[:inside], lo[:inside], hi[:inside]))
        kinds, starts, lo, hi = (np.concatenate(columns) for columns in zip(*windows, strict=True))
        return kinds, starts, lo, hi


def count_leaves(slicing: Slicing, n_windows: int) -> int:
    """Return the slices under `n_windows` consecutive windows of any kind: m in the paper (IV-B2), in slices.

    Of several kinds, one may wait for the watermark while another goes on, a window's length ahead of it.
    """
    spans = [
        slicing.id_of(start + (n_windows - 1) * window.every + window.size) - slicing.id_of(start)
        for window in slicing.windows
        for start in range(0, max(slicing.period, window.every), window.every)
    ]
    return max(spans) + (slicing.longest + 2 if len(slicing.windows) > 1 else 0)


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


class ResultCopy:
    """Some windows of some slots, on their way from the device into pinned memory."""

    def __init__(
        self, which: Array, kinds: Array, starts: Array, on_device: list[Any], stream: Any, back: Any
    ) -> None:
        """Queue the copies on the stream `back`, after what `stream` has to do: so that it may go on."""
        self._which, self._kinds, self._starts = which, kinds, starts
        self._on_device = on_device  # held until the copies are done
        computed, self._done = cuda.event(), cuda.event()
        computed.record(stream)
        computed.wait(back)
        self._cells = [cuda.pinned_array(array.shape, dtype=array.dtype) for array in on_device]
        for host, array in zip(self._cells, on_device, strict=True):
            array.copy_to_host(host, stream=back)
        self._done.record(back)

    def read(self) -> WindowCells:
        """Return the windows that have rows. Waits for the copies."""
        self._done.synchronize()
        filled = np.flatnonzero(self._cells[0][:, 0] > 0)
        slots, windows = np.divmod(filled, len(self._starts))
        cells = tuple(array[filled] for array in self._cells)
        return WindowCells(self._kinds[windows], self._which[slots], self._starts[windows], cells)


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
        """Return the windows that end at or before `upto` and have not left yet.

        All are queued before the first is read: meanwhile the device may still be at the last.
        """
        self._flush()
        self._touched = self._ring.touched_slices(self._stream)
        copies: list[ResultCopy] = []
        while self._go_on(upto):
            copies += self._queue_windows(upto)
        self._ready.leave_until(upto)
        self._forget()
        self._ring.shrink()
        empty = np.empty(0, np.int64)
        none = WindowCells(empty, empty, empty, tuple(rule.neutral_cells(0) for rule in self._rules))
        *columns, cells = zip(none, *(copy.read() for copy in copies), strict=True)
        kinds, slots, starts = map(np.concatenate, columns)
        return WindowCells(kinds, slots, starts, tuple(map(np.concatenate, zip(*cells, strict=True))))

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
        keep_from = self._ready.needed_from
        self._ring.clear_below(keep_from, self._stream)
        self._touched = self._touched[np.searchsorted(self._touched, keep_from) :]
        self._ring.start_at(self._touched)

    def _queue_windows(self, upto: int) -> list[ResultCopy]:
        """Queue the next windows of all kinds, of the slots that may have rows in them."""
        ring, stream, start = self._ring, self._stream, self._ready.needed_from
        # Slots that the ring has no room for have parked rows only, which these windows do not need.
        which = np.flatnonzero(self._latest[: ring.n_slots] >= self._slicing.start_of(start))
        most = max(1, min(self._n_windows, MAX_RESULTS // max(1, len(which))))
        kinds, starts, lo, hi = self._ready.take(start + self._leaves, most, upto)
        assert len(kinds), "the earliest window fits into a tree"
        if len(which) == 0:
            return []
        with ring.use(stream):
            self._forest.load(which, start, self._panes.changed, stream)
        self._panes.changed = UNCHANGED
        self._forest.update(stream)
        on_device = self._forest.compute(which, lo, hi, stream)
        return [ResultCopy(which, kinds, starts, on_device, stream, self._back)]
