"""Few rows at a time, as plain values: no columns are made before somebody asks for them.

A batch of one row as columns costs more to make than a Python function costs to call. May assume canonical
schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.connect.protocol import BadRow, SourceBatch
from penstock.expr.python.row_check import compile_row_check
from penstock.expr.values import from_checked, from_numpy

MAX_ROWS = 1024
"""Rows that stay plain; of more, columns are worth making at once."""

Row = Mapping[str, object]


class RowBatch(SourceBatch):
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
        _PUT_PLAIN(self, plain)
        _PUT_START(self, start)
        _PUT_SCHEMA(self, schema)
        _PUT_COLUMNS(self, None)
        _PUT_WATERMARK(self, watermark)

    @property
    def bad(self) -> tuple[BadRow, ...]:
        """There are none, so none are kept."""
        return ()

    @property
    def rows(self) -> pa.RecordBatch:
        """The columns."""
        if self._columns is None:
            named = [(field, [row[field.name] for row in self.plain]) for field in self._schema]
            columns = [from_checked(values, field.type) for field, values in named]
            _PUT_COLUMNS(self, pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return self._columns

    @property
    def num_rows(self) -> int:
        """How many."""
        return len(self.plain)

    def promising(self, watermark: int) -> RowBatch:
        """The same with a promise of the source."""
        return RowBatch(self.plain, self._schema, self.start, watermark)

    @property
    def seq(self) -> pa.Int64Array:
        """Numbers from the first row's on."""
        return from_numpy(np.arange(self.start, self.start + len(self.plain), dtype=np.int64))


# The slots themselves: batches are frozen, and this is quicker than to go round that by name.
_PUT_PLAIN, _PUT_START, _PUT_SCHEMA, _PUT_COLUMNS = (
    vars(RowBatch)[name].__set__ for name in ("plain", "start", "_schema", "_columns")
)
_PUT_WATERMARK = vars(SourceBatch)["watermark"].__set__


class RowConverter:
    """Rows of one schema, looked at one by one.

    look  a row as a dict of plain values; None where it needs a closer look
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._names = schema, frozenset(schema.names)
        self._complete = compile_row_check(schema, lambda row: None)
        self.look: Callable[[object], Row | None] = compile_row_check(schema, self._with_nulls)

    def batch(self, given: Sequence[object], start: int) -> RowBatch | None:
        """The rows as they are; None where one needs a closer look."""
        rows = [plain for plain in map(self.look, given) if plain is not None]
        return RowBatch(rows, self._schema, start) if len(rows) == len(given) else None

    def _with_nulls(self, row: object) -> Row | None:
        """A missing key is null; an unknown one needs a closer look."""
        if type(row) is not dict or len(row) == len(self._names) or not row.keys() <= self._names:
            return None
        found: Row | None = self._complete({name: row.get(name) for name in self._schema.names})
        return found
