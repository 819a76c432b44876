"""Time windows on a CUDA device: rows and watermarks in, windows out.

The pane stage (`add`) and the window stage (`queue_windows`) are queued on streams of their own, and
results are copied back on a third. The first two use the ring, one after the other; apart from that the
pane stage of the next batch runs while the window stage still works on its trees. The host waits in two
places: when a copy slot is needed again, and when a watermark asks which slices have rows.

Slots are dense numbers for keys, times are integers of the slicing's unit. All windows of the slicing share
its slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.kernels.cuda.accumulators import CudaAccumulator
from penstock.kernels.cuda.device import Launch, choose_device, default_launch
from penstock.kernels.cuda.key_groups import KeyGroups, Rows
from penstock.kernels.cuda.pane_stage import UNCHANGED, CudaPaneStage
from penstock.kernels.cuda.ready import PendingResults, ReadyWindows, ResultCopy, WindowCells, count_leaves
from penstock.kernels.cuda.ring import Ring, SliceStates
from penstock.kernels.cuda.tree import Forest
from penstock.timing.slices import Slicing

Array = npt.NDArray[Any]
MAX_RESULTS = 1 << 22
"""Windows of all slots in one call: with many slots, fewer windows of each."""


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
        self._forest = Forest(self._rules, launch, n_leaves, slicing.longest)
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
        """Take up cells of slots that have none; windows that end at or before `left_to` have left."""
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
        self._forest.load(ring, which, start, self._panes.changed, stream)
        ring.access.release(stream)
        self._panes.changed = UNCHANGED
        self._forest.update(stream)
        on_device = self._forest.compute(which, lo, hi, stream)
        return ResultCopy.queue(which, kinds, starts, on_device, stream, self._back)


_GONE = -(2**63)
"""The latest time of a slot without rows."""
