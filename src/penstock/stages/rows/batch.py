"""Rows picked from others, and not yet copied: filters and look-ups say which, columns are taken when read.

A column that nobody asks for is never touched. Places follow from masks and from each other when the first
column is asked for, and once for all columns; asking twice, from two threads even, gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.values import from_checked, from_numpy

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Selection:
    """Which rows of others, in which order.

    num_rows  how many are picked
    """

    __slots__ = ("_arrow", "_find", "_indices", "num_rows")

    def __init__(self, num_rows: int, find: Callable[[], Ints]) -> None:
        self.num_rows, self._find = num_rows, find
        self._indices: Ints | None = None
        self._arrow: pa.Array | None = None

    @classmethod
    def from_indices(cls, indices: npt.NDArray[Any]) -> Selection:
        """The rows at these indices."""
        return cls(len(indices), lambda: indices)

    @classmethod
    def from_mask(cls, kept: Mask, num_rows: int) -> Selection:
        """The rows for which the mask is true, which are so many."""
        return cls(num_rows, lambda: np.flatnonzero(kept))

    @property
    def indices(self) -> Ints:
        """Where they are."""
        found = self._indices
        if found is None:
            found = self._indices = self._find()
        return found

    @property
    def arrow(self) -> pa.Array:
        """The same as Arrow has it."""
        found = self._arrow
        if found is None:
            found = self._arrow = from_numpy(self.indices)
        return found

    def map_through(self, numbers: Ints) -> Selection:
        """What the numbers at these indices say."""
        return Selection(self.num_rows, lambda: numbers.take(self.indices))

    def compose(self, before: Selection | None) -> Selection:
        """What is picked from those that were picked before."""
        return self if before is None else Selection(self.num_rows, lambda: before.indices[self.indices])


class DictionaryColumn(NamedTuple):
    """A column whose values stand in a shorter one: row i has values[codes[i]]."""

    values: pa.Array
    codes: Ints


class ColumnView(NamedTuple):
    """Some columns, or one, and which of their rows; all of them without a selection."""

    rows: pa.RecordBatch
    selection: Selection | None


class SelectedColumns:
    """Columns side by side, each part with a selection of its own."""

    __slots__ = ("_found", "_parts", "num_rows", "schema")

    def __init__(self, parts: Sequence[ColumnView], schema: pa.Schema, num_rows: int) -> None:
        self._parts, self.schema, self.num_rows = tuple(parts), schema, num_rows
        self._found: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        """One column."""
        found = self._found.get(name)
        if found is None:
            values, selection = self._source(name)
            found = self._found[name] = values if selection is None else take_values(values, selection)
        return found

    def column_view(self, name: str) -> ColumnView:
        """One column where it lies, and which of its rows: nothing is taken that was not before."""
        found = self._found.get(name)
        return self._source(name) if found is None else ColumnView(found, None)

    def dictionary_column(self, name: str) -> DictionaryColumn | None:
        """One column by indices in a shorter one; None if it stands in no shorter one."""
        values, selection = self._source(name)
        if selection is None or len(values) >= selection.num_rows:
            return None
        return DictionaryColumn(values, selection.indices)

    def rows(self) -> pa.RecordBatch:
        """All columns."""
        return pa.RecordBatch.from_arrays(
            [self.column(name) for name in self.schema.names], schema=self.schema
        )

    def select(self, selection: Selection) -> SelectedColumns:
        """Some of the rows."""
        after: dict[int, Selection] = {}
        parts = []
        for rows, before in self._parts:
            parts.append(ColumnView(rows, after.setdefault(id(before), selection.compose(before))))
        return SelectedColumns(parts, self.schema, selection.num_rows)

    def with_columns(self, added: Sequence[ColumnView], schema: pa.Schema) -> SelectedColumns:
        """The same rows with further columns, all together in a schema."""
        return SelectedColumns((*self._parts, *added), schema, self.num_rows)

    def _source(self, name: str) -> ColumnView:
        for rows, selection in self._parts:
            if name in rows.schema.names:
                return ColumnView(rows.column(name), selection)
        raise AssertionError(f"{name} is in no part")


def take_values(values: pa.Array, selection: Selection) -> pa.Array:
    """The values that were picked; numbers without nulls in half of the time that Arrow takes."""
    type_ = values.type
    if values.null_count or not kind.is_primitive(type_) or kind.is_boolean(type_) or type_.bit_width < 8:
        return pc.take(values, selection.arrow)
    width = np.dtype(f"i{type_.bit_width // 8}")
    numbers = np.frombuffer(values.buffers()[1], width, len(values), values.offset * width.itemsize)
    found = numbers.take(selection.indices)
    return pa.Array.from_buffers(type_, len(found), [None, pa.py_buffer(found)])


# A batch: rows as Arrow columns, and beside them when each happened and its place among equal times.
#
# Times are microseconds since 1970 (`timing/column.py`), never null: sources give rows without a time to
# `.errors`. They travel beside the columns, so a map may drop the time column.
#
# A batch has faces, and shows the one that is asked for. Rows that Python made stay plain rows until somebody
# wants columns, so that a row at a time never meets Arrow. Rows that were picked from others stay where they
# are until somebody asks for a column, so that what nobody reads is never copied (`picking.py`).

Plain = Mapping[str, object]

MAX_SPARSITY = 16
"""Of so many rows one at least is picked, or they are copied at once: what waits must not hold much more."""

MAX_PLAIN_ROWS = 4096
"""More plain rows than this are columns at once: waiting, they would take ten times the memory."""


class _LazyTake(NamedTuple):
    """Numbers that are picked when somebody asks."""

    numbers: Any
    selection: Selection


class Batch:
    """Rows of one stream. Nothing about them changes: faces are only made when they are wanted.

    num_rows  how many
    rows      the columns
    times     int64[n]  microseconds
    order     int64[n] each, the place among rows of equal time, most significant first; () when it is not
              known, and then ties go by the columns in schema order
    """

    __slots__ = ("_order", "_plain", "_rows", "_schema", "_selected", "_times", "num_rows")

    def __init__(self, rows: pa.RecordBatch, times: Ints, order: tuple[Ints, ...] = ()) -> None:
        self.num_rows: int = rows.num_rows
        self._rows: pa.RecordBatch | None = rows
        self._times: Any = times
        self._order: Any = order
        self._schema: pa.Schema | None = None
        self._plain: Sequence[Plain] | None = None
        self._selected: SelectedColumns | None = None

    @classmethod
    def from_rows(cls, rows: Sequence[Plain], schema: pa.Schema, times: Any, order: Any = ()) -> Batch:
        """Rows of plain values (`expr/values.py`), each with the columns of the schema in their order.

        times  list or array of int
        order  a list or array of int each
        """
        made = cls.__new__(cls)
        made.num_rows = len(rows)
        made._plain, made._schema, made._times, made._order = rows, schema, times, order
        made._rows = made._selected = None
        return made

    @classmethod
    def from_row(cls, row: Plain, schema: pa.Schema, time: int, order: tuple[int, ...]) -> Batch:
        """One row of plain values."""
        return cls.from_rows((row,), schema, (time,), tuple([(number,) for number in order]))

    @property
    def rows(self) -> pa.RecordBatch:
        """The columns."""
        rows = self._rows
        if rows is None:
            if self._plain is not None:
                rows = rows_to_columns(self._plain, self.schema)
            else:
                assert self._selected is not None, "a batch has a face"
                rows = self._selected.rows()
            self._rows = rows
        return rows

    @property
    def plain(self) -> Sequence[Plain] | None:
        """The rows as plain values where they are at hand so, else None."""
        return self._plain

    def plain_times_and_order(self) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
        """Times and order as plain numbers."""
        numbers = (self._times, *(self._order if type(self._order) is tuple else ()))
        if all(type(each) is tuple for each in numbers):
            return self._times, numbers[1:]
        return self.times.tolist(), [each.tolist() for each in self.order]

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        if self._schema is None:
            self._schema = self._selected.schema if self._selected is not None else self.rows.schema
        return self._schema

    @property
    def times(self) -> Ints:
        """When each row happened."""
        times = self._times
        if type(times) is not np.ndarray:
            self._times = times = _to_array(times)
        return times  # type: ignore[no-any-return]  # an array now

    @property
    def order(self) -> tuple[Ints, ...]:
        """The place of each row among those of equal time."""
        order = self._order
        if type(order) is _LazyTake:
            order = tuple(_to_array(_LazyTake(each, order.selection)) for each in order.numbers)
        elif any(type(each) is not np.ndarray for each in order):
            order = tuple(_to_array(each) for each in order)
        self._order = order
        return order  # type: ignore[no-any-return]  # arrays now

    def column(self, name: str) -> pa.Array:
        """One column; the others stay as they are."""
        return self.rows.column(name) if self._selected is None else self._selected.column(name)

    def column_view(self, name: str) -> ColumnView:
        """One column where it lies, and which of its rows, without taking them."""
        return (
            ColumnView(self.rows.column(name), None)
            if self._selected is None
            else self._selected.column_view(name)
        )

    def dictionary_column(self, name: str) -> DictionaryColumn | None:
        """One column by indices in a shorter one, where it stands in one."""
        return None if self._selected is None else self._selected.dictionary_column(name)

    def take(self, indices: npt.NDArray[Any]) -> Batch:
        """The rows at these indices, in their order."""
        return self._some(Selection.from_indices(indices))

    def where(self, kept: Mask) -> Batch:
        """The rows for which the mask is true."""
        n_kept = int(np.count_nonzero(kept))
        return self if n_kept == len(kept) else self._some(Selection.from_mask(kept, n_kept))

    def with_rows(self, rows: Sequence[Plain], schema: pa.Schema) -> Batch:
        """Plain rows of another schema, one for each of these, at the same times and indices."""
        if len(rows) > MAX_PLAIN_ROWS:
            return Batch(rows_to_columns(rows, schema), self.times, self.order)
        return Batch.from_rows(rows, schema, self._times, self._order)

    def with_columns(self, added: Sequence[ColumnView], schema: pa.Schema) -> Batch:
        """The same rows with further columns, which stand elsewhere."""
        mine = self._selected or SelectedColumns((ColumnView(self.rows, None),), self.schema, self.num_rows)
        return _from_selected(mine.with_columns(added, schema), self._times, self._order)

    def _alone(self, place: int) -> Batch:
        """One row, where it lies."""
        beside = tuple([each[place : place + 1] for each in self.order])
        return Batch(self.rows.slice(place, 1), self.times[place : place + 1], beside)

    def _some(self, selection: Selection) -> Batch:
        if selection.num_rows == 1 and self._rows is not None and self.num_rows <= MAX_SPARSITY:
            return self._alone(int(selection.indices[0]))
        times, order = _LazyTake(self.times, selection), _LazyTake(self.order, selection)
        if self._plain is not None:
            rows = [self._plain[place] for place in selection.indices.tolist()]
            return Batch.from_rows(rows, self.schema, times, order)
        mine = self._selected or SelectedColumns((ColumnView(self.rows, None),), self.schema, self.num_rows)
        some = _from_selected(mine.select(selection), times, order)
        if selection.num_rows * MAX_SPARSITY < self.num_rows:
            return Batch(some.rows, some.times, some.order)
        return some


def _from_selected(picked: SelectedColumns, times: Any, order: Any) -> Batch:
    made = Batch.__new__(Batch)
    made.num_rows = picked.num_rows
    made._selected, made._times, made._order, made._schema = picked, times, order, picked.schema
    made._rows = made._plain = None
    return made


def _to_array(numbers: Any) -> Ints:
    if type(numbers) is _LazyTake:
        return np.asarray(numbers.numbers.take(numbers.selection.indices), np.int64)
    if type(numbers) is range:
        return np.arange(numbers.start, numbers.stop, dtype=np.int64)
    return np.asarray(numbers, np.int64)


def rows_to_columns(rows: Sequence[Plain], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of plain values as columns."""
    columns = [from_checked([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def batches_to_columns(batches: Sequence[Batch]) -> list[pa.RecordBatch]:
    """Batches of one stream as columns, in order; small ones of plain rows that stand together as one."""
    found: list[pa.RecordBatch] = []
    for is_plain, group in groupby(batches, lambda batch: batch.plain is not None):
        some = list(group)
        if is_plain:
            found.append(
                rows_to_columns([row for batch in some for row in batch.plain or ()], some[0].schema)
            )
        else:
            found += [batch.rows for batch in some]
    return found


def concat_batches(batches: Sequence[Batch], schema: pa.Schema) -> Batch:
    """Batches of one stream as one; all have the same number of order columns."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches([batch.rows for batch in batches], schema=schema).combine_chunks()
    rows = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=schema)
    times = np.concatenate([np.empty(0, np.int64), *(batch.times for batch in batches)])
    orders = zip(*(batch.order for batch in batches), strict=True)
    return Batch(rows, times, tuple(np.concatenate(each) for each in orders))
