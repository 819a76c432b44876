"""The store of time windows on a CUDA device: a `TimeStore` whose slices and trees are in device memory.

Late rows are found here, and only rows that an open window needs go to the device. Slices have the numbers
and cells that they have on the host, so state that was saved on one is loaded by the other. Imports
numba-cuda: only for stages that have found a device (`groups.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.kernels.cuda.kernels import CudaAccumulator
from penstock.kernels.cuda.pane_stage import Rows
from penstock.kernels.cuda.slices import SliceStates
from penstock.kernels.cuda.windows import CudaWindows
from penstock.kernels.windows.accumulate import encode_floats
from penstock.stages import policy
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import InputRows, Values
from penstock.stages.rows.store import PLACE, ints_of
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator, load_cells
from penstock.stages.window.folds import lift_values
from penstock.stages.window.store import ClosedWindows, Decided, StateBatches, decide_rows
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing

_LIFTS = {
    AccumulatorKind.ROWS: "row",
    AccumulatorKind.COUNT: "null",  # kept as the number of nulls, as on the host
    AccumulatorKind.INT_SUM: "halves",
    AccumulatorKind.FLOAT_SUM: "float",
    AccumulatorKind.MAX: "extreme",
    AccumulatorKind.MIN: "extreme",
    AccumulatorKind.MAX_COUNT: "counted",
    AccumulatorKind.MIN_COUNT: "counted",
    AccumulatorKind.LAST: "placed",
    AccumulatorKind.FIRST: "placed",
    AccumulatorKind.MOMENTS: "moments",
    AccumulatorKind.MAX_TIME: "time",
    AccumulatorKind.FOLD: "part",
}
_Read = Literal["values", "order", "part", "nulls"]
"""What an accumulator reads of a column: the values; integers of their order; one number of parts; nulls."""


_READS: dict[AccumulatorKind, _Read] = {
    AccumulatorKind.COUNT: "nulls",
    AccumulatorKind.MAX: "order",
    AccumulatorKind.MIN: "order",
    AccumulatorKind.MAX_COUNT: "order",
    AccumulatorKind.MIN_COUNT: "order",
    AccumulatorKind.FOLD: "part",
}
"""What is read where it is not the values."""


class CudaStore(TimeStore):
    """Time windows of kinds that share slices, for all keys; `limits` as for CudaWindows."""

    def __init__(
        self, slicing: Slicing, lateness: int, accumulators: Sequence[WindowAccumulator], **limits: Any
    ) -> None:
        super().__init__(slicing, lateness, accumulators)
        self._reads: list[tuple[int, _Read, int]] = []
        on_device = [self._on_device(accumulator) for accumulator in self.accumulators.stored]
        self._is_ordered = any(accumulator.lift == "placed" for accumulator in on_device)
        self._windows = CudaWindows(slicing, on_device, **limits)
        self._host_copy: SliceStates | None = None  # while nothing changes, snapshots of all buckets share it

    @property
    def nbytes(self) -> int:
        """Return the memory held, here and on the device."""
        return self._windows.nbytes + self.early_firings.nbytes

    def explain(self) -> tuple[str, ...]:
        """Say for each kind how its windows are combined."""
        longest = self.slicing.longest
        how = "a window is one slice" if longest == 1 else f"B-PAT over up to {longest} slices a window"
        return tuple(f"{window}: cuda, {how}" for window in self.slicing.windows)

    def has_state(self, slots: Ints) -> Mask:
        """Return which of these slots have rows that an open window needs."""
        return self._windows.holds(slots)

    def add(self, rows: InputRows, watermark: int) -> Decided | None:
        """Queue the rows that are not late for all their windows for the device."""
        decided = decide_rows(self.slicing.windows, self.lateness, rows.times, watermark)
        needed = rows.times >= self.slicing.open_from(watermark, self.lateness)
        if self.slicing.has_gaps:
            needed &= ~self.slicing.outside(rows.times)
        self._windows.add(self._device_rows(rows if needed.all() else rows.at(np.flatnonzero(needed))))
        self._host_copy = None
        return decided

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Close every window with end + lateness <= watermark, and drop slices that only they needed."""
        if watermark < self.next_end:
            return self._gather([])
        self._closed_to, self._host_copy = max(self._closed_to, watermark), None
        closed = self._windows.close_windows(self._closed_to - self.lateness)
        open_from = self.slicing.open_from(self._closed_to, self.lateness)
        self.early_firings.forget_before(self.slicing.id_of(open_from))
        sizes = np.array([window.size for window in self.slicing.windows], np.int64)
        ends = closed.starts + sizes[closed.kinds]
        return ClosedWindows(
            closed.kinds,
            closed.slots,
            closed.starts,
            ends,
            ends - 1,
            cells=self.accumulators.results(closed.cells),
            touched=self._windows.take_emptied(),
        )

    def fire_early(self) -> ClosedWindows:
        """Return the open windows that changed since they last fired early; combined here, from a copy."""
        host = TimeStore(self.slicing, self.lateness, self.accumulators.requested)
        slots = np.unique(self._states().slots)
        host.load(self.export(slots), slots)
        fired = host.fire_early()
        self.early_firings = host.early_firings
        return fired

    def export(self, slots: Ints) -> StateBatches:
        """Return the slices of these slots that have rows."""
        states = self._states()
        states = states.where(np.isin(states.slots, slots))
        return self._state_batches(slots, states.slots, states.slices, states.cells, np.arange(len(states)))

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over exported slices: what was at place i now belongs to slots[i]."""
        batch = saved["slices"]
        if batch.num_rows == 0:
            return
        self._closed_to = max(self._closed_to, int(ints_of(batch, "closed_to").max()))
        cells = tuple(rule.neutral_cells(batch.num_rows) for rule in self.accumulators.rules)
        load_cells(batch, cells, np.arange(batch.num_rows))
        states = SliceStates(slots[ints_of(batch, PLACE)], ints_of(batch, "slice"), cells)
        self._windows.load(states, self._closed_to - self.lateness)
        self.early_firings.load(batch, states.slots, states.slices, ints_of(batch, "0.0"))
        self._host_copy = None

    def _states(self) -> SliceStates:
        if self._host_copy is None:
            self._host_copy = self._windows.states()
        return self._host_copy

    def _on_device(self, accumulator: WindowAccumulator) -> CudaAccumulator:
        """Return the accumulator for the device; what it reads is added to the columns that go there."""
        kind, rule, column = accumulator.kind, accumulator.rule, accumulator.column
        place = None
        if column is not None:
            how: _Read = _READS.get(kind, "values")
            reads = [(column, how, part) for part in range(rule.width if how == "part" else 1)]
            if reads[0] not in self._reads:
                self._reads += reads
            place = self._reads.index(reads[0])
        return CudaAccumulator(rule, _LIFTS[kind], place, accumulator.flip)

    def _device_rows(self, rows: InputRows) -> Rows:
        values, order = lift_values(rows.values), None
        if self._is_ordered:
            order = rows.order[0] if rows.order else np.zeros(len(rows.slots), np.int64)
        return Rows(
            rows.slots,
            rows.times,
            tuple(_read(values[column], read, part) for column, read, part in self._reads),
            tuple(values[column].valid for column, _, _ in self._reads),
            order,
        )


def _read(values: Values, read: _Read, part: int) -> npt.NDArray[Any] | None:
    if read == "nulls":
        return None
    if read == "part":
        return np.ascontiguousarray(values.data[:, part])
    if read == "values" or values.data.dtype == np.int64:
        return values.data
    encoded = np.empty(len(values.data), np.int64)
    is_compiled = len(encoded) > policy.SIZES.compile_after
    encode_floats.version(is_compiled)(values.data.view(np.int64), encoded)
    return encoded
