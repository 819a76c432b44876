"""Null: asking for it, and replacing it.

`coalesce` and `fill_null` take the first value that is not null; what comes after it is not looked at, so
a failure there is no failure. A failure before it is one.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.columns import lift
from penstock.expr.node import Sees, method
from penstock.expr.signature import BOOL, Operand, Signature, common, need
from penstock.expr.surface import Expr
from penstock.frozen import dataclass

_HINT = "cast one of them, so that all have one type"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NullTest(Expr):
    """A question about one value of any type."""

    child: Expr
    name: ClassVar[str]
    sees: ClassVar[Sees] = Sees.NULLS

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Any type in, true or false out."""
        if kind.is_null(operands[0].type):
            common(self, operands, _HINT)
        return Signature((operands[0].type,), BOOL)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: col("a").is_null()."""
        return method(self.child, parts[0], f"{self.name}()")


class IsNull(NullTest):
    """Whether the value is null."""

    __slots__ = ()
    name = "is_null"


class IsNotNull(NullTest):
    """Whether the value is there."""

    __slots__ = ()
    name = "is_not_null"


class IsNan(NullTest):
    """Whether the value is NaN; null for null."""

    __slots__ = ()
    name = "is_nan"
    sees = Sees.VALUES

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """A float in, true or false out."""
        need(self, operands[0], kind.is_floating, "a float", "only floats can be NaN; use .is_null()")
        return NullTest.signature(self, operands)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FillNull(Expr):
    """The value, or the other where it is null."""

    child: Expr
    other: Expr
    sees: ClassVar[Sees] = Sees.FAILURES

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Both on their common type."""
        met = common(self, operands, _HINT)
        return Signature((met, met), met)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: col("a").fill_null(0)."""
        return method(self.child, parts[0], f"fill_null({parts[1]})")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coalesce(Expr):
    """The first value that is not null."""

    parts: tuple[Expr, ...]
    sees: ClassVar[Sees] = Sees.FAILURES

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """All on their common type."""
        met: pa.DataType = common(self, operands, _HINT)
        return Signature((met,) * len(operands), met)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: coalesce(col("a"), col("b"))."""
        return f"coalesce({', '.join(parts)})"


def coalesce(*expressions: object) -> Expr:
    """The first of the values that is not null.

    >>> from penstock.expr import col
    >>> coalesce(col("nick"), col("name"), "nobody")
    coalesce(col("nick"), col("name"), "nobody")
    """
    if not expressions:
        raise SchemaError("coalesce has nothing to choose from", hint='coalesce(col("a"), 0)')
    return Coalesce(tuple(lift(each) for each in expressions))
