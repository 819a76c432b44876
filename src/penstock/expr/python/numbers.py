"""Arithmetic and the hash in plain Python, whose integers are exact and whose // and % are the definition.

The hash is that of the xxhash library over bytes by the rules of `expr/nodes/numbers.py`.
"""

from __future__ import annotations

import math
import struct

import pyarrow as pa
import pyarrow.types as kind
import xxhash

from penstock import expr as nodes
from penstock.errors import RowFailure
from penstock.expr.nodes.numbers import SEED
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.values import integer_range, type_name


def check_range(value: int | float, type: pa.DataType) -> int | float:
    """Return the value itself; raise RowFailure when it is an integer beyond its type."""
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
    """Apply a rounding function; the sign stays, zero's included, and so do NaN and infinity."""
    if isinstance(value, int) or not math.isfinite(value):
        return value
    return math.copysign(float(function(value)), value)


def _power(base: float, exponent: float) -> float:
    """Compute IEEE 754's pow, where Python would raise."""
    odd = exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:  # zero to a negative power, or a negative number to a fraction
        if base != 0:
            return math.nan
        return math.copysign(math.inf, base) if odd else math.inf


def _round(node: nodes.Round, out: Instruction) -> Function:
    if kind.is_signed_integer(out.type):
        return lambda a: a
    scale = 10.0**node.digits

    def round_to_digits(a: float) -> float:
        scaled = a * scale
        # A float of 2**52 or more is whole already, and one that overflows has no decimals to lose.
        return _whole(scaled, round) / scale if abs(scaled) < 2.0**52 else a

    return round_to_digits


def bytes_of(value: object, type: pa.DataType) -> bytes:
    """Return the bytes that stand for a plain value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        normal = math.nan if math.isnan(value) else value + 0.0  # -0.0 + 0.0 is 0.0
        return struct.pack("<f" if kind.is_float32(type) else "<d", normal)
    assert isinstance(value, int)
    return value.to_bytes(8 if type.bit_width == 64 else 4, "little", signed=True)


def _hash(node: nodes.Hash, out: Instruction) -> Function:
    def hash_values(*values: object) -> int:
        state = SEED
        for value, type in zip(values, out.operands, strict=True):
            if value is not None:
                state = xxhash.xxh64_intdigest(bytes_of(value, type), state)
        return state - (1 << 64) if state >= 1 << 63 else state

    return hash_values


RULES: Rules = {
    nodes.Add: lambda node, out: lambda a, b: check_range(a + b, out.type),
    nodes.Subtract: lambda node, out: lambda a, b: check_range(a - b, out.type),
    nodes.Multiply: lambda node, out: lambda a, b: check_range(a * b, out.type),
    nodes.Divide: lambda node, out: lambda a, b: a / _divisor(b),
    nodes.FloorDivide: lambda node, out: lambda a, b: check_range(a // _divisor(b), out.type),
    nodes.Modulo: lambda node, out: lambda a, b: a % _divisor(b),
    nodes.Power: lambda node, out: _power,
    nodes.Negate: lambda node, out: lambda a: check_range(-a, out.type),
    nodes.Absolute: lambda node, out: lambda a: check_range(abs(a), out.type),
    nodes.Floor: lambda node, out: lambda a: _whole(a, math.floor),
    nodes.Ceil: lambda node, out: lambda a: _whole(a, math.ceil),
    nodes.Sqrt: lambda node, out: lambda a: math.nan if a < 0 else math.sqrt(a),
    nodes.Round: _round,
    nodes.Hash: _hash,
}
