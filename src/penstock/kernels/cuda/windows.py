"""Sliding windows on a CUDA device: rows and watermarks in, windows out.

The pane stage (`add`) and the window stage (`closing`) are queued on streams of their own. Both use the
ring, in turns; apart from that the pane stage of the next batch runs while the window stage still works
on its trees and copies results back. The host waits in two places: when a lane is needed again, and when
a watermark asks which slices have rows.

Slots are dense numbers for keys, times and sizes are integers of one unit. Rows that are late for all
their windows, or in the gap between hopping windows, are not added: `skipped` counts them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.kernels.cuda.closing import Closing, Run, WindowResults
from penstock.kernels.cuda.device import choose_device
from penstock.kernels.cuda.forest import Forest
from penstock.kernels.cuda.groups import KeyGroups, Rows
from penstock.kernels.cuda.launch import Launch, usual_launch
from penstock.kernels.cuda.operation import Operation
from penstock.kernels.cuda.pane_stage import PaneStage
from penstock.kernels.cuda.panes import pane_kernels
from penstock.kernels.cuda.registers import device_registers
from penstock.kernels.cuda.ring import Ring, States
from penstock.kernels.cuda.slicing import Slicing
from penstock.kernels.cuda.tree import tree_kernels

Array = npt.NDArray[Any]
END_OF_TIME = 2**62


class Pending(NamedTuple):
    """What a snapshot holds: states by slot and slice, rows too far ahead, and the first open window."""

    states: list[States]
    held: list[Rows]
    open_from: int


class CudaWindows:
    """One operation over windows of `size` every `every`, per slot.

    n_windows           windows of a slot computed at once: an upper bound, never a wait
    batch_rows          rows copied to the device at once
    max_keys_per_batch  slots that may share a batch (VI-C); None for any number
    max_pending         slices per slot in device memory; the rest waits on the host
    """

    def __init__(
        self,
        operation: Operation,
        *,
        size: int,
        every: int,
        n_windows: int = 64,
        batch_rows: int = 1 << 20,
        max_keys_per_batch: int | None = 25,
        max_pending: int = 1 << 16,
        launch: Launch | None = None,
    ) -> None:
        choose_device("cuda")
        self._operation, self._slicing = operation, Slicing(size, every)
        self._n_windows, launch = n_windows, launch or usual_launch()
        registers = device_registers(operation)
        kernels = pane_kernels(registers.lift, registers.combine)
        limit = max(max_pending, self._slicing.leaves(n_windows))  # one call's windows must fit in the ring
        self._ring = Ring(operation, kernels, launch, limit)
        self._panes = PaneStage(operation, kernels, launch, self._slicing, self._ring, batch_rows)
        trees = tree_kernels(registers.combine)
        self._forest = Forest(operation, trees, launch, self._slicing, n_windows)
        self._groups = KeyGroups(batch_rows, max_keys_per_batch)
        self._window_stream = cuda.stream()
        self._open_from = -END_OF_TIME

    def add(
        self, slots: Array, times: Array, values: Array | None = None, valid: Array | None = None
    ) -> None:
        """Add rows to the slices of their slots.

        slots   int64[n]             not negative
        times   int64[n]             within 2^61 of 0
        values  number[n(, columns)] may be left out for count
        valid   bool[n]              False marks a null: the row counts, its value does not; default all
        """
        n = len(slots)
        if n == 0:
            return
        if values is None:
            values = np.zeros(n, dtype=self._operation.dtype)
        shaped = values.astype(self._operation.dtype, casting="safe", copy=False).reshape(n, -1)
        rows = Rows(slots, times, shaped, np.ones(n, dtype=np.bool_) if valid is None else valid)
        for batch in self._groups.add(rows):
            self._panes.send(batch, self._slicing.first_slice(self._open_from))

    def leave(self, watermark: float) -> WindowResults:
        """The windows that end at or before the watermark and have not left yet, by (start, slot)."""
        return self.closing(watermark).results()

    def closing(self, watermark: float) -> Closing:
        """Queue the windows that a watermark closes; their results are waited for when they are asked for."""
        self._flush()
        runs: list[Run] = []
        if watermark > -math.inf:
            end = self._slicing.first_open(int(min(watermark, END_OF_TIME)))
            self._look()
            while (run := self._next_run(end)) is not None:
                runs.append(run)
            self._close_to(end)
        return Closing(self._operation, self._slicing, runs, self._window_stream)

    @property
    def skipped(self) -> int:
        """Rows that were in no open window so far. Waits for the device."""
        return self._panes.skipped

    @property
    def nbytes(self) -> int:
        """Device memory of pending slices and trees: what grows with slots and open slices."""
        return self._ring.nbytes + self._forest.nbytes

    def snapshot(self) -> Pending:
        """Everything that open windows need, on the host. Waits for the device; changes nothing."""
        self._flush()
        return Pending([self._ring.states(), *self._ring.parked], self._panes.held, self._open_from)

    def restore(self, pending: Pending) -> None:
        """Go on from a snapshot; only on windows that have seen no rows."""
        for states in pending.states:
            self._ring.park(states)
        for rows in pending.held:
            self._panes.hold(rows)
        self._open_from = pending.open_from

    def _flush(self) -> None:
        for batch in self._groups.take_all():
            self._panes.send(batch, self._slicing.first_slice(self._open_from))

    def _look(self) -> None:
        """Learn which slices have rows, and how late each slot's last ones are."""
        self._touched = self._ring.touched_slices(self._window_stream)
        self._latest = self._ring.latest_slices(self._window_stream)

    def _next_run(self, end: int) -> Run | None:
        """Queue the next windows before window `end` that may have rows, at most n_windows of them."""
        while self._panes.take_back(self._touched, self._slicing.first_slice(self._open_from)):
            self._look()
        slicing, ring, stream = self._slicing, self._ring, self._window_stream
        if len(self._touched) == 0:
            return None
        first = max(self._open_from, slicing.first_window(int(self._touched[0])))
        if first >= end:
            return None
        n_windows = min(self._n_windows, end - first)
        start, keep_from = slicing.first_slice(first), slicing.first_slice(first + n_windows)
        which = np.flatnonzero(self._latest >= start).astype(np.int64)
        ring.turn.take(stream)
        self._forest.load(ring, which, start, start + slicing.leaves(n_windows), self._panes.changed, stream)
        ring.clear_below(keep_from, stream)
        ring.turn.give(stream)
        self._forest.update(stream)
        states = self._forest.compute(which, start, n_windows, stream)
        self._open_from, self._panes.changed = first + n_windows, END_OF_TIME
        self._touched = self._touched[np.searchsorted(self._touched, keep_from) :]
        return Run.queued(which, first, n_windows, states, stream)

    def _close_to(self, end: int) -> None:
        """No window before `end` is open any more; give back the room that is not needed."""
        self._open_from = max(self._open_from, end)
        ring, stream = self._ring, self._window_stream
        ring.turn.take(stream)
        ring.clear_below(self._slicing.first_slice(self._open_from), stream)
        ring.turn.give(stream)
        ring.start_at(self._touched)
        ring.shrink()
