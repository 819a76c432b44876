"""What people write: operators and methods that build expression nodes.

`Expr` is the base of every node and decides nothing: types follow from each node's `signature`, values from
the lowerings. Node classes are reached through the package, because they are subclasses of this one.
Some methods are named like builtins, hence `builtins.str` in the annotations.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import ClassVar, NoReturn

import numpy as np
import pyarrow as pa

from penstock import expr as nodes
from penstock.errors import GraphError
from penstock.expr.node import Node, method_text
from penstock.frozen import dataclass

_USE_OPERATORS = 'combine conditions with & | ~ and parentheses: (col("a") > 1) & (col("b") > 2)'


class Expr(Node):
    """A value computed from the columns of one row; build one with `col`, `lit` and operators."""

    __slots__ = ()
    # NumPy must not take `np.int64(2) * col("a")` for an array of one object.
    __array_ufunc__: ClassVar[None] = None

    __hash__ = Node.__hash__  # defining == would take it away

    def __add__(self, other: object) -> Expr:
        if isinstance(other, str | timedelta):
            return nodes.Shift(self, nodes.shift_micros(other))
        return nodes.Add(self, nodes.to_expr(other))

    def __radd__(self, other: object) -> Expr:
        return self + other if isinstance(other, str | timedelta) else nodes.Add(nodes.to_expr(other), self)

    def __sub__(self, other: object) -> Expr:
        if isinstance(other, str | timedelta):
            return nodes.Shift(self, -nodes.shift_micros(other))
        return nodes.Subtract(self, nodes.to_expr(other))

    def __rsub__(self, other: object) -> Expr:
        return nodes.Subtract(nodes.to_expr(other), self)

    def __mul__(self, other: object) -> Expr:
        return nodes.Multiply(self, nodes.to_expr(other))

    def __rmul__(self, other: object) -> Expr:
        return nodes.Multiply(nodes.to_expr(other), self)

    def __truediv__(self, other: object) -> Expr:
        return nodes.Divide(self, nodes.to_expr(other))

    def __rtruediv__(self, other: object) -> Expr:
        return nodes.Divide(nodes.to_expr(other), self)

    def __floordiv__(self, other: object) -> Expr:
        return nodes.FloorDivide(self, nodes.to_expr(other))

    def __rfloordiv__(self, other: object) -> Expr:
        return nodes.FloorDivide(nodes.to_expr(other), self)

    def __mod__(self, other: object) -> Expr:
        return nodes.Modulo(self, nodes.to_expr(other))

    def __rmod__(self, other: object) -> Expr:
        return nodes.Modulo(nodes.to_expr(other), self)

    def __pow__(self, other: object) -> Expr:
        return nodes.Power(self, nodes.to_expr(other))

    def __rpow__(self, other: object) -> Expr:
        return nodes.Power(nodes.to_expr(other), self)

    def __neg__(self) -> Expr:
        return nodes.Negate(self)

    def __abs__(self) -> Expr:
        return nodes.Absolute(self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]  # builds a comparison, as PySpark and Polars do
        return nodes.Equal(self, nodes.to_expr(other))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]  # as above
        return nodes.NotEqual(self, nodes.to_expr(other))

    def __lt__(self, other: object) -> Expr:
        return nodes.Less(self, nodes.to_expr(other))

    def __le__(self, other: object) -> Expr:
        return nodes.LessEqual(self, nodes.to_expr(other))

    def __gt__(self, other: object) -> Expr:
        return nodes.Greater(self, nodes.to_expr(other))

    def __ge__(self, other: object) -> Expr:
        return nodes.GreaterEqual(self, nodes.to_expr(other))

    def __and__(self, other: object) -> Expr:
        return nodes.And(self, _condition(other, "&", self))

    def __rand__(self, other: object) -> Expr:
        return nodes.And(_condition(other, "&", self), self)

    def __or__(self, other: object) -> Expr:
        return nodes.Or(self, _condition(other, "|", self))

    def __ror__(self, other: object) -> Expr:
        return nodes.Or(_condition(other, "|", self), self)

    def __invert__(self) -> Expr:
        return nodes.Not(self)

    def __bool__(self) -> NoReturn:
        raise GraphError(
            f"{self} is not true or false before a row is there",
            detail="`and`, `or`, `not`, `if` and chains such as 1 < x < 2 ask for an answer at once",
            hint=f"{_USE_OPERATORS}; for a range use .between(1, 2); for a choice use when(...).then(...)",
        )

    def __contains__(self, item: object) -> NoReturn:
        raise GraphError(
            f"`in` cannot look into {self} before a row is there",
            hint=f"for text use .str.contains({item!r}); for one of several values use .is_in([...])",
        )

    def __iter__(self) -> Iterator[NoReturn]:
        raise GraphError(
            f"{self} is one value per row and cannot be iterated over",
            hint="give several expressions one by one, or make rows of a list with flat_map",
        )

    def abs(self) -> Expr:
        """Return the value without its sign; the least integer has none and fails the row."""
        return nodes.Absolute(self)

    def round(self, digits: int = 0) -> Expr:
        """Round to `digits` decimals, halves to even; floats become float64."""
        return nodes.Round(self, digits)

    def floor(self) -> Expr:
        """Round down to a whole number; the type stays."""
        return nodes.Floor(self)

    def ceil(self) -> Expr:
        """Round up to a whole number; the type stays."""
        return nodes.Ceil(self)

    def sqrt(self) -> Expr:
        """Return the square root as float64; of a negative number NaN."""
        return nodes.Sqrt(self)

    def between(self, low: object, high: object) -> Expr:
        """Return whether low <= value <= high."""
        return nodes.Between(self, nodes.to_expr(low), nodes.to_expr(high))

    def is_in(self, values: Iterable[object]) -> Expr:
        """Return whether the value equals one of the given ones, which may not include None."""
        return nodes.IsIn(self, nodes.to_literals(values))

    def is_null(self) -> Expr:
        """Return whether the value is null."""
        return nodes.IsNull(self)

    def is_not_null(self) -> Expr:
        """Return whether the value is not null."""
        return nodes.IsNotNull(self)

    def is_nan(self) -> Expr:
        """Return whether the value is NaN; null for null."""
        return nodes.IsNan(self)

    def fill_null(self, value: object) -> Expr:
        """Return the value, or the given one where it is null."""
        return nodes.FillNull(self, nodes.to_expr(value))

    def cast(self, type: pa.DataType | builtins.str) -> Expr:
        """Return the value as another type; what does not fit fails the row."""
        return nodes.Cast(self, nodes.cast_target(type))

    def field(self, name: builtins.str) -> Expr:
        """Return one field of a struct."""
        return nodes.Field(self, name)

    def json(self, path: builtins.str, type: pa.DataType | builtins.str) -> Expr:
        """Return one scalar out of JSON text, at a path such as "user.id" or "items[0].price"."""
        return nodes.JsonValue(self, path, nodes.json_target(path, type))

    @property
    def str(self) -> nodes.Strings:
        """Functions of text."""
        return nodes.Strings(self)

    @property
    def list(self) -> nodes.Lists:
        """Functions of lists."""
        return nodes.Lists(self)

    @property
    def dt(self) -> nodes.Times:
        """Functions of dates and timestamps."""
        return nodes.Times(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MethodCall(Expr):
    """A node that is written as a method of its first child: `col("a").abs()`."""

    child: Node

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the call as one would type it."""
        return method_text(self.child, parts[0], self._call_text(*parts[1:]))

    def _call_text(self, *arguments: str) -> str:
        """Return the part after the dot, given the text of the other children."""
        raise NotImplementedError(type(self).__name__)


def _condition(other: object, operator: str, partner: Expr) -> Expr:
    """Lift one side of & or |, and catch `col("a") > 1 & col("b") > 2`, where & takes the 1."""
    if isinstance(other, Expr | bool) or other is None or isinstance(other, np.bool_):
        return nodes.to_expr(other)
    raise GraphError(
        f"{other!r} {operator} {partner} does not join two conditions",
        detail=f"{operator} binds more tightly than == < >",
        hint=_USE_OPERATORS,
    )
