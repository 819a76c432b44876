"""Batches: rows of one stream as Arrow columns, and beside them when each happened and its place among ties.

Times are microseconds since 1970 (`timing/units.py`), never null: sources give rows without a time to
`.errors`. They travel beside the columns, so a map may drop the time column.

What filters and look-ups keep is a `Selection` (a selection vector, as in DuckDB and Velox): columns are
taken when they are read, so a column that nobody asks for is never copied. Rows that Python made are a
`RowBatch`, which builds columns when somebody asks for them, so that a row at a time never meets Arrow.

Invariant: a batch never changes. Asking twice, even from two threads, gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, compress, groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.batching import RowLists, values_of
from penstock.expr import compute as pc
from penstock.expr.values import from_checked, from_numpy, to_plain
from penstock.stages import policy

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Plain = Mapping[str, object]


class Selection:
    """Which rows of others, in which order; their indices are computed when they are first asked for.

    num_rows  the number of rows selected
    """

    __slots__ = ("_arrow", "_find", "_indices", "num_rows")

    def __init__(self, num_rows: int, find: Callable[[], Ints]) -> None:
        self.num_rows, self._find = num_rows, find
        self._indices: Ints | None = None
        self._arrow: pa.Array | None = None

    @property
    def indices(self) -> Ints:
        """Return where the rows are."""
        if self._indices is None:
            self._indices = self._find()
        return self._indices

    @property
    def arrow(self) -> pa.Array:
        """Return the indices as an Arrow array."""
        if self._arrow is None:
            self._arrow = from_numpy(self.indices)
        return self._arrow

    def compose(self, before: Selection | None) -> Selection:
        """Return what is selected from the rows that were selected before."""
        return self if before is None else Selection(self.num_rows, lambda: before.indices.take(self.indices))


class ColumnView(NamedTuple):
    """A column, or columns side by side, and which of their rows; all of them without a selection."""

    values: Any
    selection: Selection | None

    @property
    def codes(self) -> Ints | None:
        """Return where the value of each row stands in a shorter column; None if it stands in none."""
        values, selection = self
        return None if selection is None or len(values) >= selection.num_rows else selection.indices

    def take(self) -> pa.Array:
        """Return the selected values."""
        values, selection = self
        return values if selection is None else take_values(values, selection)


def take_values(values: pa.Array, selection: Selection) -> pa.Array:
    """Return some values; numbers without nulls take half of the time that Arrow needs."""
    if values.null_count or not has_numbers(values.type):
        return pc.take(values, selection.arrow)
    return build_numbers(view_numbers(values).take(selection.indices), values.type)


def has_numbers(type_: pa.DataType) -> bool:
    """Return whether values of a type are numbers of whole bytes, one after the other."""
    return bool(kind.is_primitive(type_) and not kind.is_boolean(type_) and type_.bit_width >= 8)


def view_numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Return the memory of such values as integers of their width; what stands for a null may be anything."""
    dtype = np.dtype(f"i{values.type.bit_width // 8}")
    buffer = values.buffers()[1]
    return (
        np.frombuffer(buffer, dtype, len(values), values.offset * dtype.itemsize)
        if buffer
        else np.empty(0, dtype)
    )


