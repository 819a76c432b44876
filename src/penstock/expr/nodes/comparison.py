"""Comparison, in one total order per type: NaN equals NaN and is greater than all, -0.0 equals 0.0.

Text is ordered by code points and binary by bytes. Values of different kinds cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import Node, operand_text
from penstock.expr.nodes.columns import Literal, to_expr
from penstock.expr.signature import BOOL, Operand, Signature, common_type, is_comparable, require_type
from penstock.expr.surface import Expr, MethodCall
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Expr):
    """Two operands of one kind and an operator between them."""

    left: Expr
    right: Expr
    operator: ClassVar[str]
    precedence: ClassVar[int] = 1

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Convert both operands to their common type; the result is a boolean."""
        met = _comparable(self, operands)
        return Signature((met, met), BOOL)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `col("a") > 1`."""
        left, right = (
            operand_text(c, p, self.precedence + 1) for c, p in zip(self.children(), parts, strict=True)
        )
        return f"{left} {self.operator} {right}"


class Equal(Comparison):
    """Whether both are equal."""

    operator = "=="


class NotEqual(Comparison):
    """Whether they differ."""

    operator = "!="


class Less(Comparison):
    """Whether left comes before right."""

    operator = "<"


class LessEqual(Comparison):
    """Whether left does not come after right."""

    operator = "<="


class Greater(Comparison):
    """Whether left comes after right."""

    operator = ">"


class GreaterEqual(Comparison):
    """Whether left does not come before right."""

    operator = ">="


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Between(MethodCall):
    """Whether low <= value <= high; null if any of the three is null."""

    low: Expr
    high: Expr

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Convert all three to their common type; the result is a boolean."""
        met = _comparable(self, operands)
        return Signature((met, met, met), BOOL)

    def _call_text(self, *arguments: str) -> str:
        return f"between({arguments[0]}, {arguments[1]})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsIn(MethodCall):
    """Whether the value equals one of the literals; null for null."""

    values: tuple[Literal, ...]

    def children(self) -> tuple[Node, ...]:
        """Return the value only, because the literals are not computed for every row."""
        return (self.child,)

    def own_fields(self) -> tuple[str, ...]:
        """Return the literals."""
        return tuple(value.text(()) for value in self.values)

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Convert the value to the common type of itself and all literals."""
        literals = tuple(Operand(lit, lit.type, lit.free, lit.value) for lit in self.values)
        return Signature((_comparable(self, (*operands, *literals)),), BOOL)

    def _call_text(self, *arguments: str) -> str:
        return f"is_in([{', '.join(self.own_fields())}])"


def to_literals(values: Iterable[object]) -> tuple[Literal, ...]:
    """Return the literals of `is_in`; refuse null, because nothing equals it."""
    if isinstance(values, str | bytes | Expr) or not isinstance(values, Iterable):
        raise SchemaError(f"is_in needs a list, not {values!r}", hint=f"write .is_in([{values!r}])")
    return tuple(_is_in_value(to_expr(value)) for value in values)


def _is_in_value(value: Expr) -> Literal:
    if not isinstance(value, Literal):
        raise SchemaError(
            f"is_in needs plain values, not {value}", hint=f"compare with == {value}, joined by |"
        )
    if value.value is None:
        raise SchemaError(
            "is_in cannot look for None", hint='write col("a").is_in([...]) | col("a").is_null()'
        )
    return value


def _comparable(node: Expr, operands: tuple[Operand, ...]) -> pa.DataType:
    for item in operands:
        require_type(
            node, item, is_comparable, "values with an order", "compare one of its fields, or its length"
        )
    return common_type(node, operands, _hint([item.type for item in operands]))


def _hint(types: list[pa.DataType]) -> str:
    if any(kind.is_timestamp(t) for t in types):
        if any(kind.is_string(t) for t in types):
            return 'compare with datetime(2024, 5, 1), or make a time of text with .cast("timestamp")'
        if any(kind.is_date32(t) for t in types):
            return 'compare with datetime(2024, 5, 1), or cast: .cast("timestamp"), .cast("date")'
        if all(kind.is_timestamp(t) for t in types):
            return 'give both a zone: .cast("timestamp[us, UTC]")'
    if any(kind.is_boolean(t) for t in types):
        return "compare with True or False, or use the condition by itself"
    return 'cast one of them, for example .cast("int64") or .cast("string")'
