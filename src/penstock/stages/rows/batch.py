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


class Pick:
    """Which rows of others, in which order.

    num_rows  how many are picked
    """

    __slots__ = ("_arrow", "_find", "_places", "num_rows")

    def __init__(self, num_rows: int, find: Callable[[], Ints]) -> None:
        self.num_rows, self._find = num_rows, find
        self._places: Ints | None = None
        self._arrow: pa.Array | None = None

    @classmethod
    def at(cls, places: npt.NDArray[Any]) -> Pick:
        """The rows at these places."""
        return cls(len(places), lambda: places)

    @classmethod
    def where(cls, kept: Mask, num_rows: int) -> Pick:
        """The rows for which the mask is true, which are so many."""
        return cls(num_rows, lambda: np.flatnonzero(kept))

    @property
    def places(self) -> Ints:
        """Where they are."""
        found = self._places
        if found is None:
            found = self._places = self._find()
        return found

    @property
    def arrow(self) -> pa.Array:
        """The same as Arrow has it."""
        found = self._arrow
        if found is None:
            found = self._arrow = from_numpy(self.places)
        return found

    def among(self, numbers: Ints) -> Pick:
        """What the numbers at these places say."""
        return Pick(self.num_rows, lambda: numbers.take(self.places))

    def of(self, before: Pick | None) -> Pick:
        """What is picked from those that were picked before."""
        return self if before is None else Pick(self.num_rows, lambda: before.places[self.places])


class Coded(NamedTuple):
    """A column whose values stand in a shorter one: row i has values[codes[i]]."""

    values: pa.Array
    codes: Ints


class Part(NamedTuple):
    """Some columns, or one, and which of their rows; all of them without a pick."""

    rows: pa.RecordBatch
    pick: Pick | None


class Picked:
    """Columns side by side, each part with a pick of its own."""

    __slots__ = ("_found", "_parts", "num_rows", "schema")

    def __init__(self, parts: Sequence[Part], schema: pa.Schema, num_rows: int) -> None:
        self._parts, self.schema, self.num_rows = tuple(parts), schema, num_rows
        self._found: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        """One column."""
        found = self._found.get(name)
        if found is None:
            values, pick = self._source(name)
            found = self._found[name] = values if pick is None else taken(values, pick)
        return found

    def lying(self, name: str) -> Part:
        """One column where it lies, and which of its rows: nothing is taken that was not before."""
        found = self._found.get(name)
        return self._source(name) if found is None else Part(found, None)

    def coded(self, name: str) -> Coded | None:
        """One column by places in a shorter one; None if it stands in no shorter one."""
        values, pick = self._source(name)
        if pick is None or len(values) >= pick.num_rows:
            return None
        return Coded(values, pick.places)

    def rows(self) -> pa.RecordBatch:
        """All columns."""
        return pa.RecordBatch.from_arrays(
            [self.column(name) for name in self.schema.names], schema=self.schema
        )

    def picked(self, pick: Pick) -> Picked:
        """Some of the rows."""
        after: dict[int, Pick] = {}
        parts = []
        for rows, before in self._parts:
            parts.append(Part(rows, after.setdefault(id(before), pick.of(before))))
        return Picked(parts, self.schema, pick.num_rows)

    def beside(self, added: Sequence[Part], schema: pa.Schema) -> Picked:
        """The same rows with further columns, all together in a schema."""
        return Picked((*self._parts, *added), schema, self.num_rows)

    def _source(self, name: str) -> Part:
        for rows, pick in self._parts:
            if name in rows.schema.names:
                return Part(rows.column(name), pick)
        raise AssertionError(f"{name} is in no part")


