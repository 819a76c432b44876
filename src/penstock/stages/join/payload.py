"""All columns of the stored rows of a join, from which some rows are taken quickly.

Rows are only added behind the last. Numbers are arrays that grow. Other columns are few Arrow arrays: one is
put together with the one before it unless that is much larger, so the last are small, and most values are in
the first.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.stages import policy
from penstock.stages.rows.batch import Ints, Mask, build_numbers, has_numbers, view_numbers

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


class Payload:
    """All columns of rows, by slot."""

    def __init__(self) -> None:
        self._schema = pa.schema([])
        self._columns: dict[str, StoreColumn] = {}

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return sum(column.nbytes for column in self._columns.values())

    def add(self, rows: pa.RecordBatch) -> None:
        """Store rows behind the last."""
        if not self._columns:
            self._schema = rows.schema
            for field in rows.schema:
                is_number = has_numbers(field.type)
                self._columns[field.name] = NumberColumn(field.type) if is_number else ArrayColumn()
        for column, values in zip(self._columns.values(), rows.columns, strict=True):
            column.add(values)

    def take(self, slots: Ints) -> pa.RecordBatch:
        """Return some rows, of which there must be any."""
        columns = [column.take(slots) for column in self._columns.values()]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def take_column(self, name: str, slots: Ints) -> pa.Array:
        """Return one column of some rows."""
        return self._columns[name].take(slots)

    def keep(self, slots: Ints) -> None:
        """Keep these rows only, which are in order; they get the slots from 0 on."""
        for column in self._columns.values():
            column.keep(slots)