def build_numbers(numbers: npt.NDArray[Any], type_: pa.DataType, valid: Mask | None = None) -> pa.Array:
    """Return the array whose memory such integers are."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(type_, len(numbers), [bitmap, pa.py_buffer(numbers)])


class Batch:
    """Rows of one stream.

    num_rows  the number of rows
    schema    names and types of the columns
    rows      the columns
    times     int64[n]  microseconds
    order     int64[n] each, the place among rows of equal time, most significant first; () when it is not
              known, and then ties go by the columns in schema order
    plain     the rows as plain values if they are at hand (`RowBatch`), else None
    """

    # `_views`: where columns stand while they are not taken, side by side, each with a selection of its own.
    # `_columns`: the columns that were taken from there, once each.
    # `_origin`: the batch and the selection that times and order follow from, while they are None.
    # `_order` may also be a function that returns it.
    __slots__ = ("_columns", "_order", "_origin", "_rows", "_times", "_views", "num_rows", "schema")

    plain: Sequence[Plain] | None = None
    _columns: dict[str, pa.Array]

    def __init__(self, rows: pa.RecordBatch, times: Ints, order: tuple[Ints | range, ...] = ()) -> None:
        self.num_rows: int = rows.num_rows
        self._rows: pa.RecordBatch | None = rows
        self.schema: pa.Schema = rows.schema
        self._views: tuple[ColumnView, ...] = ()
        self._times: Any = times
        self._order: Any = order
        self._origin: tuple[Batch, Selection] | None = None

    @property
    def rows(self) -> pa.RecordBatch:
        """Return the columns."""
        if self._rows is None:
            self._rows = self._build_rows()
        return self._rows

    @property
    def times(self) -> Ints:
        """Return when each row happened."""
        if self._times is None:
            assert self._origin is not None, "times are known, or follow from another batch"
            origin, selection = self._origin
            self._times = origin.times.take(selection.indices)
        elif type(self._times) is not np.ndarray:
            self._times = np.asarray(self._times, np.int64)
        times: Ints = self._times
        return times

    @property
    def order(self) -> tuple[Ints, ...]:
        """Return the place of each row among those of equal time."""
        if self._order is None:
            assert self._origin is not None, "the order is known, or follows from another batch"
            origin, selection = self._origin
            self._order = tuple(column.take(selection.indices) for column in origin.order)
        elif callable(self._order):
            self._order = self._order()
        elif any(type(column) is not np.ndarray for column in self._order):
            self._order = tuple(_to_ints(column) for column in self._order)
        order: tuple[Ints, ...] = self._order
        return order

    def plain_times_and_order(self) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
        """Return times and order as Python numbers."""
        times, order = self._times, self._order
        if times is None or type(times) is np.ndarray:
            times = self.times.tolist()
        if order is None or callable(order):
            order = self.order
        return times, [column.tolist() if type(column) is np.ndarray else column for column in order]

    def time_range(self) -> tuple[int, int]:
        """Return the least and the greatest time; there is at least one row."""
        times = self._times
        if times is None or type(times) is np.ndarray:
            times = self.times
            return int(times.min()), int(times.max())
        return min(times), max(times)

    def column(self, name: str) -> pa.Array:
        """Return one column; the others stay as they are."""
        if not self._views:
            return self.rows.column(name)
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._source(name).take()
        return column

    def values(self, name: str) -> list[Any]:
        """Return the plain values of one column."""
        return to_plain(self.column(name)) if self.plain is None else values_of(self.plain, name)

    def view(self, name: str) -> ColumnView:
        """Return one column where it stands, and which of its rows: nothing is taken that was not before."""
        if not self._views:
            return ColumnView(self.rows.column(name), None)
        source, column = self._source(name), self._columns.get(name)
        return source if column is None or source.codes is not None else ColumnView(column, None)

    def _source(self, name: str) -> ColumnView:
        """Return one column as it stands in its view."""
        for columns, selection in self._views:
            if name in columns.schema.names:
                return ColumnView(columns.column(name), selection)
        raise AssertionError(f"{name} is in no view")

    def take(self, indices: npt.NDArray[Any]) -> Batch:
        """Return the rows at these indices, in their order."""
        return self._select(Selection(len(indices), lambda: indices))

    def where(self, mask: Mask) -> Batch:
        """Return the rows for which the mask is true."""
        n_selected = int(np.count_nonzero(mask))
        if n_selected == len(mask):
            return self
        return self._select(Selection(n_selected, lambda: np.flatnonzero(mask)))

    def with_lists(self, lists: Sequence[list[Any]], schema: pa.Schema) -> Batch:
        """Return rows of another schema, one for each of these, from the plain values of its columns."""
        return self.with_rows(RowLists(schema.names, lists), schema)

    def with_rows(self, rows: Sequence[Plain], schema: pa.Schema) -> Batch:
        """Return plain rows of another schema, one for each of these, at the same times and places."""
        if len(rows) > policy.SIZES.plain_rows:
            return Batch(rows_to_columns(rows, schema), self.times, self.order)
        return RowBatch(rows, schema, self._times, self._order, self._origin)

    def repeat(
        self,
        times: Ints,
        find_parents: Callable[[], Ints],
        find_order: Callable[[], tuple[Ints, ...]],
        added: pa.RecordBatch,
        schema: pa.Schema,
    ) -> Batch:
        """Return a row for each of `added`, with the other columns of the row that it was made of.

        Columns of the same names are replaced; the others are taken when they are read, and what tells where
        they are, or the order of the rows, is asked for when somebody needs it.
        """
        repeated = self.rows.select([name for name in self.schema.names if name not in added.schema.names])
        views = (ColumnView(added, None), ColumnView(repeated, Selection(len(times), find_parents)))
        return self._from_views(views, schema, len(times), times, find_order, None)

    def with_columns(self, added: Sequence[ColumnView], schema: pa.Schema) -> Batch:
        """Return the same rows with further columns, which stand elsewhere."""
        views = self._views or (ColumnView(self.rows, None),)
        times = (self._times, self._order, self._origin)
        return self._from_views((*views, *added), schema, self.num_rows, *times)

    def _build_rows(self) -> pa.RecordBatch:
        columns = [self.column(name) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _select(self, selection: Selection) -> Batch:
        # Views that share a selection share what follows from it.
        composed: dict[int, Selection] = {}
        views = [
            ColumnView(columns, composed.setdefault(id(before), selection.compose(before)))
            for columns, before in self._views or (ColumnView(self.rows, None),)
        ]
        origin = (self, selection)
        selected = self._from_views(tuple(views), self.schema, selection.num_rows, None, None, origin)
        if selection.num_rows * policy.SIZES.selection_share >= self.num_rows:
            return selected
        # Why: few rows must not keep many in memory.
        return Batch(selected.rows, selected.times, selected.order)

    @staticmethod
    def _from_views(
        views: tuple[ColumnView, ...],
        schema: pa.Schema,
        num_rows: int,
        times: Any,
        order: Any,
        origin: tuple[Batch, Selection] | None,
    ) -> Batch:
        batch = Batch.__new__(Batch)
        batch.num_rows, batch._rows, batch.schema = num_rows, None, schema
        batch._views, batch._columns = views, {}
        batch._times, batch._order, batch._origin = times, order, origin
        return batch


def _to_ints(column: Sequence[int] | Ints) -> Ints:
    """Return a column of places as an array."""
    if type(column) is range:
        return np.arange(column.start, column.stop, dtype=np.int64)
    return np.asarray(column, np.int64)


class RowBatch(Batch):
    """Rows of plain values (`expr/values.py`), each with the columns of the schema in their order.

    times, order  sequences or arrays of int
    """

    __slots__ = ("plain",)

    def __init__(
        self,
        rows: Sequence[Plain],
        schema: pa.Schema,
        times: Any,
        order: Any = (),
        origin: tuple[Batch, Selection] | None = None,
    ) -> None:
        self.num_rows, self.plain = len(rows), rows
        self._rows, self._views = None, ()
        self.schema, self._times, self._order, self._origin = schema, times, order, origin

    @classmethod
    def single(cls, row: Plain, schema: pa.Schema, time: int, order: tuple[int, ...]) -> RowBatch:
        """Return one row as a batch."""
        return cls((row,), schema, (time,), tuple([(number,) for number in order]))

    def _build_rows(self) -> pa.RecordBatch:
        assert self.plain is not None, "a row batch has rows"
        return rows_to_columns(self.plain, self.schema)

    def where(self, mask: Mask) -> Batch:
        """Return the rows for which the mask is true."""
        n_selected = int(np.count_nonzero(mask))
        if n_selected == len(mask):
            return self
        assert self.plain is not None, "a row batch has rows"
        holds, rows = mask.tolist(), self.plain
        rows = rows.where(holds) if isinstance(rows, RowLists) else list(compress(rows, holds))
        if self.num_rows > policy.SIZES.few_rows:
            origin = (self, Selection(n_selected, lambda: np.flatnonzero(mask)))
            return RowBatch(rows, self.schema, None, None, origin)
        times, order = self.plain_times_and_order()
        places = tuple([list(compress(column, holds)) for column in order])
        return RowBatch(rows, self.schema, list(compress(times, holds)), places)

    def _select(self, selection: Selection) -> Batch:
        assert self.plain is not None, "a row batch has rows"
        indices, rows = selection.indices.tolist(), self.plain
        rows = rows.take(indices) if isinstance(rows, RowLists) else [rows[index] for index in indices]
        if len(indices) > policy.SIZES.few_rows:
            return RowBatch(rows, self.schema, None, None, (self, selection))
        times, order = self.plain_times_and_order()
        places = tuple([[column[index] for index in indices] for column in order])
        return RowBatch(rows, self.schema, [times[index] for index in indices], places)


def concat_rows(parts: Sequence[Sequence[Plain]], names: Sequence[str]) -> Sequence[Plain]:
    """Return plain rows with these columns, of several lots one after the other."""
    if not any(isinstance(rows, RowLists) for rows in parts):
        return list(chain.from_iterable(parts))
    lots = [RowLists.of(rows, names).lists for rows in parts]
    return RowLists(names, [list(chain.from_iterable(column)) for column in zip(*lots, strict=True)])


def rows_to_columns(rows: Sequence[Plain], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of plain values as columns."""
    columns = [from_checked(values_of(rows, field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def batches_to_columns(batches: Sequence[Batch]) -> list[pa.RecordBatch]:
    """Return batches of one stream as columns, in order; neighbouring batches of plain rows as one."""
    columns: list[pa.RecordBatch] = []
    for is_plain, group in groupby(batches, lambda batch: batch.plain is not None):
        neighbours = list(group)
        if is_plain:
            schema = neighbours[0].schema
            rows = concat_rows([batch.plain or () for batch in neighbours], schema.names)
            columns.append(rows_to_columns(rows, schema))
        else:
            columns += [batch.rows for batch in neighbours]
    return columns
