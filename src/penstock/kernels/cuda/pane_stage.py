"""The pane stage on the host's side: batches into the ring, as far as it reaches (IV-A, V-A).

Everything a batch needs is queued on its lane; nothing here waits for the device, except for room in the
ring. Rows further ahead than the ring reaches are held back here, and taken back when it gets there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.kernels.cuda.groups import Rows
from penstock.kernels.cuda.lanes import Lane
from penstock.kernels.cuda.launch import Launch
from penstock.kernels.cuda.operation import Operation
from penstock.kernels.cuda.panes import PaneKernels, place_rows
from penstock.kernels.cuda.ring import NOT_PARKED, Ring
from penstock.kernels.cuda.slicing import Slicing
from penstock.kernels.cuda.sorting import power_of_two, sort_packed

Array = npt.NDArray[Any]
CODE_BITS = 62


class PaneStage:
    """Adds rows to the ring; `changed` is the first slice that got rows since it was last set."""

    def __init__(
        self,
        operation: Operation,
        kernels: PaneKernels,
        launch: Launch,
        slicing: Slicing,
        ring: Ring,
        batch_rows: int,
    ) -> None:
        assert ring.limit.bit_length() + batch_rows.bit_length() < CODE_BITS, "a slot's codes fit in int64"
        self._kernels, self._launch, self._slicing, self._ring = kernels, launch, slicing, ring
        self._lanes = [Lane(batch_rows, operation), Lane(batch_rows, operation)]
        cuts = [slicing.every, slicing.rest, slicing.hopping]
        self._cuts = cuda.to_device(np.array(cuts, dtype=np.int64))
        self._skipped = cuda.to_device(np.zeros(1, dtype=np.int64))
        self._n_late = 0
        self._held: list[tuple[int, Rows]] = []
        self.changed = NOT_PARKED

    @property
    def skipped(self) -> int:
        """Rows that were late for all their windows or in no window. Waits for the device."""
        cuda.synchronize()
        return self._n_late + int(self._skipped.copy_to_host()[0])

    @property
    def held(self) -> list[Rows]:
        """The rows that are held back."""
        return [rows for _, rows in self._held]

    def hold(self, rows: Rows) -> None:
        """Keep rows for later."""
        self._held.append((self._slicing.slice_of(int(rows.times.min())), rows))

    def send(self, rows: Rows, open_from: int) -> None:
        """Add a batch, judged by the first slice that is still open; rows out of reach are held back."""
        slicing, ring = self._slicing, self._ring
        low = max(slicing.slice_of(int(rows.times.min())), open_from)
        high = slicing.slice_of(int(rows.times.max()))
        if high < low:
            self._n_late += len(rows)
            return
        end = ring.reach(low)
        if high >= end:
            far = rows.times >= slicing.start_of(end)
            self.hold(rows.where(far))
            rows = rows.where(~far)
            if len(rows) == 0:
                return
            high = max(low, slicing.slice_of(int(rows.times.max())))
        ring.admit(low, high, int(rows.slots.max()) + 1)
        self.changed = min(self.changed, low)
        self._aggregate(rows, low, high, open_from)

    def take_back(self, touched: Array, open_from: int) -> bool:
        """Bring what waits on the host into the ring, from the first slice with rows on; False if none can.

        To be repeated: rows that turn out to be in a gap leave room to reach further.
        """
        nearest = min([self._ring.parked_from, *(first for first, _ in self._held)])
        if nearest == NOT_PARKED:
            return False
        self._ring.start_at(touched)
        if nearest >= self._ring.reach(nearest):
            return False
        self._ring.unpark()
        self.changed = min(self.changed, nearest)
        held, self._held = self._held, []
        for _, rows in held:
            self.send(rows, open_from)
        return True

    def _aggregate(self, rows: Rows, low: int, high: int, open_from: int) -> None:
        """Queue rows of slices low .. high on the next lane; in halves, if their codes are too long."""
        first_slot, last_slot = int(rows.slots.min()), int(rows.slots.max())
        n_padded = power_of_two(len(rows))
        bits = n_padded.bit_length()
        if ((last_slot - first_slot + 1) * (high - low + 1)).bit_length() + bits > CODE_BITS:
            lower = rows.slots < (first_slot + last_slot + 1) // 2
            self._aggregate(rows.where(lower), low, high, open_from)
            self._aggregate(rows.where(~lower), low, high, open_from)
            return
        lane = self._lanes[0]
        self._lanes.reverse()
        lane.load(rows, (first_slot, low, high - low + 1, bits))
        grid, block = self._launch.over(n_padded)
        place_rows[grid, block, lane.stream](
            lane.column("slots"), lane.column("times"), len(rows), n_padded, self._cuts, open_from,
            lane.place, lane.packed, self._skipped,
        )  # fmt: skip
        sort_packed(lane.packed, n_padded, self._launch, lane.stream)
        self._add(lane, self._reduced(lane, n_padded, bits), n_padded)

    def _reduced(self, lane: Lane, n_padded: int, bits: int) -> Any:
        """Lift the sorted rows, and reduce them by key with a reach that doubles."""
        kernels, stream = self._kernels, lane.stream
        grid, block = self._launch.over(n_padded)
        values, valid, neutral = lane.column("values"), lane.column("valid"), self._ring.neutral
        states, spare = lane.states
        kernels.lift_sorted[grid, block, stream](lane.packed, n_padded, bits, values, valid, neutral, states)
        reach = 1
        while reach < n_padded:
            kernels.reduce_step[grid, block, stream](lane.packed, n_padded, bits, reach, states, spare)
            states, spare, reach = spare, states, 2 * reach
        return states

    def _add(self, lane: Lane, states: Any, n_padded: int) -> None:
        """Add the reduced states to the ring when it is this lane's turn."""
        ring, stream = self._ring, lane.stream
        grid, block = self._launch.over(n_padded)
        ring.turn.take(stream)
        self._kernels.add_to_ring[grid, block, stream](
            lane.packed, n_padded, lane.place, states, ring.device, ring.touched, ring.latest
        )
        ring.turn.give(stream)