def taken(values: pa.Array, pick: Pick) -> pa.Array:
    """The values that were picked; numbers without nulls in half of the time that Arrow takes."""
    type_ = values.type
    if values.null_count or not kind.is_primitive(type_) or kind.is_boolean(type_) or type_.bit_width < 8:
        return pc.take(values, pick.arrow)
    width = np.dtype(f"i{type_.bit_width // 8}")
    numbers = np.frombuffer(values.buffers()[1], width, len(values), values.offset * width.itemsize)
    found = numbers.take(pick.places)
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

FEWEST = 16
"""Of so many rows one at least is picked, or they are copied at once: what waits must not hold much more."""

MANY = 4096
"""More plain rows than this are columns at once: waiting, they would take ten times the memory."""


class _Later(NamedTuple):
    """Numbers that are picked when somebody asks."""

    numbers: Any
    pick: Pick


class Batch:
    """Rows of one stream. Nothing about them changes: faces are only made when they are wanted.

    num_rows  how many
    rows      the columns
    times     int64[n]  microseconds
    order     int64[n] each, the place among rows of equal time, most significant first; () when it is not
              known, and then ties go by the columns in schema order
    """

    __slots__ = ("_order", "_picked", "_plain", "_rows", "_schema", "_times", "num_rows")

    def __init__(self, rows: pa.RecordBatch, times: Ints, order: tuple[Ints, ...] = ()) -> None:
        self.num_rows: int = rows.num_rows
        self._rows: pa.RecordBatch | None = rows
        self._times: Any = times
        self._order: Any = order
        self._schema: pa.Schema | None = None
        self._plain: Sequence[Plain] | None = None
        self._picked: Picked | None = None

    @classmethod
    def of_plain(cls, rows: Sequence[Plain], schema: pa.Schema, times: Any, order: Any = ()) -> Batch:
        """Rows of plain values (`expr/values.py`), each with the columns of the schema in their order.

        times  list or array of int
        order  a list or array of int each
        """
        made = cls.__new__(cls)
        made.num_rows = len(rows)
        made._plain, made._schema, made._times, made._order = rows, schema, times, order
        made._rows = made._picked = None
        return made

    @classmethod
    def of_one(cls, row: Plain, schema: pa.Schema, time: int, order: tuple[int, ...]) -> Batch:
        """One row of plain values."""
        return cls.of_plain((row,), schema, (time,), tuple([(number,) for number in order]))

    @property
    def rows(self) -> pa.RecordBatch:
        """The columns."""
        rows = self._rows
        if rows is None:
            if self._plain is not None:
                rows = columns_of(self._plain, self.schema)
            else:
                assert self._picked is not None, "a batch has a face"
                rows = self._picked.rows()
            self._rows = rows
        return rows

    @property
    def plain(self) -> Sequence[Plain] | None:
        """The rows as plain values where they are at hand so, else None."""
        return self._plain

    def plain_numbers(self) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
        """Times and order as plain numbers."""
        numbers = (self._times, *(self._order if type(self._order) is tuple else ()))
        if all(type(each) is tuple for each in numbers):
            return self._times, numbers[1:]
        return self.times.tolist(), [each.tolist() for each in self.order]

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        if self._schema is None:
            self._schema = self._picked.schema if self._picked is not None else self.rows.schema
        return self._schema

    @property
    def times(self) -> Ints:
        """When each row happened."""
        times = self._times
        if type(times) is not np.ndarray:
            self._times = times = _settled(times)
        return times  # type: ignore[no-any-return]  # an array now

    @property
    def order(self) -> tuple[Ints, ...]:
        """The place of each row among those of equal time."""
        order = self._order
        if type(order) is _Later:
            order = tuple(_settled(_Later(each, order.pick)) for each in order.numbers)
        elif any(type(each) is not np.ndarray for each in order):
            order = tuple(_settled(each) for each in order)
        self._order = order
        return order  # type: ignore[no-any-return]  # arrays now

    def column(self, name: str) -> pa.Array:
        """One column; the others stay as they are."""
        return self.rows.column(name) if self._picked is None else self._picked.column(name)

    def lying(self, name: str) -> Part:
        """One column where it lies, and which of its rows, without taking them."""
        return Part(self.rows.column(name), None) if self._picked is None else self._picked.lying(name)

    def coded(self, name: str) -> Coded | None:
        """One column by places in a shorter one, where it stands in one."""
        return None if self._picked is None else self._picked.coded(name)

    def take(self, places: npt.NDArray[Any]) -> Batch:
        """The rows at these places, in their order."""
        return self._some(Pick.at(places))

    def where(self, kept: Mask) -> Batch:
        """The rows for which the mask is true."""
        n_kept = int(np.count_nonzero(kept))
        return self if n_kept == len(kept) else self._some(Pick.where(kept, n_kept))

    def made_of(self, rows: Sequence[Plain], schema: pa.Schema) -> Batch:
        """Plain rows of another schema, one for each of these, at the same times and places."""
        if len(rows) > MANY:
            return Batch(columns_of(rows, schema), self.times, self.order)
        return Batch.of_plain(rows, schema, self._times, self._order)

    def beside(self, added: Sequence[Part], schema: pa.Schema) -> Batch:
        """The same rows with further columns, which stand elsewhere."""
        mine = self._picked or Picked((Part(self.rows, None),), self.schema, self.num_rows)
        return _of_picked(mine.beside(added, schema), self._times, self._order)

    def _alone(self, place: int) -> Batch:
        """One row, where it lies."""
        beside = tuple([each[place : place + 1] for each in self.order])
        return Batch(self.rows.slice(place, 1), self.times[place : place + 1], beside)

    def _some(self, pick: Pick) -> Batch:
        if pick.num_rows == 1 and self._rows is not None and self.num_rows <= FEWEST:
            return self._alone(int(pick.places[0]))
        times, order = _Later(self.times, pick), _Later(self.order, pick)
        if self._plain is not None:
            rows = [self._plain[place] for place in pick.places.tolist()]
            return Batch.of_plain(rows, self.schema, times, order)
        mine = self._picked or Picked((Part(self.rows, None),), self.schema, self.num_rows)
        some = _of_picked(mine.picked(pick), times, order)
        if pick.num_rows * FEWEST < self.num_rows:
            return Batch(some.rows, some.times, some.order)
        return some


