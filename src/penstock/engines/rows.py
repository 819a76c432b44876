"""Rows as plain Python values: when values are equal, how they are ordered, and a row with its time.

Assumes plain values of one column's type (see `expr.values`), so only values of one kind are compared. Used
by the reference engine and by process operators.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.expr.values import from_plain, to_plain
from penstock.frozen import Frozen
from penstock.operators.function import Row


def sort_key(value: object) -> tuple[Any, ...]:
    """Return what to sort values by: null first, NaN greatest, lists and structs part by part.

    -0.0 equals 0.0 and stands before it, so that no order is left to chance.
    """
    match value:
        case None:
            return (0,)
        case float() if math.isnan(value):
            return (2,)
        case float():
            return (1, value, math.copysign(1.0, value))
        case list():
            return (1, [sort_key(part) for part in value])
        case dict():
            return (1, [sort_key(part) for part in value.values()])
    return (1, value)


def equality_key(value: object) -> Hashable:
    """Return a form that is equal for equal values: NaN equals NaN, -0.0 equals 0.0, null equals null."""
    match value:
        case float() if math.isnan(value):
            return ("NaN",)
        case list():
            return tuple(equality_key(part) for part in value)
        case dict():
            return tuple(equality_key(part) for part in value.values())
        case Hashable():
            return value
    raise AssertionError(f"{value!r} is not a plain value")


def canonical_value(value: object) -> object:
    """Return the representative of all values equal to it: -0.0 becomes 0.0."""
    match value:
        case float():
            return value + 0.0
        case list():
            return [canonical_value(part) for part in value]
        case dict():
            return {name: canonical_value(part) for name, part in value.items()}
    return value


def key_of(values: Mapping[str, object], names: Iterable[str]) -> tuple[Hashable, ...]:
    """Return the key of a row, to group and look up by."""
    return tuple(equality_key(values[name]) for name in names)


def key_columns(values: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """Return the key columns as results show them."""
    return {name: canonical_value(values[name]) for name in names}


class TimedRow(Frozen):
    """A row: its columns as plain values, its time, and its position among rows of equal time.

    Rows are ordered by (time, order, columns). `order` begins with the rank of the source, if there are
    several, and the reader's own number where it has one, and grows by one index at every flat_map; a pair
    has the left row's order and then the right row's; a window's result has none. What still ties is decided
    by the columns.

    values  plain values by column, in the order of the stream's schema; never changed
    time    microseconds since 1970; None on a stream without time
    """

    values: Mapping[str, object]
    time: int | None
    order: tuple[int, ...] = ()

    def with_values(self, values: Mapping[str, object]) -> TimedRow:
        """Return a row with other columns, at the same time and order."""
        return replace(self, values=values)

    def child(self, values: Mapping[str, object], index: int) -> TimedRow:
        """Return one of several rows derived from this one."""
        return TimedRow(values, self.time, (*self.order, index))

    def at(self) -> int:
        """Return the time, where there must be one."""
        assert self.time is not None, "the plan gives time to every stream that needs it"
        return self.time


def row_sort_key(row: TimedRow) -> tuple[Any, ...]:
    """Return what to sort rows by."""
    return (row.time or 0, row.order, [sort_key(value) for value in row.values.values()])


def sort_rows(rows: Iterable[TimedRow]) -> list[TimedRow]:
    """Return the rows by (time, order, columns)."""
    return sorted(rows, key=row_sort_key)


def batch_to_rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Return a batch, row by row, as plain values."""
    names = batch.schema.names
    columns = [to_plain(column) for column in batch.columns]
    return [
        dict(zip(names, (column[index] for column in columns), strict=True))
        for index in range(batch.num_rows)
    ]


def rows_to_batch(rows: Iterable[TimedRow], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch of the schema."""
    rows = list(rows)
    columns = [from_plain([row.values[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def format_row(values: Mapping[str, object], schema: pa.Schema) -> str:
    """Return a row for an error message: as the user sees it, else as it is stored."""
    try:
        return f"{Row(values, schema)!r:.400}"
    except Exception:  # a row that cannot be shown must not hide why it failed
        return f"{dict(values)!r:.400}"
