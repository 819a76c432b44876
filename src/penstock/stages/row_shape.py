"""Rows of one schema on their way into and out of a user's function, quickly.

The answers are those of `operators/row.py`, whose `plain_row` looks at whatever is not plainly of its type:
here is only left out what need not be asked again for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.expr.plainly import is_plain_type, looked_at
from penstock.operators.row import Row, plain_row
from penstock.stages.batch import columns_of
from penstock.stages.user_calls import Plain

new = object.__new__


class RowKind(NamedTuple):
    """Rows of one schema, as users see them: `row = new(kind)`, then `put(row, values)` with a dict."""

    kind: type[Row]
    put: Callable[[Row, Plain], None]

    def row(self, values: Plain) -> Row:
        """A row of these values."""
        row: Row = new(self.kind)
        self.put(row, values)
        return row


def row_kind(schema: pa.Schema) -> RowKind:
    """Rows of a schema: columns whose values users see as they are stored are found at once.

    The values become the row's own attributes, so that reading one is no call. Not so where a column has the
    name of something that a row has itself.
    """
    plain = frozenset(field.name for field in schema if is_plain_type(field.type))
    look_up = Row.__getitem__

    def item(row: Row, name: str) -> object:
        return row._values[name] if name in plain else look_up(row, name)

    space: dict[str, object] = {"_schema": schema, "__getitem__": item}
    if any(hasattr(Row, name) for name in schema.names):
        return RowKind(type("Row", (Row,), {"__slots__": (), **space}), vars(Row)["_values"].__set__)
    space |= {name: _column(name) for name in schema.names if name not in plain}
    kind = type("Row", (Row,), {"_values": property(vars), **space})
    return RowKind(kind, vars(kind)["__dict__"].__set__)


def row_class(schema: pa.Schema) -> Callable[[Plain], Row]:
    """What makes rows of a schema."""
    return row_kind(schema).row


def _column(name: str) -> property:
    """A column that is not stored as users see it."""
    return property(lambda row: row[name])


def mapped(call: Callable[[Row], object], kind: RowKind, shape: RowShape) -> Callable[[Plain], Plain]:
    """A function of rows as one of plain values, with as few calls in it as can be."""
    space = {"call": call, "new": new, "kind": kind.kind, "put": kind.put}
    return looked_at(shape.schema, shape.of_any, "row = new(kind); put(row, given); given = call(row)", space)


class RowShape:
    """What a function of rows gives: plain rows of one schema, and batches of them.

    plain  what a function gave, as plain values; RowFailure when it does not fit
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names = frozenset(schema.names)
        self._whole: dict[type, bool] = {}  # dataclasses: whether they have these fields and no others
        self._of_dict = looked_at(schema, lambda given: plain_row(given, schema))
        self.plain: Callable[[object], Plain] = looked_at(schema, self.of_any)

    def columns(self, rows: Sequence[Plain]) -> pa.RecordBatch:
        """Rows of plain values as a batch."""
        return columns_of(rows, self.schema)

    def of_any(self, given: object) -> Plain:
        """The same, after a glance that was not enough."""
        if self._is_whole(type(given)):
            found: Plain = self._of_dict({name: getattr(given, name) for name in self.schema.names})
            return found
        return plain_row(given, self.schema)

    def _is_whole(self, given: type) -> bool:
        if given not in self._whole:
            named = frozenset(field.name for field in fields(given)) if is_dataclass(given) else None
            self._whole[given] = named == self._names
        return self._whole[given]


def exact(type_: pa.DataType) -> bool:
    """Whether values that are equal always look the same: not so with zeros, NaN and decimals."""
    return is_plain_type(type_) and not pa.types.is_floating(type_)
