"""The forms of expressions: columns, literals, operators, and calls of methods and functions.

Spark SQL is for what this language does not say, and is refused by every other engine before a run. The text
is the program's own, never put together from data; Penstock inserts nothing into it.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import RowFailure, SchemaError
from penstock.expr import values
from penstock.expr.node import Expr, Node, method_text, operand_text
from penstock.expr.types import BY_PYTHON_TYPE, parse_type

_LITERALS = "a literal is None, bool, int, float, str, bytes, Decimal, datetime or date"


class Column(Expr):
    """The value of one column."""

    name: str

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `col("a")`."""
        return f"col({quote(self.name)})"


class Literal(Expr):
    """One plain value for every row; `free` when it may take the type of what it meets."""

    value: object
    type: pa.DataType
    free: bool

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text: `1`, `"view"`, or `lit(1, "int8")` where the type was declared."""
        value = self.value
        try:
            text = quote(value) if isinstance(value, str) else repr(values.to_python(value, self.type))
        except RowFailure:  # a time that datetime cannot show
            text = repr(value)
        return text if self.free else f'lit({text}, "{values.type_name(self.type)}")'

    def standalone_text(self, text: str) -> str:
        """Return `lit(1)`, because a bare literal is no expression in Python."""
        return f"lit({text})" if self.free else text


class SparkSql(Expr):
    """Spark SQL text with the type that it gives, which only Spark could check."""

    sql: str
    type: pa.DataType

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `spark_expr("soundex(name)", "string")`."""
        import json  # every program loads this file, and few have such an expression

        return f'spark_expr({json.dumps(self.sql, ensure_ascii=False)}, "{values.type_name(self.type)}")'


class UnaryOperator(Expr):
    """An operator before its operand."""

    child: Expr
    operator: ClassVar[str]
    precedence: ClassVar[int] = 7

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `-col("a")`."""
        operand = operand_text(self.child, self.child.standalone_text(parts[0]), self.precedence)
        return f"{self.operator}{operand}"


class BinaryOperator(Expr):
    """An operator between its operands.

    groups  the side on which an operand that binds as tightly needs no parentheses: "left", "right" or ""
    """

    left: Expr
    right: Expr
    operator: ClassVar[str]
    groups: ClassVar[str] = "left"

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, with parentheses where Python needs them: `(a + b) * 2`."""
        left = operand_text(self.left, parts[0], self.precedence + (self.groups != "left"))
        right = operand_text(self.right, parts[1], self.precedence + (self.groups != "right"))
        return f"{left} {self.operator} {right}"


class MethodCall(Expr):
    """A method of the first child, whose other fields are its arguments: `col("a").str.contains("b")`.

    accessor  where the method is found: "str." for functions of text
    """

    child: Node
    method: ClassVar[str]
    accessor: ClassVar[str] = ""

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the call as one would type it."""
        call = f"{self.accessor}{self.method}({self.arguments(*parts[1:])})"
        return method_text(self.child, parts[0], call)

    def arguments(self, *texts: str) -> str:
        """Return what stands between the parentheses, given the text of the other children."""
        names: tuple[str, ...] = self.__match_args__
        fields = [getattr(self, name) for name in names[1:]]
        own = [_show_argument(value) for value in fields if value is not None and not isinstance(value, Node)]
        return ", ".join([*texts, *own])


class FunctionCall(Expr):
    """A function of any number of expressions."""

    parts: tuple[Expr, ...]
    function: ClassVar[str]

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `coalesce(col("a"), col("b"))`."""
        return f"{self.function}({', '.join(parts)})"


def col(name: str) -> Expr:
    """Return the column of that name.

    >>> col("price") * 2
    col("price") * 2
    """
    if not isinstance(name, str) or not name:
        raise SchemaError(f"{name!r} cannot name a column", hint='name it by a string: col("price")')
    return Column(name)


def lit(value: object, type: pa.DataType | str | None = None) -> Expr:
    """Return a literal: the same value for every row. Without a type it takes that of the column it meets.

    >>> lit(1, "int8")
    lit(1, "int8")
    """
    if isinstance(value, Expr):
        raise SchemaError(f"{value} is already an expression", hint=f"use it as it is: {value}")
    if type is not None:
        wanted = parse_type(type)
        try:
            return Literal(values.from_python(value, wanted), wanted, free=False)
        except RowFailure as failure:
            hint = "give a value of the type, or leave the type out"
            raise SchemaError(failure.reason, hint=hint) from None
    value = values.unwrap_scalar(value) if isinstance(value, np.generic) else value
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = values.integer_range(pa.int64())
        if not low <= value <= high:
            raise SchemaError(f"{value} does not fit in int64", hint=f"use a float: {value!r}.0")
    if isinstance(value, datetime):
        return Literal(
            values.microseconds_of(value), pa.timestamp("us", "UTC" if value.tzinfo else None), free=True
        )
    if isinstance(value, date):
        return Literal(values.days_of(value), pa.date32(), free=True)
    if isinstance(value, Decimal):
        return Literal(value, _decimal_type(value), free=True)
    if value is None:
        return Literal(None, pa.null(), free=True)
    for python_type, own_type in BY_PYTHON_TYPE.items():
        if isinstance(value, python_type):
            return Literal(value, own_type, free=True)
    hint = "compute it in a row function instead"
    if isinstance(value, list | tuple | set | frozenset):
        hint = "to compare with several values use .is_in([...])"
    raise SchemaError(f"{value!r:.80} cannot be a literal", detail=_LITERALS, hint=hint)


def spark_expr(sql: str, type: object) -> Expr:
    """Return an expression in Spark SQL with its declared type, which runs on Spark only.

    >>> spark_expr("soundex(name)", "string")
    spark_expr("soundex(name)", "string")
    """
    if not isinstance(sql, str) or not sql.strip():
        raise SchemaError(f"spark_expr({sql!r}) is no SQL", hint='spark_expr("soundex(name)", "string")')
    return SparkSql(sql, parse_type(type))


def to_expr(value: object) -> Expr:
    """Return the expression itself, or the literal of a Python value."""
    return value if isinstance(value, Expr) else lit(value)


def _decimal_type(value: Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) + max(exponent, 0) > 38 or -exponent > 38:
        raise SchemaError(f"{value} does not fit in a decimal of 38 digits", hint="use a float")
    scale = max(-exponent, 0)
    return pa.decimal128(max(len(digits) + max(exponent, 0), scale, 1), scale)


def _show_argument(value: object) -> str:
    if isinstance(value, pa.DataType):
        return f'"{values.type_name(value)}"'
    return quote(value) if isinstance(value, str) else repr(value)


def quote(text: str) -> str:
    """Return the text in double quotes, escaped as Python and JSON both read it."""
    return (
        '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
    )
