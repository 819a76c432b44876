"""The pane stage on the host: rows into batches of few keys, and batches into the ring (IV-A, V-A, VI-C).

A batch with few keys has short sort codes and touches little of the ring. Rows wait in the group of their
slot until the group fills a batch; `take_all` empties the groups early, because a watermark waits for no one.

Everything a batch needs is queued on its copy slot; nothing here waits for the device, except for room in the
ring. Rows further ahead than the ring reaches become cells on the host, and wait there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.frozen import Frozen
from penstock.kernels.cuda import kernels
from penstock.kernels.cuda.device import Launch
from penstock.kernels.cuda.kernels import LIFTS, CudaAccumulator, power_of_two
from penstock.kernels.cuda.slices import Ring, SliceStates
from penstock.kernels.windows.accumulate import Rule
from penstock.timing.slices import Slicing

Array = npt.NDArray[Any]
CODE_BITS = 62
FIRST_VALUE = 3
"""The place of the first value among the columns of a copy slot."""
UNCHANGED = 2**62
MAX_WAITING_BATCHES = 4
"""Rows of at most this many batches wait in all; then none waits any longer, however few its group has."""


class Rows(Frozen):
    """Columns of equal length.

    slots   int64[n]  not negative
    times   int64[n]  within 2^61 of 0
    values  int64[n] or float64[n] each; None where only the nulls among them are read
    valid   per column of values: bool[n], False marks a null; None where there are no nulls
    order   int64[n]  the place among rows of equal time; None where no accumulator asks for it
    """

    slots: Array
    times: Array
    values: tuple[Array | None, ...] = ()
    valid: tuple[Array | None, ...] = ()
    order: Array | None = None

    def __len__(self) -> int:
        return len(self.slots)

    def where(self, chosen: Any) -> Rows:
        """Return the rows at some positions, or where a mask is true, or in a slice."""
        return Rows(
            self.slots[chosen],
            self.times[chosen],
            tuple(None if column is None else column[chosen] for column in self.values),
            tuple(None if mask is None else mask[chosen] for mask in self.valid),
            None if self.order is None else self.order[chosen],
        )

    @property
    def nbytes(self) -> int:
        """Return the memory that the columns take."""
        arrays = (self.slots, self.times, *self.values, *self.valid, self.order)
        return sum(array.nbytes for array in arrays if array is not None)


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """Return several runs of rows as one."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.times for part in parts]),
        tuple(map(_concat, zip(*(part.values for part in parts), strict=True))),
        tuple(_concat_masks(parts, column) for column in range(len(parts[0].valid))),
        _concat([part.order for part in parts]),
    )


def _concat(columns: Sequence[Array | None]) -> Array | None:
    present = [column for column in columns if column is not None]
    return np.concatenate(present) if present else None


def _concat_masks(parts: Sequence[Rows], column: int) -> Array | None:
    masks = [part.valid[column] for part in parts]
    if all(mask is None for mask in masks):
        return None
    pairs = zip(masks, parts, strict=True)
    return np.concatenate([np.ones(len(part), np.bool_) if mask is None else mask for mask, part in pairs])


