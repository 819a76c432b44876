"""All columns of the stored rows of a join, from which some rows are taken quickly.

Rows are only added behind the last. Numbers are arrays that grow, those of eight bytes the rows of one array,
from which all are taken in one step. Other columns are few Arrow arrays: one is put together with the one
before it unless that is much larger, so the last are small, and most values are in the first. A few rows wait
as they came until they are many, or somebody wants them: most that are stored are older.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.values import to_plain
from penstock.stages import policy
from penstock.stages.rows.batch import (
    Batch,
    Ints,
    Mask,
    batches_to_columns,
    build_numbers,
    has_numbers,
    view_numbers,
)

GROWTH = 8
"""How many times larger than the array after it an array is at least, or they are put together."""


class StoreColumn(Protocol):
    """The values of one column by slot, which is the number of rows before it."""

    @property
    def nbytes(self) -> int:
        """Return the memory held."""

    def add(self, values: pa.Array) -> None:
        """Store values behind the last."""

    def take(self, slots: Ints) -> pa.Array:
        """Return some values, of which there must be any."""

    def keep(self, slots: Ints) -> None:
        """Keep these values only, which are in order; they get the slots from 0 on."""


class NumberColumn:
    """Numbers, and times, as the integers that are their memory."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type, self._n_rows = type_, 0
        self._numbers: npt.NDArray[Any] = np.empty(0, f"i{type_.bit_width // 8}")
        self._valid: Mask | None = None  # since the first null

    @property
    def nbytes(self) -> int:
        """Implement `StoreColumn.nbytes`."""
        return self._numbers.nbytes + (0 if self._valid is None else self._valid.nbytes)

    def add(self, values: pa.Array) -> None:
        """Implement `StoreColumn.add`."""
        begin, end = self._n_rows, self._n_rows + len(values)
        if values.null_count and self._valid is None:
            self._valid = np.ones(len(self._numbers), np.bool_)
        if end > len(self._numbers):
            room = max(end, 2 * len(self._numbers), 64) - len(self._numbers)
            self._numbers = np.append(self._numbers, np.empty(room, self._numbers.dtype))
            if self._valid is not None:
                self._valid = np.append(self._valid, np.ones(room, np.bool_))
        self._numbers[begin:end] = view_numbers(values)
        if self._valid is not None:
            self._valid[begin:end] = values.is_valid().to_numpy(zero_copy_only=False)
        self._n_rows = end

    def take(self, slots: Ints) -> pa.Array:
        """Implement `StoreColumn.take`."""
        valid = None if self._valid is None else self._valid.take(slots)
        return build_numbers(self._numbers.take(slots), self._type, valid)

    def keep(self, slots: Ints) -> None:
        """Implement `StoreColumn.keep`."""
        self._n_rows = len(slots)
        self._numbers = self._numbers.take(slots)
        if self._valid is not None:
            self._valid = self._valid.take(slots)


class ArrayColumn:
    """Values of any type, in few arrays."""

    def __init__(self) -> None:
        self._arrays: list[pa.Array] = []
        self._begins = [0]  # of each array, and where the last ends

    @property
    def nbytes(self) -> int:
        """Implement `StoreColumn.nbytes`."""
        return sum(int(array.nbytes) for array in self._arrays)

    def add(self, values: pa.Array) -> None:
        """Implement `StoreColumn.add`."""
        arrays, begins = self._arrays, self._begins
        arrays.append(values)
        begins.append(begins[-1] + len(values))
        first = len(arrays) - 1
        while first > 0:
            n_before, n_rows = begins[first] - begins[first - 1], begins[-1] - begins[first]
            if n_before > GROWTH * n_rows or n_before + n_rows > policy.SIZES.payload_rows:
                break
            first -= 1
        if first < len(arrays) - 1:
            arrays[first:] = [pa.concat_arrays(arrays[first:])]
            begins[first + 1 :] = begins[-1:]

    def take(self, slots: Ints) -> pa.Array:
        """Implement `StoreColumn.take`."""
        arrays, begins = self._arrays, self._begins
        first = bisect_right(begins, int(slots.min())) - 1
        if slots.max() < begins[first + 1]:
            return arrays[first].take(pa.array(slots - begins[first]))
        places = np.argsort(slots, kind="stable")
        in_order = slots[places]
        ends = np.searchsorted(in_order, begins)
        parts = [
            values.take(pa.array(in_order[ends[at] : ends[at + 1]] - begins[at]))
            for at, values in enumerate(arrays)
            if ends[at + 1] > ends[at]
        ]
        back = np.empty(len(places), np.int64)
        back[places] = np.arange(len(places))
        return pa.concat_arrays(parts).take(pa.array(back))

    def keep(self, slots: Ints) -> None:
        """Implement `StoreColumn.keep`."""
        left_arrays = []
        ends = np.searchsorted(slots, self._begins)
        for at, values in enumerate(self._arrays):
            of_array = slots[ends[at] : ends[at + 1]]
            if len(of_array) == len(values):
                left_arrays.append(values)
            elif len(of_array):  # a copy: what is gone frees its memory
                left_arrays.append(values.take(pa.array(of_array - self._begins[at])))
        self._arrays = left_arrays
        self._begins = np.cumsum([0, *map(len, left_arrays)]).tolist()


