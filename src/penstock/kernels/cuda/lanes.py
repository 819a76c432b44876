"""Two lanes into device memory, so that one batch is copied while the next is prepared (III-B).

A lane is a stream with a pinned host buffer and device buffers of its own. Copies and kernels of a batch
are queued on its lane, and `load` returns at once; the lane is waited for only when its turn comes again.
State that both lanes write is guarded by a `Turn`: a chain of events that orders streams on the device
without stopping the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from penstock.kernels.cuda.groups import Rows
from penstock.kernels.cuda.operation import Operation
from penstock.kernels.cuda.sorting import power_of_two


class Lane:
    """Buffers for one batch of up to `capacity` rows, and the stream that fills and reads them."""

    def __init__(self, capacity: int, operation: Operation) -> None:
        padded, columns = power_of_two(capacity), max(1, operation.columns)
        self.stream = cuda.stream()
        shapes = {
            "slots": (capacity,),
            "times": (capacity,),
            "valid": (capacity,),
            "values": (capacity, columns),
        }
        kinds = {"slots": np.int64, "times": np.int64, "valid": np.bool_, "values": operation.dtype}
        self._pinned = {name: cuda.pinned_array(shapes[name], dtype=kinds[name]) for name in shapes}
        self._device = {name: cuda.device_array(shapes[name], dtype=kinds[name]) for name in shapes}
        self._pinned_place = cuda.pinned_array(4, dtype=np.int64)
        self.place = cuda.device_array(4, dtype=np.int64)
        self.packed = cuda.device_array(padded, dtype=np.int64)
        self.states = [cuda.device_array((padded, operation.width), dtype=operation.dtype) for _ in range(2)]

    def load(self, rows: Rows, place: tuple[int, int, int, int]) -> None:
        """Wait for the batch before in this lane, then queue the copies of this one."""
        self.stream.synchronize()
        n = len(rows)
        for name, pinned in self._pinned.items():
            pinned[:n] = getattr(rows, name)
            self._device[name][:n].copy_to_device(pinned[:n], stream=self.stream)
        self._pinned_place[:] = place
        self.place.copy_to_device(self._pinned_place, stream=self.stream)

    def column(self, name: str) -> Any:
        """A device column: slots, times, valid or values."""
        return self._device[name]


class Turn:
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
