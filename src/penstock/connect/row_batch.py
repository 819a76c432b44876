"""Small batches of rows as plain values; columns are built when somebody asks for them.

Building a batch of one row as columns costs more than calling a Python function: this is what the row path of
the in-process engine reads (`python -m bench runtime`, tuple at a time). May assume canonical schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.connect.protocol import BadRow, SourceBatch
from penstock.expr.python.row_check import compile_row_check
from penstock.expr.values import from_checked, from_numpy

MAX_ROWS = 1024
"""Batches of more rows are columns at once."""

Row = Mapping[str, object]


class SourceRowBatch(SourceBatch):
    """A batch without bad rows whose rows are plain values, each with all columns in their order.

    start  the reader's number of the first row
    """

    __slots__ = ("_columns", "_schema", "plain", "start")
    plain: Sequence[Row]
    start: int
    _schema: pa.Schema
    _columns: pa.RecordBatch | None

    def __init__(
        self, plain: Sequence[Row], schema: pa.Schema, start: int, watermark: int | None = None
    ) -> None:
        assign = object.__setattr__  # batches are frozen
        assign(self, "plain", plain)
        assign(self, "start", start)
        assign(self, "_schema", schema)
        assign(self, "_columns", None)
        assign(self, "watermark", watermark)

    @property
    def bad(self) -> tuple[BadRow, ...]:
        """Return nothing: a batch with bad rows is made of columns."""
        return ()

    @property
    def rows(self) -> pa.RecordBatch:
        """Return the columns."""
        if self._columns is None:
            arrays = [
                from_checked([row[field.name] for row in self.plain], field.type) for field in self._schema
            ]
            object.__setattr__(self, "_columns", pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        return self._columns

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        return len(self.plain)

    @property
    def seq(self) -> pa.Int64Array:
        """Return the row numbers, from `start` on."""
        return from_numpy(np.arange(self.start, self.start + len(self.plain), dtype=np.int64))

    def with_watermark(self, watermark: int) -> SourceRowBatch:
        """Returns the same batch with a promise of the source."""
        return SourceRowBatch(self.plain, self._schema, self.start, watermark)


class RowConverter:
    """Turns rows as users give them into plain rows of one schema, where a quick check suffices.

    convert  a row as a dict of plain values; None where the checks of `conversion.py` are needed
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._names = schema, frozenset(schema.names)
        self._convert_complete = compile_row_check(schema, lambda row: None)
        self.convert: Callable[[object], Row | None] = compile_row_check(schema, self._fill_nulls)

    def batch(self, rows: Sequence[object], start: int) -> SourceRowBatch | None:
        """Returns the rows as a batch; None where one of them needs a closer check."""
        plain = [row for row in map(self.convert, rows) if row is not None]
        return SourceRowBatch(plain, self._schema, start) if len(plain) == len(rows) else None

    def _fill_nulls(self, row: object) -> Row | None:
        """Converts a row with missing keys, which are null; an unknown key needs a closer check."""
        if type(row) is not dict or len(row) == len(self._names) or not row.keys() <= self._names:
            return None
        converted: Row | None = self._convert_complete({name: row.get(name) for name in self._schema.names})
        return converted