class NumberBlock:
    """Several columns of eight bytes a number; the numbers of a row are side by side in memory.

    types  their types: integers, times or floats
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.types, self._n_rows = tuple(types), 0
        self._are_floats = [kind.is_floating(type_) for type_ in self.types]
        self._numbers = np.empty((0, len(self.types)), np.int64)
        self._valid: list[Mask | None] = [None] * len(self.types)  # since the first null

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._numbers.nbytes + sum(valid.nbytes for valid in self._valid if valid is not None)

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Store the values of all columns behind the last."""
        begin, end = self._n_rows, self._n_rows + len(columns[0])
        capacity = len(self._numbers)
        if end > capacity:
            before, room = self._numbers, max(end, 2 * capacity) - capacity
            self._numbers = np.empty((capacity + room, len(self.types)), np.int64)
            self._numbers[:begin] = before[:begin]
            self._valid = [None if valid is None else np.pad(valid, (0, room)) for valid in self._valid]
        for place, values in enumerate(columns):
            self._numbers[begin:end, place] = view_numbers(values)
            valid = self._valid[place]
            if values.null_count and valid is None:
                valid = self._valid[place] = np.ones(len(self._numbers), np.bool_)
            if valid is not None:
                valid[begin:end] = values.is_valid().to_numpy(zero_copy_only=False)
        self._n_rows = end

    def take(self, slots: Ints) -> list[pa.Array]:
        """Return some values of all columns."""
        n_rows, numbers = len(slots), np.ascontiguousarray(self._numbers.take(slots, axis=0).T)
        whole = pa.py_buffer(numbers)
        arrays = []
        for place, (type_, valid) in enumerate(zip(self.types, self._valid, strict=True)):
            if valid is not None and not (of_rows := valid.take(slots)).all():
                arrays.append(build_numbers(numbers[place], type_, of_rows))
            else:
                arrays.append(pa.Array.from_buffers(type_, n_rows, [None, whole], 0, place * n_rows))
        return arrays

    def take_plain(self, slots: Ints) -> list[Sequence[object]]:
        """Return some values of all columns as plain values."""
        # Why row by row: to take several lets other threads run, and that takes longer than all the rest.
        places, numbers, columns = slots.tolist(), self._numbers, []
        as_integers, as_floats = (
            list(zip(*[memory[place].tolist() for place in places], strict=True))
            for memory in (numbers, numbers.view(np.float64))
        )
        for place, (is_float, valid) in enumerate(zip(self._are_floats, self._valid, strict=True)):
            plain: Sequence[object] = (as_floats if is_float else as_integers)[place]
            if valid is not None:
                masked = zip(plain, valid.take(slots).tolist(), strict=True)
                plain = [value if is_valid else None for value, is_valid in masked]
            columns.append(plain)
        return columns

    def keep(self, slots: Ints) -> None:
        """Keep these rows only, which are in order; they get the slots from 0 on."""
        self._n_rows = len(slots)
        self._numbers = self._numbers.take(slots, axis=0)
        self._valid = [None if valid is None else valid.take(slots) for valid in self._valid]


