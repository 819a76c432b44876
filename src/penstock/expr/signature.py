"""Type rules: what a node asks of its operands, and how unlike types meet.

A signature says which type each operand is brought to and what comes out, so every lowering computes on
operands of equal type. Types widen only without loss of meaning (int to wider int, int to float64, float32
to float64); a literal written without a type takes the type of the column it meets, if it fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import Node
from penstock.expr.values import float32, integer_range, type_name
from penstock.frozen import dataclass

BOOL, INT64, FLOAT64, STRING = pa.bool_(), pa.int64(), pa.float64(), pa.string()
_EXACT_IN_FLOAT32 = 1 << 24


@dataclass(frozen=True, slots=True)
class Operand:
    """A child with its type; `literal` is True when it may still take another type."""

    node: Node
    type: pa.DataType
    literal: bool = False
    value: object = None


@dataclass(frozen=True, slots=True)
class Signature:
    """The type that each operand is brought to, and the type of the result."""

    operands: tuple[pa.DataType, ...]
    result: pa.DataType


def is_numeric(type: pa.DataType) -> bool:
    """Return whether arithmetic is defined on the type."""
    return bool(kind.is_signed_integer(type) or kind.is_floating(type))


def is_comparable(type: pa.DataType) -> bool:
    """Return whether values of the type have an order."""
    return not (kind.is_nested(type) or kind.is_null(type))


def require_type(
    node: Node, operand: Operand, test: Callable[[pa.DataType], bool], wanted: str, hint: str
) -> None:
    """SchemaError unless the operand's type passes the test; a null literal always does."""
    if not test(operand.type) and not kind.is_null(operand.type):
        seen = type_name(operand.type)
        raise SchemaError(f"{node} needs {wanted}, and {operand.node} is {seen}", hint=hint)


def common_type(node: Node, operands: Sequence[Operand], hint: str) -> pa.DataType:
    """Return the type that all operands can be brought to; raise SchemaError if there is none."""
    fixed = [item for item in operands if not item.literal]
    free = [item for item in operands if item.literal and not kind.is_null(item.type)]
    if not fixed and not free:
        raise SchemaError(f"{node} has only nulls, and so no type", hint='say it: lit(None, "int64")')
    first, *rest = (*fixed, *free)
    met: pa.DataType | None = first.type
    for other in rest:
        met = (
            met
            if other.literal and met is not None and literal_fits(other.value, other.type, met)
            else _meet(met, other.type)
        )
        if met is None:
            raise _unlike(node, operands, hint)
    return met


def literal_fits(value: object, own: pa.DataType, type: pa.DataType) -> bool:
    """Return whether a literal's plain value, of type `own`, can become a value of `type` exactly."""
    if kind.is_temporal(own):  # a datetime fits with or without a zone; never read it as the int below it
        return bool(own == type or (kind.is_timestamp(own) and kind.is_timestamp(type)))
    if isinstance(value, bool) or value is None:
        return bool(kind.is_boolean(type)) or value is None
    if isinstance(value, int) and kind.is_signed_integer(type):
        low, high = integer_range(type)
        return low <= value <= high
    if isinstance(value, int) and kind.is_floating(type):
        return bool(kind.is_float64(type)) or abs(value) <= _EXACT_IN_FLOAT32
    if isinstance(value, float) and kind.is_floating(type):
        return bool(kind.is_float64(type)) or not math.isfinite(value) or math.isfinite(float32(value))
    if isinstance(value, int | Decimal) and kind.is_decimal128(type):
        return _decimal_fits(Decimal(value), type)
    return False


def convert_literal(value: object, type: pa.DataType) -> object:
    """Return a literal's plain value as one of a type that it fits."""
    if isinstance(value, int | float) and kind.is_floating(type):
        return float32(float(value)) if kind.is_float32(type) else float(value)
    if isinstance(value, int | Decimal) and kind.is_decimal128(type):
        return Decimal(value)
    return value


def _decimal_fits(value: Decimal, type: pa.DataType) -> bool:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False
    return bool(-exponent <= type.scale and len(digits) + exponent <= type.precision - type.scale)


def _meet(left: pa.DataType | None, right: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type that holds both, or None."""
    if left is None or left == right:
        return left
    if kind.is_null(left) or kind.is_null(right):
        return right if kind.is_null(left) else left
    if kind.is_signed_integer(left) and kind.is_signed_integer(right):
        return left if left.bit_width >= right.bit_width else right
    if is_numeric(left) and is_numeric(right):
        return FLOAT64
    if kind.is_timestamp(left) and kind.is_timestamp(right) and left.tz and right.tz:
        return pa.timestamp("us", "UTC")
    if kind.is_decimal128(left) and kind.is_decimal128(right):
        return _meet_decimals(left, right)
    return None


def _meet_decimals(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else None


def _unlike(node: Node, operands: Sequence[Operand], hint: str) -> SchemaError:
    seen = " and ".join(dict.fromkeys(type_name(item.type) for item in operands))
    detail = ", ".join(f"{item.node} is {type_name(item.type)}" for item in operands)
    return SchemaError(f"{node} mixes {seen}", detail=detail, hint=hint)
