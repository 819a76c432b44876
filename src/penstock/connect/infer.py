"""The schema of rows without a declared one, inferred from all of their values.

Inference refuses to guess: a column of only nulls, or of values that share no type, is an
error that names the rows. Whole numbers beside fractions make a float64 column; strings stay strings, even
if they look like times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

from penstock.connect.conversion import fields_of
from penstock.errors import SchemaError
from penstock.expr.types import parse_schema

_SIMPLE: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
}
_DECLARE = 'say the types: schema={"price": "float64", …}'


def infer_schema(rows: Sequence[object]) -> pa.Schema:
    """Returns the schema of the rows: from the annotations of their one class, else from every value."""
    if not rows:
        raise SchemaError("there are no rows to take a schema from", hint=_DECLARE)
    classes = {type(row) for row in rows}
    if len(classes) == 1 and not isinstance(rows[0], Mapping) and fields_of(rows[0]) is not None:
        return parse_schema(classes.pop())
    columns: dict[str, list[tuple[int, object]]] = {}
    for position, row in enumerate(rows):
        for name, value in _fields(row, position).items():
            columns.setdefault(name, []).append((position, value))
    types: dict[str, pa.DataType] = {}
    for name, values in columns.items():
        try:
            types[name] = _type_of(name, values)
        except RecursionError:
            raise SchemaError(
                f'column "{name}" holds values nested too deep, or one that holds itself',
                hint="give lists and dicts of a few levels",
            ) from None
    return parse_schema(types)


def _fields(row: object, position: int) -> Mapping[str, object]:
    fields = fields_of(row)
    if fields is None:
        raise SchemaError(
            f"row {position} is {type(row).__name__} {row!r:.80}, not a row",
            hint='give dicts, dataclass instances or NamedTuples: {"price": 1.5}',
        )
    return fields


def _type_of(name: str, values: Iterable[tuple[int, object]]) -> pa.DataType:
    """Returns the one type of a column; `values` come with the number of their row, which errors name."""
    present = [(at, value.item() if isinstance(value, np.generic) else value) for at, value in values]
    present = [(at, value) for at, value in present if value is not None]
    if not present:
        raise SchemaError(f'column "{name}" holds only nulls, so its type is unknown', hint=_DECLARE)
    first_of: dict[str, tuple[int, object]] = {}
    for at, value in present:
        first_of.setdefault(_kind(value, name, at), (at, value))
    if set(first_of) == {"int", "float"}:
        return pa.float64()
    if len(first_of) > 1:
        (_, (at, one)), (_, (other_at, other)) = list(first_of.items())[:2]
        raise SchemaError(
            f'column "{name}" holds values of different types',
            detail=f"row {at}: {_show(one)}; row {other_at}: {_show(other)}",
            hint=_DECLARE,
        )
    return _type_of_kind(name, next(iter(first_of)), present)


def _kind(value: object, name: str, at: int) -> str:
    if isinstance(value, datetime):
        return "aware datetime" if value.tzinfo else "datetime"
    if isinstance(value, list | tuple | np.ndarray) and not hasattr(value, "_fields"):
        return "list"
    if fields_of(value) is not None:
        return "struct"
    if isinstance(value, Decimal) and value.is_finite():
        return "decimal"
    for known in _SIMPLE:
        if isinstance(value, known):
            return known.__name__
    raise SchemaError(f'column "{name}" cannot hold {_show(value)} (row {at})', hint=_DECLARE)


def _type_of_kind(name: str, kind: str, present: list[tuple[int, object]]) -> pa.DataType:
    if kind == "datetime":
        return pa.timestamp("us")
    if kind == "aware datetime":
        return pa.timestamp("us", "UTC")
    if kind == "decimal":
        return _decimal_type([value for _, value in present if isinstance(value, Decimal)])
    if kind == "list":
        items = [(at, item) for at, value in present for item in _items(value)]
        return pa.list_(_type_of(f"{name}[]", items))
    if kind == "struct":
        inner: dict[str, list[tuple[int, object]]] = {}
        for at, value in present:
            for key, item in (fields_of(value) or {}).items():
                inner.setdefault(key, []).append((at, item))
        return pa.struct([(key, _type_of(f"{name}.{key}", values)) for key, values in inner.items()])
    return next(arrow for known, arrow in _SIMPLE.items() if known.__name__ == kind)


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple | np.ndarray) else ()


def _decimal_type(values: Sequence[Decimal]) -> pa.DataType:
    scale = max(0, *(-int(value.as_tuple().exponent) for value in values))
    whole = max(1, *(value.adjusted() + 1 for value in values))
    return pa.decimal128(min(38, whole + scale), scale)


def _show(value: object) -> str:
    return f"{type(value).__name__} {value!r:.40}"