def take_few(columns: Sequence[pa.Array], at: Ints) -> list[pa.Array]:
    """Return some rows of a few, column by column."""
    places = [place for place, column in enumerate(columns) if is_in_block(column.type)]
    values_at = list(columns)
    if places:
        block = NumberBlock([columns[place].type for place in places])
        block.add([columns[place] for place in places])
        for place, values in zip(places, block.take(at), strict=True):
            values_at[place] = values
    if len(places) < len(columns):
        rows = pa.array(at)
        for place in set(range(len(columns))).difference(places):
            values_at[place] = columns[place].take(rows)
    return values_at


@cache
def is_in_block(type_: pa.DataType) -> bool:
    """Return whether values of a type are eight bytes each, and plain values as they are."""
    return bool(kind.is_int64(type_) or kind.is_float64(type_) or kind.is_timestamp(type_))


class Payload:
    """All columns of rows, by slot."""

    def __init__(self) -> None:
        self._schema = pa.schema([])
        self._names: list[str] = []
        self._block, self._places = NumberBlock([]), list[int]()  # the columns of the block
        self._rest: dict[int, StoreColumn] = {}
        self._waiting: list[Batch] = []
        self._n_rows = self._n_waiting = 0  # in columns, and not yet

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        held = self._block.nbytes + sum(column.nbytes for column in self._rest.values())
        return held + sum(int(batch.rows.nbytes) for batch in tuple(self._waiting))

    def add(self, batch: Batch) -> None:
        """Store rows behind the last."""
        self._waiting.append(batch)
        self._n_waiting += batch.num_rows
        if self._n_waiting >= policy.SIZES.waiting_rows:
            self._store_waiting()

    def _store_waiting(self) -> None:
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        if not waiting:
            return
        batches = batches_to_columns(waiting)
        rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        if not self._names:
            self._begin(rows.schema)
        columns = rows.columns
        if self._places:
            self._block.add([columns[place] for place in self._places])
        for place, column in self._rest.items():
            column.add(columns[place])
        self._n_rows += rows.num_rows

    def _begin(self, schema: pa.Schema) -> None:
        self._schema, self._names = schema, schema.names
        self._places = [place for place, type_ in enumerate(schema.types) if is_in_block(type_)]
        self._block = NumberBlock([schema.types[place] for place in self._places])
        self._rest = {
            place: NumberColumn(type_) if has_numbers(type_) else ArrayColumn()
            for place, type_ in enumerate(schema.types)
            if not is_in_block(type_)
        }

    def take(self, slots: Ints) -> pa.RecordBatch:
        """Return some rows, of which there must be any."""
        columns = self.take_columns(slots)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def take_columns(self, slots: Ints) -> list[pa.Array]:
        """Return the columns of some rows, of which there must be any."""
        self._need(slots)
        rest = {place: column.take(slots) for place, column in self._rest.items()}
        return self._sort_columns(self._block.take(slots), rest)

    def take_plain(self, slots: Ints) -> list[tuple[object, ...]]:
        """Return some rows as plain values, in the order of their columns."""
        self._need(slots)
        rest = {place: to_plain(column.take(slots)) for place, column in self._rest.items()}
        return list(zip(*self._sort_columns(self._block.take_plain(slots), rest), strict=True))

    def take_column(self, name: str, slots: Ints) -> pa.Array:
        """Return one column of some rows."""
        self._need(slots)
        place = self._names.index(name)
        if place in self._rest:
            return self._rest[place].take(slots)
        return self._block.take(slots)[self._places.index(place)]

    def keep(self, slots: Ints) -> None:
        """Keep these rows only, which are in order; they get the slots from 0 on."""
        self._store_waiting()
        self._n_rows = len(slots)
        if self._places:
            self._block.keep(slots)
        for column in self._rest.values():
            column.keep(slots)

    def _need(self, slots: Ints) -> None:
        """Make sure that these rows are in columns."""
        if not self._waiting:
            return
        # Why a list: the greatest of a few is found sooner there.
        last = max(slots.tolist()) if len(slots) <= policy.SIZES.few_rows else slots.max()
        if last >= self._n_rows:
            self._store_waiting()

    def _sort_columns(self, block: Sequence[Any], rest: dict[int, Any]) -> list[Any]:
        """Return what was taken of all columns, in their order."""
        if not rest:
            return list(block)
        by_place = dict(zip(self._places, block, strict=True)) | rest
        return [by_place[place] for place in range(len(self._names))]
