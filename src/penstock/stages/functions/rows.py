"""Rows of one schema on their way into and out of a user's function, quickly.

The answers are those of `operators/row.py`, whose `plain_row` checks whatever is not plainly of its type.
Here only that is left out which need not be asked again for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.expr.python.row_check import compile_row_check, has_exact_check
from penstock.expr.values import to_plain
from penstock.operators.row import Row, plain_row
from penstock.stages.rows.batch import rows_to_columns
from penstock.stages.stage import PlainRow

new_object = object.__new__


def plain_rows_of(rows: pa.RecordBatch) -> list[dict[str, object]]:
    """Returns a batch, row by row, as plain values."""
    columns = [to_plain(column) for column in rows.columns]
    names = rows.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


class RowType(NamedTuple):
    """Rows of one schema, as users see them: `row = new_object(type)`, then `fill(row, values)`."""

    type: type[Row]
    fill: Callable[[Row, PlainRow], None]

    def row(self, values: PlainRow) -> Row:
        """Returns a row of these values, which must be in a dict."""
        row: Row = new_object(self.type)
        self.fill(row, values)
        return row


def row_type(schema: pa.Schema) -> RowType:
    """Returns the rows of a schema: columns whose values users see as they are stored are found at once.

    The values become the row's own attributes, so that reading one is no call. Not so where a column has the
    name of something that a row has itself.
    """
    plain = frozenset(field.name for field in schema if has_exact_check(field.type))
    look_up = Row.__getitem__

    def item(row: Row, name: str) -> object:
        return row._values[name] if name in plain else look_up(row, name)

    space: dict[str, object] = {"_schema": schema, "__getitem__": item}
    if any(hasattr(Row, name) for name in schema.names):
        return RowType(type("Row", (Row,), {"__slots__": (), **space}), vars(Row)["_values"].__set__)
    space |= {name: _converted_column(name) for name in schema.names if name not in plain}
    row_class = type("Row", (Row,), {"_values": property(vars), **space})
    return RowType(row_class, vars(row_class)["__dict__"].__set__)


def _converted_column(name: str) -> property:
    """Returns the attribute of a column that is not stored as users see it."""
    return property(lambda row: row[name])


def compile_map_step(
    call: Callable[[Row], object], rows: RowType, validator: RowValidator
) -> Callable[[PlainRow], PlainRow]:
    """Returns a function of rows as one of plain values, with as few calls in it as possible."""
    space = {"call": call, "new": new_object, "kind": rows.type, "put": rows.fill}
    body = "user_row = new(kind); put(user_row, row); row = call(user_row)"
    return compile_row_check(validator.schema, validator.check_any, body, space)


class RowValidator:
    """Checks what a function of rows returns: plain rows of one schema.

    plain  returns what a function returned as plain values; raises RowFailure when it does not fit
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names = frozenset(schema.names)
        self._has_all_fields: dict[type, bool] = {}  # dataclasses: whether they have just these fields
        self._check_dict = compile_row_check(schema, lambda returned: plain_row(returned, schema))
        self.plain: Callable[[object], PlainRow] = compile_row_check(schema, self.check_any)

    def columns(self, rows: Sequence[PlainRow]) -> pa.RecordBatch:
        """Returns rows of plain values as a batch."""
        return rows_to_columns(rows, self.schema)

    def check_any(self, returned: object) -> PlainRow:
        """Does what `plain` does, for what is not plainly a dict of the right types."""
        kind = type(returned)
        if kind not in self._has_all_fields:
            names = frozenset(field.name for field in fields(kind)) if is_dataclass(kind) else None
            self._has_all_fields[kind] = names == self._names
        if self._has_all_fields[kind]:
            row: PlainRow = self._check_dict({name: getattr(returned, name) for name in self.schema.names})
            return row
        return plain_row(returned, self.schema)


def is_exact_type(type_: pa.DataType) -> bool:
    """Returns whether equal values always look the same: not so with zeros, NaN and decimals."""
    return has_exact_check(type_) and not pa.types.is_floating(type_)
