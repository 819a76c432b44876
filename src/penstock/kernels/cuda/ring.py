"""The pending slices of all slots, in device memory (IV-A, V-A).

One ring per slot, all of one size and over the same slices, because a watermark acts on all of them. The
ring grows to max(2 x size, needed) (the paper's text says minimum), halves when less than a quarter is in
use, and never holds more than `limit` slices a slot: what lies further ahead waits on the host until the
ring gets there, so one row from the far future costs no room for the slices before it.

Growing, halving and parking are one thing: read the ring back, keep the states with rows, put those in
range into a new ring. That stops the host, and happens seldom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.kernels.cuda.lanes import Turn
from penstock.kernels.cuda.launch import Launch
from penstock.kernels.cuda.operation import Operation
from penstock.kernels.cuda.panes import PaneKernels, clear_slices, fill

Array = npt.NDArray[Any]
LEAST_SIZE = 8
NEVER = np.iinfo(np.int64).min
NOT_PARKED = 2**62


@dataclass(frozen=True, slots=True)
class States:
    """States that are not in the ring, each (slot, slice) once. All arrays of equal length."""

    slots: Array
    slices: Array
    registers: Array

    def where(self, chosen: Array) -> States:
        """Those where a mask is true."""
        return States(self.slots[chosen], self.slices[chosen], self.registers[chosen])


class Ring:
    """Slices low .. high of `n_slots` slots. Empty when high < low."""

    def __init__(self, operation: Operation, kernels: PaneKernels, launch: Launch, limit: int) -> None:
        self._operation, self._kernels, self._launch, self.limit = operation, kernels, launch, limit
        self.neutral = cuda.to_device(operation.neutral())
        self.turn = Turn()
        self.low, self.high = 0, -1
        self.parked: list[States] = []
        self.parked_from = NOT_PARKED  # the first slice that is parked
        self._allocate(n_slots=1, size=LEAST_SIZE)

    @property
    def n_slots(self) -> int:
        """Slots there is room for."""
        return int(self.device.shape[0])

    @property
    def size(self) -> int:
        """Slices a slot has room for."""
        return int(self.device.shape[1])

    @property
    def nbytes(self) -> int:
        """Device memory in use."""
        return int(self.device.nbytes)

    def reach(self, low: int) -> int:
        """Only slices before this one may be admitted together with slice `low`."""
        return min(low, self.low if self.high >= self.low else low) + self.limit

    def admit(self, low: int, high: int, n_slots: int) -> None:
        """Make room for slices low .. high, high within reach, of slots below n_slots.

        What the ring holds and would no longer reach is parked.
        """
        end = self.reach(low)
        if self.high >= self.low:
            low, high = min(low, self.low), max(high, min(self.high, end - 1))
        needed = high + 1 - low
        if n_slots > self.n_slots or needed > self.size or self.high >= end:
            size = min(max(2 * self.size, needed), self.limit) if needed > self.size else self.size
            slots = max(2 * self.n_slots, n_slots) if n_slots > self.n_slots else self.n_slots
            self._rebuild(low, high, slots, size)
        self.low, self.high = low, high

    def park(self, states: States) -> None:
        """Keep states on the host."""
        if len(states.slots):
            self.parked.append(states)
            self.parked_from = min(self.parked_from, int(states.slices.min()))

    def unpark(self) -> None:
        """Take back the parked states that are within reach."""
        parked, low, end = self.parked, self.parked_from, self.reach(self.parked_from)
        if low >= min(end, NOT_PARKED):
            return
        self.parked, self.parked_from = [], NOT_PARKED
        near = [states.where(states.slices < end) for states in parked]
        slots, slices = (np.concatenate([getattr(s, name) for s in near]) for name in ("slots", "slices"))
        self.admit(low, int(slices.max()), int(slots.max()) + 1)
        for states in parked:
            self._merge(states.where(states.slices < end))
            self.park(states.where(states.slices >= end))

    def clear_below(self, slice_id: int, stream: Any) -> None:
        """Forget the slices before `slice_id`; the stream must have the turn."""
        n = min(slice_id, self.high + 1) - self.low
        if n > 0:
            grid, block = self._launch.over(n * self.n_slots)
            clear_slices[grid, block, stream](self.device, self.touched, self.neutral, self.low, n)
        self.low = max(self.low, slice_id)

    def start_at(self, touched: Array) -> None:
        """Begin at the first slice with rows: those before it are neutral already, and need no room."""
        self.low = int(touched[0]) if len(touched) else self.high + 1

    def shrink(self) -> None:
        """Halve the ring when less than a quarter of it is in use."""
        if self.size > LEAST_SIZE and 4 * (self.high - self.low + 1) < self.size:
            self._rebuild(self.low, self.high, self.n_slots, max(LEAST_SIZE, self.size // 2))

    def touched_slices(self, stream: Any) -> Array:
        """The slices with rows of any slot, least first. Waits for the device."""
        self.turn.take(stream)
        flags = self.touched.copy_to_host(stream=stream)
        stream.synchronize()
        return np.sort(self._slices_at(np.flatnonzero(flags)))

    def latest_slices(self, stream: Any) -> Array:
        """The latest slice with rows of each slot, NEVER if none. Waits for the device."""
        self.turn.take(stream)
        latest: Array = self.latest.copy_to_host(stream=stream)
        stream.synchronize()
        return latest

    def _slices_at(self, places: Array) -> Array:
        return np.asarray(self.low + (places - self.low) % self.size)

    def _allocate(self, n_slots: int, size: int) -> None:
        shape = (n_slots, size, self._operation.width)
        self.device = cuda.device_array(shape, dtype=self._operation.dtype)
        flat = self.device.reshape(n_slots * size, self._operation.width)
        fill[self._launch.over(n_slots * size)](flat, self.neutral)
        self.touched = cuda.to_device(np.zeros(size, dtype=np.int8))
        self.latest = cuda.to_device(np.full(n_slots, NEVER, dtype=np.int64))
        cuda.synchronize()

    def _rebuild(self, low: int, high: int, n_slots: int, size: int) -> None:
        """A new ring over low .. high, with the states of the old one; those beyond it are parked."""
        states, latest = self.states(), self.latest.copy_to_host()
        self._allocate(n_slots, size)
        self.low, self.high = low, high
        inside = states.slices <= high
        self._merge(states.where(inside))
        self.park(states.where(~inside))
        kept = np.full(n_slots, NEVER, dtype=np.int64)
        kept[: len(latest)] = latest
        self.latest.copy_to_device(kept)

    def states(self) -> States:
        """All states with rows, read back. Waits for the device."""
        cuda.synchronize()
        registers = self.device.copy_to_host()
        slots, places = np.nonzero(registers[:, :, -1] > 0)
        return States(slots.astype(np.int64), self._slices_at(places), registers[slots, places])

    def _merge(self, states: States) -> None:
        if len(states.slots) == 0:
            return
        cuda.synchronize()  # no lane may be adding
        grid, block = self._launch.over(len(states.slots))
        arrays = [
            cuda.to_device(np.ascontiguousarray(a)) for a in (states.slots, states.slices, states.registers)
        ]
        self._kernels.merge_states[grid, block](*arrays, self.device, self.touched, self.latest)
        cuda.synchronize()
