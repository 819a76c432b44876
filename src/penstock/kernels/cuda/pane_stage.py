"""The pane stage on the host: rows into batches of few keys, and batches into the ring (IV-A, V-A, VI-C).

A batch with few keys has short sort codes and touches little of the ring. Rows wait in the group of their
slot until the group fills a batch; `take_all` empties the groups early, because a watermark waits for no one.

Everything a batch needs is queued on its copy slot; nothing here waits for the device, except for room in the
ring and for rows further ahead than the ring reaches: these are reduced on the device too, and read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.frozen import dataclass
from penstock.kernels.cuda.device import Launch
from penstock.kernels.cuda.kernels import (
    NOWHERE,
    CudaAccumulator,
    lift_kernel,
    place_rows,
    power_of_two,
    rule_kernels,
    sort_packed,
    touch,
)
from penstock.kernels.cuda.slices import Ring, SliceStates
from penstock.kernels.windows.accumulate import Rule
from penstock.timing.slices import Slicing

Array = npt.NDArray[Any]
CODE_BITS = 62
UNCHANGED = 2**62
MAX_WAITING_BATCHES = 4
"""Rows of at most this many batches wait in all; then none waits any longer, however few its group has."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of equal length.

    slots   int64[n]  not negative
    times   int64[n]  within 2^61 of 0
    values  int64[n] or float64[n] each
    valid   per column of values: bool[n], False marks a null; None where there are no nulls
    order   int64[n]  the place among rows of equal time; None where no accumulator asks for it
    """

    slots: Array
    times: Array
    values: tuple[Array, ...] = ()
    valid: tuple[Array | None, ...] = ()
    order: Array | None = None

    def __len__(self) -> int:
        return len(self.slots)

    def where(self, chosen: Any) -> Rows:
        """Return the rows at some positions, or where a mask is true, or in a slice."""
        return Rows(
            self.slots[chosen],
            self.times[chosen],
            tuple(column[chosen] for column in self.values),
            tuple(None if mask is None else mask[chosen] for mask in self.valid),
            None if self.order is None else self.order[chosen],
        )

    @property
    def nbytes(self) -> int:
        """Return the memory that the columns take."""
        masks = [array for array in (*self.valid, self.order) if array is not None]
        return sum(array.nbytes for array in (self.slots, self.times, *self.values, *masks))


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """Return several runs of rows as one."""
    if len(parts) == 1:
        return parts[0]
    orders = [part.order for part in parts if part.order is not None]
    return Rows(
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.times for part in parts]),
        tuple(np.concatenate(columns) for columns in zip(*(part.values for part in parts), strict=True)),
        tuple(_masks(parts, column) for column in range(len(parts[0].valid))),
        np.concatenate(orders) if orders else None,
    )


def _masks(parts: Sequence[Rows], column: int) -> Array | None:
    if all(part.valid[column] is None for part in parts):
        return None
    masks = [(part.valid[column], len(part)) for part in parts]
    return np.concatenate([np.ones(n, np.bool_) if mask is None else mask for mask, n in masks])


class KeyGroups:
    """Rows waiting by group of slots: slot // max_keys is the group; None puts all slots in one group."""

    def __init__(self, batch_rows: int, max_keys: int | None) -> None:
        self._batch_rows, self._max_keys = batch_rows, max_keys
        self._waiting: dict[int, list[Rows]] = {}
        self._n_rows: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Return the memory of the rows that wait."""
        return sum(rows.nbytes for waiting in self._waiting.values() for rows in waiting)

    def add(self, rows: Rows) -> Iterator[Rows]:
        """Take rows in; give the batches that are full now."""
        for group, members in self._split(rows):
            self._wait(group, members)
            if self._n_rows[group] >= self._batch_rows:
                yield from self._full(group)
        if sum(self._n_rows.values()) >= MAX_WAITING_BATCHES * self._batch_rows:
            yield from self.take_all()

    def take_all(self) -> Iterator[Rows]:
        """Give everything that waits, in batches that may not be full."""
        waiting, self._waiting, self._n_rows = self._waiting, {}, {}
        for group in sorted(waiting):
            rows = concat_rows(waiting[group])
            for start in range(0, len(rows), self._batch_rows):
                yield rows.where(slice(start, start + self._batch_rows))

    def _wait(self, group: int, rows: Rows) -> None:
        self._waiting.setdefault(group, []).append(rows)
        self._n_rows[group] = self._n_rows.get(group, 0) + len(rows)

    def _full(self, group: int) -> Iterator[Rows]:
        rows, n = concat_rows(self._waiting.pop(group)), self._n_rows.pop(group)
        n_full = n // self._batch_rows * self._batch_rows
        if n_full < n:
            self._wait(group, rows.where(slice(n_full, None)))
        for start in range(0, n_full, self._batch_rows):
            yield rows.where(slice(start, start + self._batch_rows))

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


class Layout:
    """Which columns of rows go to the device, and where they lie there: integers and floats apart."""

    def __init__(self, accumulators: Sequence[CudaAccumulator]) -> None:
        read = {column: acc.rule.floats for acc in accumulators for column in acc.reads}
        self.columns = [sorted(c for c, floats in read.items() if floats is kind) for kind in (False, True)]
        self.masks = sorted({acc.column for acc in accumulators if acc.column is not None})
        self.is_ordered = any(acc.lift == "placed" for acc in accumulators)

    def place(self, accumulator: CudaAccumulator) -> int:
        """Return the place of a accumulator's first column among those of its type; of no column 0."""
        read = accumulator.reads
        return self.columns[accumulator.rule.floats].index(read[0]) if read else 0


