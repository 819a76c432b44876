"""Few rows at a time, as plain values: no columns are made before somebody asks for them.

A batch of one row as columns costs more to make than a Python function costs to call. May assume canonical
schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.connect.protocol import SourceBatch
from penstock.expr.values import from_checked, integer_range

FEW = 1024
"""Rows that stay plain; of more, columns are worth making at once."""

Plain = Mapping[str, object]


class PlainBatch(SourceBatch):
    """A batch without bad rows whose rows are plain values, each with all columns in their order.

    start  the reader's number of the first row
    """

    __slots__ = ("_columns", "_schema", "plain", "start")
    plain: Sequence[Plain]
    start: int
    _schema: pa.Schema
    _columns: pa.RecordBatch | None

    def __init__(
        self, plain: Sequence[Plain], schema: pa.Schema, start: int, watermark: int | None = None
    ) -> None:
        put = object.__setattr__  # frozen as its kind is
        put(self, "plain", plain)
        put(self, "start", start)
        put(self, "_schema", schema)
        put(self, "_columns", None)
        put(self, "watermark", watermark)
        put(self, "bad", ())

    @property
    def rows(self) -> pa.RecordBatch:
        """The columns."""
        if self._columns is None:
            named = [(field, [row[field.name] for row in self.plain]) for field in self._schema]
            columns = [from_checked(values, field.type) for field, values in named]
            object.__setattr__(self, "_columns", pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return self._columns

    @property
    def num_rows(self) -> int:
        """How many."""
        return len(self.plain)

    def promising(self, watermark: int) -> PlainBatch:
        """The same with a promise of the source."""
        return PlainBatch(self.plain, self._schema, self.start, watermark)

    @property
    def seq(self) -> pa.Int64Array:
        """Numbers from the first row's on."""
        return pa.array(np.arange(self.start, self.start + len(self.plain), dtype=np.int64))


class PlainRows:
    """Rows of one schema, looked at one by one."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._names = schema, frozenset(schema.names)
        self._checks = [(field.name, _check(field.type)) for field in schema]

    def batch(self, given: Sequence[object], start: int) -> PlainBatch | None:
        """The rows as they are; None where one needs a closer look."""
        rows = []
        for row in given:
            if type(row) is not dict or not row.keys() <= self._names:
                return None
            plain = {}
            for name, fits in self._checks:
                value = row.get(name)
                if value is not None and not fits(value):
                    return None
                plain[name] = value
            rows.append(plain)
        return PlainBatch(rows, self._schema, start)


def _check(type_: pa.DataType) -> Callable[[object], bool]:
    """Whether a value is plainly of a type, so that it is its own plain value."""
    if pa.types.is_signed_integer(type_):
        low, high = integer_range(type_)
        return lambda value: type(value) is int and low <= value <= high
    if pa.types.is_string(type_):
        return lambda value: type(value) is str and value.isascii()
    if pa.types.is_float64(type_):
        return lambda value: type(value) is float
    if pa.types.is_boolean(type_):
        return lambda value: type(value) is bool
    return lambda value: False
