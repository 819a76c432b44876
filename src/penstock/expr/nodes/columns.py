"""Columns and literals: the leaves of every expression."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

from penstock.errors import RowFailure, SchemaError
from penstock.expr.node import is_nonempty_text
from penstock.expr.signature import Operand, Signature
from penstock.expr.surface import Expr
from penstock.expr.types import parse_type
from penstock.expr.values import (
    days_of,
    from_python,
    integer_range,
    microseconds_of,
    to_python,
    type_name,
    unwrap_scalar,
)
from penstock.frozen import dataclass

_LITERALS = "a literal is None, bool, int, float, str, bytes, Decimal, datetime or date"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Column(Expr):
    """The value of one column."""

    name: str

    def reads(self) -> frozenset[str]:
        """Return the column's name."""
        return frozenset((self.name,))

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `col("a")`."""
        return f"col({quote(self.name)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Expr):
    """One plain value for every row; `free` when it may take the type of what it meets."""

    value: object
    type: pa.DataType
    free: bool

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Return the literal's own type."""
        return Signature((), self.type)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text: `1`, `"view"`, or `lit(1, "int8")` where the type was declared."""
        text = _show(self.value, self.type)
        return text if self.free else f'lit({text}, "{type_name(self.type)}")'

    def standalone_text(self, text: str) -> str:
        """Return `lit(1)`, because a bare literal is no expression in Python."""
        return f"lit({text})" if self.free else text


def col(name: str) -> Expr:
    """Return the column of that name.

    >>> col("price") * 2
    col("price") * 2
    """
    if not is_nonempty_text(name):
        raise SchemaError(f"{name!r} cannot name a column", hint='name it by a string: col("price")')
    return Column(name)


def lit(value: object, type: pa.DataType | str | None = None) -> Expr:
    """Return a literal: the same value for every row. Without a type it takes that of the column it meets.

    >>> lit(1, "int8")
    lit(1, "int8")
    """
    if isinstance(value, Expr):
        raise SchemaError(f"{value} is already an expression", hint=f"use it as it is: {value}")
    if type is None:
        return _untyped_literal(unwrap_scalar(value) if isinstance(value, np.generic) else value)
    wanted = parse_type(type)
    try:
        return Literal(from_python(value, wanted), wanted, free=False)
    except RowFailure as failure:
        raise SchemaError(failure.reason, hint="give a value of the type, or leave the type out") from None


def to_expr(value: object) -> Expr:
    """Return the expression itself, or the literal of a Python value."""
    return value if isinstance(value, Expr) else lit(value)


def _untyped_literal(value: object) -> Literal:
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = integer_range(pa.int64())
        if not low <= value <= high:
            raise SchemaError(f"{value} does not fit in int64", hint=f"use a float: {value!r}.0")
    if isinstance(value, datetime):
        return Literal(microseconds_of(value), pa.timestamp("us", "UTC" if value.tzinfo else None), free=True)
    if isinstance(value, date):
        return Literal(days_of(value), pa.date32(), free=True)
    if isinstance(value, Decimal):
        return Literal(value, _decimal_type(value), free=True)
    for python_type, type in _BY_TYPE:
        if isinstance(value, python_type):
            return Literal(value, type, free=True)
    raise SchemaError(f"{value!r:.80} cannot be a literal", detail=_LITERALS, hint=_hint_for(value))


_BY_TYPE: tuple[tuple[type, pa.DataType], ...] = (
    (type(None), pa.null()),
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
    (bytes, pa.binary()),
)


def _decimal_type(value: Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) + max(exponent, 0) > 38 or -exponent > 38:
        raise SchemaError(f"{value} does not fit in a decimal of 38 digits", hint="use a float")
    scale = max(-exponent, 0)
    return pa.decimal128(max(len(digits) + max(exponent, 0), scale, 1), scale)


def _hint_for(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return "to compare with several values use .is_in([...])"
    return "compute it in a row function instead"


def _show(value: object, type: pa.DataType) -> str:
    if isinstance(value, str):
        return quote(value)
    try:
        return repr(to_python(value, type))
    except RowFailure:  # a time that datetime cannot show
        return repr(value)


def quote(text: str) -> str:
    """Return the text in double quotes, escaped as Python and JSON both read it."""
    return (
        '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
    )
