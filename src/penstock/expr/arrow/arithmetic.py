"""Arithmetic on arrays: integers are computed with a check for overflow, floats by IEEE 754.

Integers of up to 32 bits are computed in 64, where they cannot overflow, and then checked for range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, Mask, Numbers, from_numbers
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
from penstock.expr.values import integer_range, numbers_of

CheckedOperation = Callable[[Numbers, Numbers], tuple[Numbers, Mask]]


def _round(node: Round, out: Instruction) -> Function:
    if kind.is_signed_integer(out.type):
        return _identity
    scale = 10.0**node.digits

    def round_to_digits(array: pa.Array) -> ColumnarValue:
        numbers = numbers_of(array)
        with np.errstate(all="ignore"):
            scaled = numbers * scale
            # A float of 2**52 or more is whole already, and one that overflows has no decimals to lose.
            values = np.where(np.abs(scaled) < 2.0**52, np.rint(scaled) / scale, numbers)
        return from_numbers(values, out.type, [array])

    return round_to_digits


def add_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    """Returns the sum, and where it overflows int64: there its sign is that of neither operand."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def multiply_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    """Returns the product, and where it overflows int64; only large products are tested by division."""
    product = a * b
    large = np.abs(a.astype(np.float64) * b.astype(np.float64)) >= 2.0**62
    overflowed = np.zeros(len(product), dtype=np.bool_)
    if large.any():
        x, y, xy = a[large], b[large], product[large]  # a large product has no zero operand
        overflowed[large] = (xy // y != x) | ((y == -1) & (x == np.iinfo(np.int64).min))
    return product, overflowed


def to_integer(array: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    """Returns numbers as integers, rounded to zero; NaN, infinity and what is out of range fail."""
    low, high = integer_range(wanted)
    numbers = numbers_of(array)
    if kind.is_floating(array.type):
        numbers = numbers.astype(np.float64)
        with np.errstate(all="ignore"):
            # Compared before truncation; high + 1 is a power of two and exact, high of int64 is not.
            is_high_enough = numbers > low - 1.0 if wanted.bit_width < 64 else numbers >= low
            failed = ~(is_high_enough & (numbers < high + 1.0))
        return from_numbers(np.where(failed, 0, numbers).astype(np.int64), wanted, [array], failed)
    return from_numbers(numbers, wanted, [array], (numbers < low) | (numbers > high))


def _subtract_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    rest = a - b
    return rest, ((a ^ b) & (a ^ rest)) < 0


def _floor_divide_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    left = (b == 0) | ((b == -1) & (a == np.iinfo(np.int64).min))
    return a // np.where(left, 1, b), left


def _integer_operation(operation: CheckedOperation, type: pa.DataType) -> Function:
    low, high = integer_range(type)

    def compute(left: pa.Array, right: pa.Array) -> ColumnarValue:
        a, b = (numbers_of(array).astype(np.int64, copy=False) for array in (left, right))
        with np.errstate(all="ignore"):
            values, failed = operation(a, b)
        if type.bit_width < 64:
            failed |= (values < low) | (values > high)
        return from_numbers(values, type, [left, right], failed)

    return compute


def _unary_operation(operation: Callable[[Numbers], Numbers], type: pa.DataType) -> Function:
    least, _ = integer_range(type)

    def compute(array: pa.Array) -> ColumnarValue:
        numbers = numbers_of(array)
        return from_numbers(operation(numbers), type, [array], numbers == least)

    return compute


def _division(operation: Callable[[Numbers, Numbers], Numbers], type: pa.DataType) -> Function:
    """Returns a division whose only failure is a zero divisor."""

    def compute(left: pa.Array, right: pa.Array) -> ColumnarValue:
        divisor = numbers_of(right)
        zero = divisor == 0
        with np.errstate(all="ignore"):
            values = operation(numbers_of(left), np.where(zero, divisor.dtype.type(1), divisor))
        return from_numbers(values, type, [left, right], zero)

    return compute


def _identity(array: pa.Array) -> pa.Array:
    return array


def _float_kernel(function: Function, integer_function: Callable[[pa.DataType], Function]) -> Any:
    """Returns the rule that takes Arrow's kernel for floats and a checked function for integers."""
    return lambda node, out: function if kind.is_floating(out.type) else integer_function(out.type)


RULES: Rules = {
    Add: _float_kernel(pc.add, lambda type: _integer_operation(add_checked, type)),
    Subtract: _float_kernel(pc.subtract, lambda type: _integer_operation(_subtract_checked, type)),
    Multiply: _float_kernel(pc.multiply, lambda type: _integer_operation(multiply_checked, type)),
    Divide: lambda node, out: _division(np.divide, out.type),
    FloorDivide: lambda node, out: (
        _division(np.floor_divide, out.type)
        if kind.is_floating(out.type)
        else _integer_operation(_floor_divide_checked, out.type)
    ),
    Modulo: lambda node, out: _division(np.remainder, out.type),
    Power: lambda node, out: pc.power,
    Negate: _float_kernel(pc.negate, lambda type: _unary_operation(np.negative, type)),
    Absolute: _float_kernel(pc.abs, lambda type: _unary_operation(np.abs, type)),
    Floor: _float_kernel(pc.floor, lambda type: _identity),
    Ceil: _float_kernel(pc.ceil, lambda type: _identity),
    Sqrt: lambda node, out: pc.sqrt,
    Round: _round,
}
