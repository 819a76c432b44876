"""Rows of one schema on their way into and out of a user's function, quickly.

The answers are those of `operators/row.py`, whose `plain_row` looks at whatever is not plainly of its type:
here is only left out what need not be asked again for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass

import pyarrow as pa

from penstock.expr.values import integer_range
from penstock.operators.row import Row, plain_row
from penstock.stages.batch import columns_of
from penstock.stages.user_calls import Plain

Check = Callable[[object], bool]
"""Whether a value is plainly of a column's type, so that it is its own plain value."""


def _whole(type_: pa.DataType) -> Check:
    low, high = integer_range(type_)
    return lambda value: type(value) is int and low <= value <= high


_CHECKS: dict[pa.DataType, Check] = {
    pa.bool_(): lambda value: type(value) is bool,
    pa.float64(): lambda value: type(value) is float,
    pa.string(): lambda value: type(value) is str and value.isascii(),
    pa.binary(): lambda value: type(value) is bytes,
    **{type_: _whole(type_) for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
}


def row_class(schema: pa.Schema) -> Callable[[Plain, pa.Schema], Row]:
    """A Row for one schema: columns whose values users see as they are stored are found at once."""
    plain = frozenset(field.name for field in schema if field.type in _CHECKS)
    look_up = Row.__getitem__

    def item(row: Row, name: str) -> object:
        return row._values[name] if name in plain else look_up(row, name)

    names = [name for name in plain if name.isidentifier() and not name.startswith("_")]
    space: dict[str, object] = {name: _column(name) for name in names if not hasattr(Row, name)}
    space |= {"__slots__": (), "__init__": _begin, "__getitem__": item}
    return type("Row", (Row,), space)


# The slots themselves: rows are read only, and this is quicker than to go round that by name.
_PUT_VALUES, _PUT_SCHEMA = Row.__dict__["_values"].__set__, Row.__dict__["_schema"].__set__


def _begin(row: Row, values: Plain, schema: pa.Schema) -> None:
    _PUT_VALUES(row, values)
    _PUT_SCHEMA(row, schema)


def plainly(type_: pa.DataType) -> Check:
    """Whether a value is plainly of a type; never, where that takes a closer look."""
    return _CHECKS.get(type_, _never)


def _column(name: str) -> property:
    return property(lambda row: row._values[name])


class RowShape:
    """What a function of rows gives: plain rows of one schema, and batches of them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names = frozenset(schema.names)
        self._checks = [(field.name, _CHECKS.get(field.type, _never)) for field in schema]
        self._whole: dict[type, bool] = {}  # dataclasses: whether they have these fields and no others

    def plain(self, given: object) -> Plain:
        """What a function gave, as plain values; RowFailure when it does not fit."""
        found: Plain | None = None
        if type(given) is dict and given.keys() == self._names:
            found = given
        elif self._is_whole(type(given)):
            found = {name: getattr(given, name) for name in self._schema.names}
        if found is None:
            return plain_row(given, self._schema)
        made = {}
        for name, is_plain in self._checks:
            value = found[name]
            if value is not None and not is_plain(value):
                return plain_row(given, self._schema)
            made[name] = value
        return made

    def columns(self, rows: Sequence[Plain]) -> pa.RecordBatch:
        """Rows of plain values as a batch."""
        return columns_of(rows, self._schema)

    def _is_whole(self, given: type) -> bool:
        if given not in self._whole:
            named = frozenset(field.name for field in fields(given)) if is_dataclass(given) else None
            self._whole[given] = named == self._names
        return self._whole[given]


def _never(value: object) -> bool:
    return False


def exact(type_: pa.DataType) -> bool:
    """Whether values that are equal always look the same: not so with zeros, NaN and decimals."""
    return type_ in _CHECKS and not pa.types.is_floating(type_)
