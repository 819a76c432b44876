"""A row on its way: its columns as plain values, its time, and its place among rows of equal time.

The order of rows is (time, order, columns). `order` begins with the rank of the source and the reader's
own number where it has one, and grows by one index at every flat_map; a pair has the left row's order
and then the right row's; a window's result has none. What still ties is decided by the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.engines.values import sort_key
from penstock.expr.types import from_plain, to_plain
from penstock.frozen import dataclass
from penstock.operators.row import Row


@dataclass(frozen=True, slots=True)
class TimedRow:
    """One row.

    values  plain values by column, in the order of the stream's schema; never changed
    time    microseconds since 1970; None on a stream without time
    order   place among rows of equal time
    """

    values: Mapping[str, object]
    time: int | None
    order: tuple[int, ...] = ()

    def with_values(self, values: Mapping[str, object]) -> TimedRow:
        """Other columns, at the same time and place."""
        return replace(self, values=values)

    def child(self, values: Mapping[str, object], index: int) -> TimedRow:
        """One of several rows made of this one."""
        return TimedRow(values, self.time, (*self.order, index))

    def at(self) -> int:
        """The time, where there must be one."""
        assert self.time is not None, "the plan gives time to every stream that needs it"
        return self.time


def place(row: TimedRow) -> tuple[Any, ...]:
    """What to sort rows by."""
    return (row.time or 0, row.order, [sort_key(value) for value in row.values.values()])


def in_order(rows: Iterable[TimedRow]) -> list[TimedRow]:
    """The rows by (time, order, columns)."""
    return sorted(rows, key=place)


def values_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """A batch, row by row, as plain values."""
    names = batch.schema.names
    columns = [to_plain(column) for column in batch.columns]
    return [
        dict(zip(names, (column[index] for column in columns), strict=True))
        for index in range(batch.num_rows)
    ]


def batch_of(rows: Iterable[TimedRow], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a batch of the schema."""
    rows = list(rows)
    columns = [from_plain([row.values[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def shown(values: Mapping[str, object], schema: pa.Schema) -> str:
    """A row for an error message: as the user sees it, else as it is stored."""
    try:
        return f"{Row(values, schema)!r:.400}"
    except Exception:  # a row that cannot be shown must not hide why it failed
        return f"{dict(values)!r:.400}"
