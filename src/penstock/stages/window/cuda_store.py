"""The store of time windows on a CUDA device: a `SliceStore` whose slices and trees are in device memory.

Rows are judged here, and only those that an open window needs go to the device. Slices have the numbers and
cells that they have on the host, so state that was saved on one is taken up by the other. Imports numba-cuda:
only for stages that have found a device (`device.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.cuda.accumulators import CudaAccumulator
from penstock.kernels.cuda.key_groups import Rows
from penstock.kernels.cuda.ring import SliceStates
from penstock.kernels.cuda.windows import CudaWindows
from penstock.kernels.windows.accumulate import encode_floats
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.folds import materialize_values
from penstock.stages.window.store import ClosedWindows, Decided, InputRows, StateBatches, Values
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
_COMPARED = (AccumulatorKind.MAX, AccumulatorKind.MIN, AccumulatorKind.MAX_COUNT, AccumulatorKind.MIN_COUNT)


class _Read(StrEnum):
    """What a register reads of a column: the values; integers in their order; one number of parts."""

    VALUES = "values"
    ORDER = "order"
    PART = "part"


class CudaStore(TimeStore):
    """Time windows of kinds that share slices, for all keys; `limits` as for CudaWindows."""

    def __init__(
        self, slicing: Slicing, lateness: int, registers: Sequence[WindowAccumulator], **limits: Any
    ) -> None:
        super().__init__(slicing, lateness, registers)
        self._reads: list[tuple[int, _Read, int]] = []
        on_device = [self._on_device(register) for register in self._kept]
        self._windows = CudaWindows(slicing, on_device, **limits)
        self._read_back: SliceStates | None = None  # while nothing changes, snapshots of all buckets share it

    def explain(self) -> tuple[str, ...]:
        """For each kind: how its windows are put together, and why."""
        longest = self.slicing.longest
        how = "a window is one slice" if longest == 1 else f"B-PAT over up to {longest} slices a window"
        return tuple(f"{window}: cuda, {how}" for window in self.slicing.windows)

    @property
    def nbytes(self) -> int:
        """The memory held, here and on the device."""
        return self._windows.nbytes + self.shown.nbytes

    def has_state(self, slots: Ints) -> Mask:
        """Which of these slots have rows that an open window needs."""
        return self._windows.holds(slots)

    def add(self, arriving: InputRows, watermark: int) -> Decided | None:
        """Judge rows, and queue what is not late for the device; (fates, misses) per kind and row."""
        judged = self._judge(arriving.times, int(arriving.times.min(initial=watermark)), watermark)
        needed = arriving.times >= self.slicing.open_from(watermark, self.lateness)
        if self.slicing.has_gaps:
            needed &= ~self.slicing.outside(arriving.times)
        if not needed.all():
            arriving = arriving.at(np.flatnonzero(needed))
        self._windows.add(self._rows(arriving))
        self._read_back = None
        return judged

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Let go every window with end + lateness <= watermark, and the slices that only they needed."""
        if watermark < self.next_end:
            return self._asked_for(self._left([], np.empty(0, np.int64)))
        self._left_to, self._read_back = max(self._left_to, watermark), None
        upto = self._left_to - self.lateness
        found = self._windows.leave(upto)
        self.shown.forget_before(self.slicing.id_of(self.slicing.open_from(self._left_to, self.lateness)))
        sizes = np.array([window.size for window in self.slicing.windows], np.int64)
        ends = found.starts + sizes[found.kinds]
        left = ClosedWindows(found.kinds, found.slots, found.starts, ends, ends - 1, cells=found.cells)
        return self._asked_for(replace(left, touched=self._windows.emptied()))

    def fire_early(self) -> ClosedWindows:
        """The open windows that changed since they were last shown; put together here, from a copy."""
        twin = TimeStore(self.slicing, self.lateness, self.registers)
        slots = np.unique(self._states().slots)
        twin.load(self.export(slots), slots)
        left = twin.fire_early()
        self.shown = twin.shown
        return left

    def export(self, slots: Ints) -> StateBatches:
        """The slices of these slots that have rows."""
        states = self._states()
        states = states.where(np.isin(states.slots, slots))
        places = np.argsort(slots, kind="stable")
        place = places[np.searchsorted(slots[places], states.slots)]
        columns = {"place": place, "slice": states.slices, "left_to": np.full(len(states), self._left_to)}
        for i, cells in enumerate(states.cells):
            columns |= {f"{i}.{part}": cells[:, part] for part in range(cells.shape[1])}
        columns |= self.shown.column(states.slots, states.slices, columns["0.0"])
        arrays = {name: pa.array(each, from_pandas=False) for name, each in columns.items()}
        return {"slices": pa.RecordBatch.from_pydict(arrays)}

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up exported slices: what was at place i now belongs to slots[i]."""
        batch = saved["slices"]
        if batch.num_rows == 0:
            return
        columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
        self._left_to = max(self._left_to, int(columns["left_to"].max()))
        cells = tuple(
            np.stack([columns[f"{i}.{part}"] for part in range(register.rule.width)], axis=1)
            for i, register in enumerate(self._kept)
        )
        states = SliceStates(slots[columns["place"]], columns["slice"], cells)
        self._windows.load(states, self._left_to - self.lateness)
        self.shown.load(batch, states.slots, states.slices, columns["0.0"])
        self._read_back = None

    def _states(self) -> SliceStates:
        if self._read_back is None:
            self._read_back = self._windows.states()
        return self._read_back

    def _on_device(self, register: WindowAccumulator) -> CudaAccumulator:
        """The register for the device; what it reads is added to the columns that go there."""
        lift = _LIFTS[register.kind]
        if register.column is None:
            return CudaAccumulator(register.rule, lift, None, register.flip)
        if register.kind is AccumulatorKind.FOLD:
            column = len(self._reads)
            self._reads += [(register.column, _Read.PART, part) for part in range(register.rule.width)]
            return CudaAccumulator(register.rule, lift, column, register.flip)
        read = (register.column, _Read.ORDER if register.kind in _COMPARED else _Read.VALUES, 0)
        if read not in self._reads:
            self._reads.append(read)
        return CudaAccumulator(register.rule, lift, self._reads.index(read), register.flip)

    def _rows(self, arriving: InputRows) -> Rows:
        values = materialize_values(arriving.values)
        return Rows(
            arriving.slots,
            arriving.times,
            tuple(_read(values[column], read, part) for column, read, part in self._reads),
            tuple(values[column].valid for column, _, _ in self._reads),
            arriving.order[0] if arriving.order else np.zeros(len(arriving.slots), np.int64),
        )


def _read(values: Values, read: _Read, part: int) -> npt.NDArray[Any]:
    if read is _Read.PART:
        return np.ascontiguousarray(values.data[:, part])
    if read is _Read.VALUES or values.data.dtype == np.int64:
        return values.data
    ordered = np.empty(len(values.data), np.int64)
    encode_floats.version(len(ordered) > 10_000)(values.data.view(np.int64), ordered)
    return ordered