class CopySlot:
    """Pinned and device buffers for one batch, and the stream that fills and reads them (III-B).

    Copies and kernels of a batch are queued on its stream, and `load` returns at once. There are two, so
    that one batch is copied while the next is prepared; a slot is waited for only when it is needed again.
    """

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
        self.device = {name: cuda.device_array((n, capacity), dtype=t) for name, (n, t) in shapes.items()}
        self.packed = cuda.device_array(capacity, dtype=np.int64)
        self._cells: dict[tuple[bool, int], list[Any]] = {}

    @property
    def nbytes(self) -> int:
        """Return the device memory in use."""
        cells = [array for pair in self._cells.values() for array in pair]
        return sum(int(array.nbytes) for array in (*self.device.values(), self.packed, *cells))

    def load(self, rows: Rows, place: tuple[int, int, int, int]) -> None:
        """Wait for the last batch of this slot, then queue the copies of this one."""
        self.stream.synchronize()
        if power_of_two(len(rows)) > self._capacity:
            self._allocate(power_of_two(len(rows)))
        self._copy("slots", 0, rows.slots)
        self._copy("times", 0, rows.times)
        if self._layout.is_ordered and rows.order is not None:
            self._copy("order", 0, rows.order)
        for name, columns in zip(("integers", "floats"), self._layout.columns, strict=True):
            for at, column in enumerate(columns):
                self._copy(name, at, rows.values[column])
        self._has_nulls = {column: rows.valid[column] is not None for column in self._layout.masks}
        for at, column in enumerate(self._layout.masks):
            mask = rows.valid[column]
            if mask is not None:
                self._copy("valid", at, mask)
        self._pinned_place[:] = place
        self.place.copy_to_device(self._pinned_place, stream=self.stream)

    def _copy(self, name: str, at: int, values: Array) -> None:
        n = len(values)
        self._pinned[name][at, :n] = values
        self.device[name][at, :n].copy_to_device(self._pinned[name][at, :n], stream=self.stream)

    def mask(self, column: int | None) -> int:
        """Return the place of a column's mask; -1 where none of this batch's rows is null."""
        return self._layout.masks.index(column) if column is not None and self._has_nulls[column] else -1

    def cells(self, rule: Rule) -> list[Any]:
        """Return two device arrays for the cells of rows; rules of one shape share them in sequence."""
        shape = rule.floats, rule.width
        if shape not in self._cells:
            size = (self._capacity, rule.width)
            self._cells[shape] = [cuda.device_array(size, dtype=rule.dtype) for _ in range(2)]
        return self._cells[shape]


