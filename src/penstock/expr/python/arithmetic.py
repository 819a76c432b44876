"""Arithmetic in plain Python, whose integers are exact and whose // and % are the definition."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure
from penstock.expr.nodes.arithmetic import (
    Absolute,
    Add,
    Ceil,
    Divide,
    Floor,
    FloorDivide,
    Modulo,
    Multiply,
    Negate,
    Power,
    Round,
    Sqrt,
    Subtract,
)
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.values import integer_range, type_name


def check_range(value: int | float, type: pa.DataType) -> int | float:
    """Returns the value itself; raises RowFailure when it is an integer beyond its type."""
    if isinstance(value, int):
        low, high = integer_range(type)
        if not low <= value <= high:
            raise RowFailure(f"{value} overflows {type_name(type)}")
    return value


def _divisor(value: int | float) -> int | float:
    if value == 0:
        raise RowFailure("division by zero")
    return value


def _whole(value: float, function: Function) -> float:
    """Applies a rounding function; the sign stays, zero's included, and so do NaN and infinity."""
    if isinstance(value, int) or not math.isfinite(value):
        return value
    return math.copysign(float(function(value)), value)


def _power(base: float, exponent: float) -> float:
    """Computes IEEE 754's pow, where Python would raise."""
    odd = exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:  # zero to a negative power, or a negative number to a fraction
        if base != 0:
            return math.nan
        return math.copysign(math.inf, base) if odd else math.inf


def _round(node: Round, out: Instruction) -> Function:
    if kind.is_signed_integer(out.type):
        return lambda a: a
    scale = 10.0**node.digits

    def round_to_digits(a: float) -> float:
        scaled = a * scale
        # A float of 2**52 or more is whole already, and one that overflows has no decimals to lose.
        return _whole(scaled, round) / scale if abs(scaled) < 2.0**52 else a

    return round_to_digits


RULES: Rules = {
    Add: lambda node, out: lambda a, b: check_range(a + b, out.type),
    Subtract: lambda node, out: lambda a, b: check_range(a - b, out.type),
    Multiply: lambda node, out: lambda a, b: check_range(a * b, out.type),
    Divide: lambda node, out: lambda a, b: a / _divisor(b),
    FloorDivide: lambda node, out: lambda a, b: check_range(a // _divisor(b), out.type),
    Modulo: lambda node, out: lambda a, b: a % _divisor(b),
    Power: lambda node, out: _power,
    Negate: lambda node, out: lambda a: check_range(-a, out.type),
    Absolute: lambda node, out: lambda a: check_range(abs(a), out.type),
    Floor: lambda node, out: lambda a: _whole(a, math.floor),
    Ceil: lambda node, out: lambda a: _whole(a, math.ceil),
    Sqrt: lambda node, out: lambda a: math.nan if a < 0 else math.sqrt(a),
    Round: _round,
}
