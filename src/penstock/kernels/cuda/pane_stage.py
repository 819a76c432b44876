"""The pane stage on the host's side: batches into the ring, as far as it reaches (IV-A, V-A).

Everything a batch needs is queued on its lane; nothing here waits for the device, except for room in the
ring and for rows further ahead than the ring reaches: these are reduced on the device too, and read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.kernels.cuda.accumulators import CudaAccumulator
from penstock.kernels.cuda.device import Launch
from penstock.kernels.cuda.key_groups import Rows
from penstock.kernels.cuda.panes import (
    NOWHERE,
    lift_kernel,
    pane_kernels,
    place_rows,
    power_of_two,
    sort_packed,
    touch,
)
from penstock.kernels.cuda.ring import Ring, SliceStates
from penstock.kernels.cuda.staging import CopySlot, Layout
from penstock.timing.slices import Slicing

Array = npt.NDArray[Any]
CODE_BITS = 62
UNCHANGED = 2**62


class SortedRows(NamedTuple):
    """A batch whose rows are sorted by (slot, slice) on its lane; `place` as in `place_rows`."""

    lane: CopySlot
    n_padded: int
    place: tuple[int, int, int, int]


class CudaPaneStage:
    """Add rows to the ring; `changed` is the first slice that got rows since it was last set."""

    def __init__(
        self,
        registers: Sequence[CudaAccumulator],
        launch: Launch,
        slicing: Slicing,
        ring: Ring,
        batch_rows: int,
    ) -> None:
        assert ring.limit.bit_length() + batch_rows.bit_length() < CODE_BITS, "a slot's codes fit in int64"
        self._registers, self._launch, self._slicing, self._ring = registers, launch, slicing, ring
        self._layout = Layout(registers)
        self._lanes = [CopySlot(self._layout), CopySlot(self._layout)]
        self._offsets = cuda.to_device(np.array(slicing.offsets, dtype=np.int64))
        self.changed = UNCHANGED

    @property
    def nbytes(self) -> int:
        """Device memory in use."""
        return sum(lane.nbytes for lane in self._lanes)

    def send(self, rows: Rows) -> None:
        """Add a batch. Invariant: every row lies in a slice that an open window needs."""
        slicing, ring = self._slicing, self._ring
        low, high = slicing.id_of(int(rows.times.min())), slicing.id_of(int(rows.times.max()))
        end = ring.reach(low)
        if high >= end:
            far = rows.times >= slicing.start_of(end)
            self._park(rows.where(far))
            rows = rows.where(~far)
            if len(rows) == 0:
                return
            high = slicing.id_of(int(rows.times.max()))
        ring.admit(low, high, int(rows.slots.max()) + 1)
        self.changed = min(self.changed, low)
        for batch in self._sorted(rows, low, high):
            self._add(batch)

    def _park(self, rows: Rows) -> None:
        """Reduce rows that are too far ahead to cells on the host, a ring's length at a time."""
        slicing, ring = self._slicing, self._ring
        while len(rows):
            low = slicing.id_of(int(rows.times.min()))
            far = rows.times >= slicing.start_of(low + ring.limit)
            near, rows = rows.where(~far), rows.where(far)
            for batch in self._sorted(near, low, slicing.id_of(int(near.times.max()))):
                ring.park(self._read_back(batch))

    def _sorted(self, rows: Rows, low: int, high: int) -> Iterator[SortedRows]:
        """Queue the rows of slices low .. high on a lane and sort them; in halves if codes too long."""
        first_slot, last_slot = int(rows.slots.min()), int(rows.slots.max())
        n_padded, n_slices = power_of_two(len(rows)), high - low + 1
        bits = n_padded.bit_length()
        if ((last_slot - first_slot + 1) * n_slices).bit_length() + bits > CODE_BITS:
            lower = rows.slots < (first_slot + last_slot + 1) // 2
            yield from self._sorted(rows.where(lower), low, high)
            yield from self._sorted(rows.where(~lower), low, high)
            return
        lane = self._lanes[0]
        self._lanes.reverse()
        place = (first_slot, low, n_slices, bits)
        lane.load(rows, place)
        given = (lane.line("slots"), lane.line("times"), len(rows), n_padded)
        place_rows[(*self._launch.over(n_padded), lane.stream)](
            *given, self._slicing.period, self._offsets, lane.place, lane.packed
        )
        sort_packed(lane.packed, n_padded, self._launch, lane.stream)
        yield SortedRows(lane, n_padded, place)

    def _reduced(self, batch: SortedRows, register: CudaAccumulator) -> Any:
        """Lift the sorted rows, and reduce them by key with a reach that doubles."""
        lane, n_padded, bits, rule = batch.lane, batch.n_padded, batch.place[3], register.rule
        grid = (*self._launch.over(n_padded), lane.stream)
        cells, spare = lane.cells(rule)
        values = lane.block("floats" if rule.floats else "integers")
        lift_kernel(register.lift)[grid](
            lane.packed, n_padded, bits, lane.line("times"), lane.line("order"), values,
            self._layout.place(register), lane.block("valid"), lane.mask(register.column), register.flip,
            self._ring.neutral[self._registers.index(register)], cells,
        )  # fmt: skip
        reach, step = 1, pane_kernels(rule).reduce_step[grid]
        while reach < n_padded:
            step(lane.packed, n_padded, bits, reach, cells, spare)
            cells, spare, reach = spare, cells, 2 * reach
        return cells

    def _add(self, batch: SortedRows) -> None:
        """Add the reduced cells to the ring, whenever it is this lane's turn."""
        ring, lane, n_padded = self._ring, batch.lane, batch.n_padded
        grid = (*self._launch.over(n_padded), lane.stream)
        for register, held in zip(self._registers, ring.cells, strict=True):
            cells = self._reduced(batch, register)
            ring.turn.take(lane.stream)
            kernels = pane_kernels(register.rule)
            kernels.add_to_ring[grid](lane.packed, n_padded, lane.place, cells, held, ring.size)
            ring.turn.give(lane.stream)
        touch[grid](lane.packed, n_padded, lane.place, ring.touched)
        ring.turn.give(lane.stream)

    def _read_back(self, batch: SortedRows) -> SliceStates:
        """The reduced cells on the host: a key's last row has that of them all. Waits for the device."""
        first_slot, low, n_slices, bits = batch.place
        stream = batch.lane.stream
        cells = [self._reduced(batch, each).copy_to_host(stream=stream) for each in self._registers]
        packed: Array = batch.lane.packed.copy_to_host(stream=stream)
        stream.synchronize()
        sorted_rows = packed[: batch.n_padded]
        codes = sorted_rows[sorted_rows != NOWHERE] >> bits
        last = np.flatnonzero(np.append(codes[1:] != codes[:-1], True))
        slots, slices = np.divmod(codes[last], n_slices)
        return SliceStates(first_slot + slots, low + slices, tuple(each[last] for each in cells))