def _of_picked(picked: Picked, times: Any, order: Any) -> Batch:
    made = Batch.__new__(Batch)
    made.num_rows = picked.num_rows
    made._picked, made._times, made._order, made._schema = picked, times, order, picked.schema
    made._rows = made._plain = None
    return made


def _settled(numbers: Any) -> Ints:
    if type(numbers) is _Later:
        return np.asarray(numbers.numbers.take(numbers.pick.places), np.int64)
    if type(numbers) is range:
        return np.arange(numbers.start, numbers.stop, dtype=np.int64)
    return np.asarray(numbers, np.int64)


def columns_of(rows: Sequence[Plain], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of plain values as columns."""
    columns = [from_checked([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def columns_together(batches: Sequence[Batch]) -> list[pa.RecordBatch]:
    """Batches of one stream as columns, in order; small ones of plain rows that stand together as one."""
    found: list[pa.RecordBatch] = []
    for is_plain, group in groupby(batches, lambda batch: batch.plain is not None):
        some = list(group)
        if is_plain:
            found.append(columns_of([row for batch in some for row in batch.plain or ()], some[0].schema))
        else:
            found += [batch.rows for batch in some]
    return found


def joined(batches: Sequence[Batch], schema: pa.Schema) -> Batch:
    """Batches of one stream as one; all have the same number of order columns."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches([batch.rows for batch in batches], schema=schema).combine_chunks()
    rows = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=schema)
    times = np.concatenate([np.empty(0, np.int64), *(batch.times for batch in batches)])
    orders = zip(*(batch.order for batch in batches), strict=True)
    return Batch(rows, times, tuple(np.concatenate(each) for each in orders))