class SortedRows(NamedTuple):
    """A batch whose rows are sorted by (slot, slice) on its copy slot; `place` as in `place_rows`."""

    copy_slot: CopySlot
    n_padded: int
    place: tuple[int, int, int, int]


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
        self._layout = Layout(accumulators)
        self._copy_slots = [CopySlot(self._layout), CopySlot(self._layout)]
        self._offsets = cuda.to_device(np.array(slicing.offsets, dtype=np.int64))
        self.changed = UNCHANGED

    @property
    def nbytes(self) -> int:
        """Return the device memory in use."""
        return sum(copy_slot.nbytes for copy_slot in self._copy_slots)

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
        for batch in self._sort(rows, low, high):
            self._add(batch)

    def _park(self, rows: Rows) -> None:
        """Reduce rows that are too far ahead to cells on the host, a ring's length at a time."""
        slicing, ring = self._slicing, self._ring
        while len(rows):
            low = slicing.id_of(int(rows.times.min()))
            far = rows.times >= slicing.start_of(low + ring.limit)
            near, rows = rows.where(~far), rows.where(far)
            for batch in self._sort(near, low, slicing.id_of(int(near.times.max()))):
                ring.park(self._read_back(batch))

    def _sort(self, rows: Rows, low: int, high: int) -> Iterator[SortedRows]:
        """Queue rows of slices low .. high on a copy slot and sort them; halve them if codes are too long."""
        first_slot, last_slot = int(rows.slots.min()), int(rows.slots.max())
        n_padded, n_slices = power_of_two(len(rows)), high - low + 1
        bits = n_padded.bit_length()
        if ((last_slot - first_slot + 1) * n_slices).bit_length() + bits > CODE_BITS:
            lower = rows.slots < (first_slot + last_slot + 1) // 2
            yield from self._sort(rows.where(lower), low, high)
            yield from self._sort(rows.where(~lower), low, high)
            return
        copy_slot = self._copy_slots[0]
        self._copy_slots.reverse()
        place = (first_slot, low, n_slices, bits)
        copy_slot.load(rows, place)
        columns = (copy_slot.device["slots"][0], copy_slot.device["times"][0], len(rows), n_padded)
        place_rows[(*self._launch.over(n_padded), copy_slot.stream)](
            *columns, self._slicing.period, self._offsets, copy_slot.place, copy_slot.packed
        )
        sort_packed(copy_slot.packed, n_padded, self._launch, copy_slot.stream)
        yield SortedRows(copy_slot, n_padded, place)

    def _reduce(self, batch: SortedRows, accumulator: CudaAccumulator) -> Any:
        """Lift the sorted rows, and reduce them by key with a reach that doubles."""
        copy_slot, n_padded, bits, rule = batch.copy_slot, batch.n_padded, batch.place[3], accumulator.rule
        grid = (*self._launch.over(n_padded), copy_slot.stream)
        device, (cells, spare) = copy_slot.device, copy_slot.cells(rule)
        values = device["floats" if rule.floats else "integers"]
        lift_kernel(accumulator.lift)[grid](
            copy_slot.packed, n_padded, bits, device["times"][0], device["order"][0], values,
            self._layout.place(accumulator), device["valid"], copy_slot.mask(accumulator.column),
            accumulator.flip, self._ring.neutral[self._accumulators.index(accumulator)], cells,
        )  # fmt: skip
        reach, step = 1, rule_kernels(rule).reduce_step[grid]
        while reach < n_padded:
            step(copy_slot.packed, n_padded, bits, reach, cells, spare)
            cells, spare, reach = spare, cells, 2 * reach
        return cells

    def _add(self, batch: SortedRows) -> None:
        """Add the reduced cells to the ring, when the streams before it are done."""
        ring, copy_slot, n_padded = self._ring, batch.copy_slot, batch.n_padded
        grid = (*self._launch.over(n_padded), copy_slot.stream)
        for accumulator, held in zip(self._accumulators, ring.cells, strict=True):
            cells = self._reduce(batch, accumulator)
            ring.access.acquire(copy_slot.stream)
            kernels = rule_kernels(accumulator.rule)
            kernels.add_to_ring[grid](copy_slot.packed, n_padded, copy_slot.place, cells, held, ring.size)
            ring.access.release(copy_slot.stream)
        touch[grid](copy_slot.packed, n_padded, copy_slot.place, ring.touched)
        ring.access.release(copy_slot.stream)

    def _read_back(self, batch: SortedRows) -> SliceStates:
        """Return the reduced cells on the host: a key's last row has that of all. Waits for the device."""
        first_slot, low, n_slices, bits = batch.place
        stream = batch.copy_slot.stream
        cells = [self._reduce(batch, acc).copy_to_host(stream=stream) for acc in self._accumulators]
        packed: Array = batch.copy_slot.packed.copy_to_host(stream=stream)
        stream.synchronize()
        sorted_rows = packed[: batch.n_padded]
        codes = sorted_rows[sorted_rows != NOWHERE] >> bits
        last = np.flatnonzero(np.append(codes[1:] != codes[:-1], True))
        slots, slices = np.divmod(codes[last], n_slices)
        return SliceStates(first_slot + slots, low + slices, tuple(array[last] for array in cells))
