"""Two lanes into device memory, so that one batch is copied while the next is prepared (III-B).

A lane is a stream with pinned host buffers and device buffers of its own. Copies and kernels of a batch
are queued on its lane, and `load` returns at once; the lane is waited for only when its turn comes again.
State that both lanes write is guarded by a `Turn`: a chain of events that orders streams on the device
without stopping the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.kernels.cuda.accumulators import CudaAccumulator
from penstock.kernels.cuda.key_groups import Rows
from penstock.kernels.cuda.panes import power_of_two
from penstock.kernels.windows.accumulate import Rule

Array = npt.NDArray[Any]


class Layout:
    """Which columns of rows go to the device, and where they lie there: integers and floats apart."""

    def __init__(self, registers: Sequence[CudaAccumulator]) -> None:
        read = {column: each.rule.floats for each in registers for column in each.reads}
        self.columns = [sorted(c for c, floats in read.items() if floats is kind) for kind in (False, True)]
        self.masks = sorted({each.column for each in registers if each.column is not None})
        self.ordered = any(each.lift == "placed" for each in registers)

    def place(self, register: CudaAccumulator) -> int:
        """Return the place of a register's first column among those of its type; of no column 0."""
        read = register.reads
        return self.columns[register.rule.floats].index(read[0]) if read else 0


class CopySlot:
    """Buffers for one batch, and the stream that fills and reads them. They grow with the batches."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.stream = cuda.stream()
        self._pinned_place = cuda.pinned_array(4, dtype=np.int64)
        self.place = cuda.device_array(4, dtype=np.int64)
        self._allocate(1)

    def _allocate(self, capacity: int) -> None:
        layout = self._layout
        integers, floats = (max(1, len(columns)) for columns in layout.columns)
        shapes: dict[str, tuple[int, Any]] = {
            "slots": (1, np.int64),
            "times": (1, np.int64),
            "order": (1, np.int64),
            "integers": (integers, np.int64),
            "floats": (floats, np.float64),
            "valid": (max(1, len(layout.masks)), np.bool_),
        }
        self._capacity = capacity
        self._pinned = {name: cuda.pinned_array((n, capacity), dtype=t) for name, (n, t) in shapes.items()}
        self._device = {name: cuda.device_array((n, capacity), dtype=t) for name, (n, t) in shapes.items()}
        self.packed = cuda.device_array(capacity, dtype=np.int64)
        self._cells: dict[tuple[bool, int], list[Any]] = {}

    @property
    def nbytes(self) -> int:
        """Device memory in use."""
        cells = [array for pair in self._cells.values() for array in pair]
        return sum(int(array.nbytes) for array in (*self._device.values(), self.packed, *cells))

    def load(self, rows: Rows, place: tuple[int, int, int, int]) -> None:
        """Wait for the batch before in this lane, then queue the copies of this one."""
        self.stream.synchronize()
        if power_of_two(len(rows)) > self._capacity:
            self._allocate(power_of_two(len(rows)))
        self._copy("slots", 0, rows.slots)
        self._copy("times", 0, rows.times)
        if self._layout.ordered and rows.order is not None:
            self._copy("order", 0, rows.order)
        for name, columns in zip(("integers", "floats"), self._layout.columns, strict=True):
            for at, column in enumerate(columns):
                self._copy(name, at, rows.values[column])
        self._masked = {column: rows.valid[column] is not None for column in self._layout.masks}
        for at, column in enumerate(self._layout.masks):
            mask = rows.valid[column]
            if mask is not None:
                self._copy("valid", at, mask)
        self._pinned_place[:] = place
        self.place.copy_to_device(self._pinned_place, stream=self.stream)

    def _copy(self, name: str, at: int, values: Array) -> None:
        n = len(values)
        self._pinned[name][at, :n] = values
        self._device[name][at, :n].copy_to_device(self._pinned[name][at, :n], stream=self.stream)

    def line(self, name: str) -> Any:
        """Return a device column: slots, times or order."""
        return self._device[name][0]

    def block(self, name: str) -> Any:
        """Device columns under each other: integers, floats or valid."""
        return self._device[name]

    def mask(self, column: int | None) -> int:
        """Return the place of a column's mask; -1 where none of this batch's rows is null."""
        return self._layout.masks.index(column) if column is not None and self._masked[column] else -1

    def cells(self, rule: Rule) -> list[Any]:
        """Two device arrays for the cells of rows; rules of one shape share them, one after the other."""
        shape = rule.floats, rule.width
        if shape not in self._cells:
            size = (self._capacity, rule.width)
            self._cells[shape] = [cuda.device_array(size, dtype=rule.dtype) for _ in range(2)]
        return self._cells[shape]


class StreamOrder:
    """Who touched shared device state last, so that the next one waits for it, on the device."""

    def __init__(self) -> None:
        self._last: Any = None

    def take(self, stream: Any) -> None:
        """Make a stream wait until the last one is done."""
        if self._last is not None:
            self._last.wait(stream)

    def give(self, stream: Any) -> None:
        """What is queued on this stream so far is what the next one waits for."""
        self._last = cuda.event()
        self._last.record(stream)
