"""Users' functions and expressions as calls on one row, on the run's own copies of callable objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from penstock.engines.reference.faults import Blame
from penstock.expr import Expr, lower_python
from penstock.expr.failure import RowFailure
from penstock.expr.types import from_python
from penstock.operators.calling import own_copy
from penstock.operators.function import BatchFunction, Expressions, RowFunction
from penstock.operators.row import Row, plain_row

Values = Mapping[str, object]


def blame(function: Expr | Expressions | BatchFunction | RowFunction) -> Blame:
    """Whom to name when it fails. An expression fails a row in one way only; a function in any."""
    if isinstance(function, Expr | Expressions):
        return Blame(f"expression {function}", catches=RowFailure)
    return Blame(f"function {function.name}", function.where)


def mapping(
    function: Expressions | RowFunction, up: pa.Schema, down: pa.Schema
) -> Callable[[Values], Values]:
    """One row out for one row in: columns added or replaced, or the function's whole row."""
    if isinstance(function, Expressions):
        parts = [(name, lower_python(expr, up)) for name, expr in function.columns]
        return lambda values: {**values, **{name: part(values) for name, part in parts}}
    call = own_copy(function.call)
    return lambda values: plain_row(call(Row(values, up)), down)


def predicate(function: Expr | RowFunction, up: pa.Schema) -> Callable[[Values], bool]:
    """Whether something is true of a row; null is not true."""
    if isinstance(function, Expr):
        lowered = lower_python(function, up)
        return lambda values: lowered(values) is True
    call = own_copy(function.call)
    return lambda values: truth(call(Row(values, up)))


def truth(given: object) -> bool:
    """What a predicate gave: True, False or None; anything else fails the row."""
    try:
        return from_python(given, pa.bool_()) is True
    except RowFailure:
        raise RowFailure(f"gave {given!r:.80}, not True or False") from None


def several(
    function: Expressions | RowFunction, up: pa.Schema, down: pa.Schema
) -> Callable[[Values], list[Values]]:
    """Any number of rows out for one row in: a list's elements, or what the function gives."""
    if isinstance(function, Expressions):
        ((name, expr),) = function.columns
        lowered = lower_python(expr, up)
        return lambda values: [{**values, name: part} for part in listed(lowered(values))]
    call = own_copy(function.call)
    return lambda values: plain_rows(call(Row(values, up)), down)


def listed(value: object) -> list[object]:
    """The elements of a list; a null list has none."""
    assert value is None or isinstance(value, list), "the type rule of flat_map wants a list"
    return value or []


def plain_rows(given: object, schema: pa.Schema) -> list[Values]:
    """An iterable of rows as plain values; RowFailure when it is none, or when one of them does not fit."""
    if is_one_row(given) or isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise RowFailure(f"gave {type(given).__name__} {given!r:.80}, not an iterable of rows")
    return [plain_row(each, schema) for each in given]


def is_one_row(given: object) -> bool:
    """Whether a function gave one row, and not an iterable of rows."""
    return (
        isinstance(given, Row | Mapping)
        or hasattr(given, "_asdict")
        or hasattr(given, "__dataclass_fields__")
    )
