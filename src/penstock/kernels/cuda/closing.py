"""The windows that one watermark closes: queued on the device, then read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.errors import EngineError
from penstock.kernels.cuda.operation import ExactSumOutOfRange, Operation
from penstock.kernels.cuda.slicing import Slicing

Array = npt.NDArray[Any]


class WindowResults(NamedTuple):
    """One entry per window with rows, by (start, slot): columns of equal length."""

    slots: Array
    starts: Array
    results: Array
    valid: Array
    """False where all values of the window were null, and so is the result (never of a count or a fold)."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive windows of some slots; `states` arrives in pinned memory once its stream is done."""

    which: Array
    first: int
    n_windows: int
    states: Array
    on_device: Any

    @staticmethod
    def queued(which: Array, first: int, n_windows: int, on_device: Any, stream: Any) -> Run:
        """Queue the copy back of number[slots * windows, width]."""
        states = cuda.pinned_array(on_device.shape, dtype=on_device.dtype)
        on_device.copy_to_host(states, stream=stream)
        return Run(which, first, n_windows, states, on_device)

    def rows(self) -> tuple[Array, Array, Array]:
        """(slots, window numbers, states) of the windows that have rows, by (window, slot)."""
        states = self.states.reshape(len(self.which), self.n_windows, -1).swapaxes(0, 1)
        windows, slots = np.nonzero(states[:, :, -1] > 0)
        return self.which[slots], self.first + windows, states[windows, slots]


class Closing:
    """Results on their way back from the device."""

    def __init__(self, operation: Operation, slicing: Slicing, runs: list[Run], stream: Any) -> None:
        self._operation, self._slicing, self._runs = operation, slicing, runs
        self._done = cuda.event()
        self._done.record(stream)

    def results(self) -> WindowResults:
        """Wait for the device, then lower the states to results."""
        self._done.synchronize()
        width = self._operation.width
        none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, width), self._operation.dtype))
        parts = [none, *(run.rows() for run in self._runs)]
        slots, windows, states = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        starts = windows * self._slicing.every
        values = states[:, -2]
        lowered = self._lowered(slots, starts, states[:, :-2], values)
        valid = values > 0 if self._operation.nullable else np.ones(len(slots), dtype=np.bool_)
        return WindowResults(slots, starts, lowered, valid)

    def _lowered(self, slots: Array, starts: Array, parts: Array, values: Array) -> Array:
        try:
            return self._operation.lower(parts, values)
        except ExactSumOutOfRange as fault:
            slot, start = int(slots[fault.position]), int(starts[fault.position])
            raise EngineError(
                f"the exact sum of slot {slot} in the window from {start} is {fault.total}, outside int64",
                hint='sum the column as float64, or make it smaller first: ps.sum(col("x") / 1000)',
            ) from fault