class KeyGroups:
    """Rows waiting by group of slots: slot // max_keys is the group; None puts all slots in one group."""

    def __init__(self, batch_rows: int, max_keys: int | None) -> None:
        self._batch_rows, self._max_keys = batch_rows, max_keys
        self._waiting: dict[int, list[Rows]] = {}

    @property
    def nbytes(self) -> int:
        """Return the memory of the rows that wait."""
        return sum(rows.nbytes for waiting in self._waiting.values() for rows in waiting)

    def add(self, rows: Rows) -> Iterator[Rows]:
        """Take rows in; give the batches that are full now."""
        for group, members in self._split(rows):
            self._waiting.setdefault(group, []).append(members)
            yield from self._take(group, self._batch_rows)
        n_rows = sum(len(part) for waiting in self._waiting.values() for part in waiting)
        if n_rows >= MAX_WAITING_BATCHES * self._batch_rows:
            yield from self.take_all()

    def take_all(self) -> Iterator[Rows]:
        """Give everything that waits, in batches that may not be full."""
        for group in sorted(self._waiting):
            yield from self._take(group, 1)

    def _take(self, group: int, fewest: int) -> Iterator[Rows]:
        """Give batches of a group while it has `fewest` rows; the others wait on."""
        if sum(map(len, self._waiting[group])) < fewest:
            return
        rows = concat_rows(self._waiting.pop(group))
        while len(rows) >= fewest:
            yield rows.where(slice(0, self._batch_rows))
            rows = rows.where(slice(self._batch_rows, None))
        if len(rows):
            self._waiting[group] = [rows]

    def _split(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        if len(rows) == 0:
            return
        if self._max_keys is None or rows.slots.max() < self._max_keys:
            yield 0, rows
            return
        groups = rows.slots // self._max_keys
        order = np.argsort(groups, kind="stable")
        present, starts = np.unique(groups[order], return_index=True)
        for group, members in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            yield group, rows.where(members)


class CopySlot:
    """Pinned and device buffers for one batch, and the stream that fills and reads them (III-B).

    Copies and kernels of a batch are queued on its stream, and `load` returns at once. There are two, so
    that one batch is copied while the next is prepared; a slot is waited for only when it is needed again.

    columns  int64[3 + values, capacity]  slots, times, order, and the values; floats as their bits
    valid    bool[values, capacity]       set where `has_nulls` says so
    """

    def __init__(self) -> None:
        self.stream = cuda.stream()
        self._pinned_place = cuda.pinned_array(4, dtype=np.int64)
        self.place = cuda.device_array(4, dtype=np.int64)
        self._allocate(1, 1)

    def _allocate(self, capacity: int, n_values: int) -> None:
        self._capacity, self._n_values = capacity, n_values
        shapes: list[tuple[int, Any]] = [(FIRST_VALUE + n_values, np.int64), (n_values, np.bool_)]
        self._pinned = [cuda.pinned_array((n, capacity), dtype=dtype) for n, dtype in shapes]
        self.columns, self.valid = (cuda.device_array((n, capacity), dtype=dtype) for n, dtype in shapes)
        self.packed = cuda.device_array(capacity, dtype=np.int64)
        self._cells: dict[tuple[bool, int], list[Any]] = {}

    @property
    def nbytes(self) -> int:
        """Return the device memory in use."""
        cells = [array for pair in self._cells.values() for array in pair]
        return sum(int(array.nbytes) for array in (self.columns, self.valid, self.packed, *cells))

    def load(self, rows: Rows, place: tuple[int, int, int, int]) -> None:
        """Wait for the last batch of this slot, then queue the copies of this one."""
        self.stream.synchronize()
        if power_of_two(len(rows)) > self._capacity or len(rows.values) > self._n_values:
            self._allocate(power_of_two(len(rows)), max(1, len(rows.values)))
        self._copy(0, self.columns, (rows.slots, rows.times, rows.order, *rows.values))
        self._copy(1, self.valid, rows.valid)
        self.has_nulls = [mask is not None for mask in rows.valid]
        self._pinned_place[:] = place
        self.place.copy_to_device(self._pinned_place, stream=self.stream)

    def _copy(self, pinned: int, device: Any, columns: Sequence[Array | None]) -> None:
        for at, column in enumerate(columns):
            if column is not None:
                host = self._pinned[pinned][at, : len(column)]
                host[:] = column.view(host.dtype)
                device[at, : len(column)].copy_to_device(host, stream=self.stream)

    def cells(self, rule: Rule) -> list[Any]:
        """Return two device arrays for the cells of rows; rules of one shape share them in sequence."""
        shape = rule.floats, rule.width
        if shape not in self._cells:
            size = (self._capacity, rule.width)
            self._cells[shape] = [cuda.device_array(size, dtype=rule.dtype) for _ in range(2)]
        return self._cells[shape]


class CudaPaneStage:
    """Add rows to the ring; `changed` is the first slice that got rows since it was last set."""

    def __init__(
        self,
        accumulators: Sequence[CudaAccumulator],
        launch: Launch,
        slicing: Slicing,
        ring: Ring,
        batch_rows: int,
    ) -> None:
        assert ring.limit.bit_length() + batch_rows.bit_length() < CODE_BITS, "a slot's codes fit in int64"
        self._accumulators, self._launch, self._slicing, self._ring = accumulators, launch, slicing, ring
        self._copy_slots = [CopySlot(), CopySlot()]
        self._offsets = cuda.to_device(np.array(slicing.offsets, dtype=np.int64))
        self.changed = UNCHANGED

    @property
    def nbytes(self) -> int:
        """Return the device memory in use."""
        return sum(copy_slot.nbytes for copy_slot in self._copy_slots)

    def send(self, rows: Rows) -> None:
        """Add a batch. Invariant: every row lies in a slice that an open window needs."""
        slicing, ring = self._slicing, self._ring
        low = slicing.id_of(int(rows.times.min()))
        far = rows.times >= slicing.start_of(ring.reach(low))
        if far.any():
            parked, rows = rows.where(far), rows.where(~far)
            cells = tuple(lift_on_host(accumulator, parked) for accumulator in self._accumulators)
            ring.park(SliceStates(parked.slots, slicing.ids(parked.times), cells))
        if len(rows):
            high = slicing.id_of(int(rows.times.max()))
            ring.admit(low, high, int(rows.slots.max()) + 1)
            self.changed = min(self.changed, low)
            self._add(rows, low, high)

    def _add(self, rows: Rows, low: int, high: int) -> None:
        """Queue rows of slices low .. high on a copy slot: to be sorted, reduced by key, put into the ring.

        Rows whose codes would be too long are halved.
        """
        first_slot, last_slot = int(rows.slots.min()), int(rows.slots.max())
        n_padded, n_slices, ring = power_of_two(len(rows)), high - low + 1, self._ring
        bits = n_padded.bit_length()
        if ((last_slot - first_slot + 1) * n_slices).bit_length() + bits > CODE_BITS:
            lower = rows.slots < (first_slot + last_slot + 1) // 2
            self._add(rows.where(lower), low, high)
            self._add(rows.where(~lower), low, high)
            return
        copy_slot = self._copy_slots[0]
        self._copy_slots.reverse()
        copy_slot.load(rows, (first_slot, low, n_slices, bits))
        stream, packed, place = copy_slot.stream, copy_slot.packed, copy_slot.place
        grid = (*self._launch.over(n_padded), stream)
        slots, times = copy_slot.columns[0], copy_slot.columns[1]
        cuts = (self._slicing.period, self._offsets)
        kernels.place_rows[grid](slots, times, len(rows), n_padded, *cuts, place, packed)
        kernels.sort_packed(packed, n_padded, self._launch, stream)
        for accumulator, neutral, held in zip(self._accumulators, ring.neutral, ring.cells, strict=True):
            cells = self._reduce(copy_slot, n_padded, bits, accumulator, neutral)
            with ring.use(stream):
                add_to_ring = kernels.rule_kernels(accumulator.rule).add_to_ring
                add_to_ring[grid](packed, n_padded, place, cells, held, ring.size)
        with ring.use(stream):
            kernels.touch[grid](packed, n_padded, place, ring.touched)

    def _reduce(
        self, copy_slot: CopySlot, n_padded: int, bits: int, accumulator: CudaAccumulator, neutral: Any
    ) -> Any:
        """Lift the sorted rows, and reduce them by key with a reach that doubles."""
        rule, column, packed = accumulator.rule, accumulator.column or 0, copy_slot.packed
        grid = (*self._launch.over(n_padded), copy_slot.stream)
        cells, spare = copy_slot.cells(rule)
        is_masked = accumulator.column is not None and copy_slot.has_nulls[column]
        lift = kernels.lift_kernel(accumulator.lift)[grid]
        lift(
            packed, n_padded, bits, copy_slot.columns[1], copy_slot.columns[2],
            copy_slot.columns[FIRST_VALUE:].view(rule.dtype), column,
            copy_slot.valid, column if is_masked else -1, accumulator.flip, neutral, cells,
        )  # fmt: skip
        reach, step = 1, kernels.rule_kernels(rule).reduce_step[grid]
        while reach < n_padded:
            step(packed, n_padded, bits, reach, cells, spare)
            cells, spare, reach = spare, cells, 2 * reach
        return cells


def lift_on_host(accumulator: CudaAccumulator, rows: Rows) -> Array:
    """Return the cell of each row: what a lift kernel computes, for rows that the ring does not reach."""
    cells, column = accumulator.rule.neutral_cells(len(rows)), accumulator.column
    mask = None if column is None else rows.valid[column]
    valid = np.ones(len(rows), np.bool_) if mask is None else mask
    chosen = ~valid if accumulator.lift == "null" else valid
    for part in range(accumulator.rule.width):
        at = None if column is None else column + (part if accumulator.lift == "part" else 0)
        values = None if at is None else rows.values[at]
        with np.errstate(invalid="ignore"):  # value - value of what is not finite
            lifted = LIFTS[accumulator.lift](part, rows.times, rows.order, values, accumulator.flip)
        cells[:, part] = np.where(chosen, lifted, cells[:, part])
    return cells
