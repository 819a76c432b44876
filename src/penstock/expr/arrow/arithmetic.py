"""Arithmetic on arrays: integers are computed with a check for overflow, floats by IEEE 754.

Integers of up to 32 bits are computed in 64, where they cannot overflow, and then checked for range.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, Mask, Numbers, from_numbers, numbers_of
from penstock.expr.arrow.lower import Function, kernel, lower_node
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
from penstock.expr.program import Instruction
from penstock.expr.values import integer_range

CheckedOperation = Callable[[Numbers, Numbers], tuple[Numbers, Mask]]


@lower_node.register
def _add(node: Add, instruction: Instruction) -> Function:
    return pc.add if kind.is_floating(instruction.type) else _integer_operation(add_checked, instruction.type)


@lower_node.register
def _subtract(node: Subtract, instruction: Instruction) -> Function:
    return (
        pc.subtract
        if kind.is_floating(instruction.type)
        else _integer_operation(_subtract_checked, instruction.type)
    )


@lower_node.register
def _multiply(node: Multiply, instruction: Instruction) -> Function:
    return (
        pc.multiply
        if kind.is_floating(instruction.type)
        else _integer_operation(multiply_checked, instruction.type)
    )


@lower_node.register
def _divide(node: Divide, instruction: Instruction) -> Function:
    return _division(np.divide, instruction.type)


@lower_node.register
def _floor_divide(node: FloorDivide, instruction: Instruction) -> Function:
    if kind.is_floating(instruction.type):
        return _division(np.floor_divide, instruction.type)
    return _integer_operation(_floor_divide_checked, instruction.type)


@lower_node.register
def _modulo(node: Modulo, instruction: Instruction) -> Function:
    return _division(np.remainder, instruction.type)


@lower_node.register
def _power(node: Power, instruction: Instruction) -> Function:
    return kernel(pc.power)


@lower_node.register
def _negate(node: Negate, instruction: Instruction) -> Function:
    return (
        pc.negate if kind.is_floating(instruction.type) else _unary_operation(np.negative, instruction.type)
    )


@lower_node.register
def _absolute(node: Absolute, instruction: Instruction) -> Function:
    return pc.abs if kind.is_floating(instruction.type) else _unary_operation(np.abs, instruction.type)


@lower_node.register
def _floor(node: Floor, instruction: Instruction) -> Function:
    return pc.floor if kind.is_floating(instruction.type) else _identity


@lower_node.register
def _ceil(node: Ceil, instruction: Instruction) -> Function:
    return pc.ceil if kind.is_floating(instruction.type) else _identity


@lower_node.register
def _sqrt(node: Sqrt, instruction: Instruction) -> Function:
    return kernel(pc.sqrt)


@lower_node.register
def _round(node: Round, instruction: Instruction) -> Function:
    if kind.is_signed_integer(instruction.type):
        return _identity
    scale = 10.0**node.digits

    def rounded(array: pa.Array) -> ColumnarValue:
        given = numbers_of(array)
        with np.errstate(all="ignore"):
            scaled = given * scale
            # A float of 2**52 or more is whole already, and one that overflows has no decimals to lose.
            values = np.where(np.abs(scaled) < 2.0**52, np.rint(scaled) / scale, given)
        return from_numbers(values, instruction.type, [array])

    return rounded


def add_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    """The sum, and where it left int64: there the sum's sign is that of neither operand."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def multiply_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    """The product, and where it left int64; the exact test by division runs only where a product is large."""
    product = a * b
    large = np.abs(a.astype(np.float64) * b.astype(np.float64)) >= 2.0**62
    left = np.zeros(len(product), dtype=np.bool_)
    if large.any():
        x, y, xy = a[large], b[large], product[large]  # a large product has no zero operand
        left[large] = (xy // y != x) | ((y == -1) & (x == np.iinfo(np.int64).min))
    return product, left


def to_integer(array: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    """Numbers as integers, towards zero; NaN, infinity and what is out of range fail."""
    low, high = integer_range(wanted)
    given = numbers_of(array)
    if kind.is_floating(array.type):
        given = given.astype(np.float64)
        with np.errstate(all="ignore"):
            # Compared before truncation; high + 1 is a power of two and exact, high of int64 is not.
            failed = ~((given > low - 1.0 if wanted.bit_width < 64 else given >= low) & (given < high + 1.0))
        return from_numbers(np.where(failed, 0, given).astype(np.int64), wanted, [array], failed)
    return from_numbers(given, wanted, [array], (given < low) | (given > high))


def _subtract_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    rest = a - b
    return rest, ((a ^ b) & (a ^ rest)) < 0


def _floor_divide_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    left = (b == 0) | ((b == -1) & (a == np.iinfo(np.int64).min))
    return a // np.where(left, 1, b), left


def _integer_operation(operation: CheckedOperation, type: pa.DataType) -> Function:
    low, high = integer_range(type)

    def compute(left: pa.Array, right: pa.Array) -> ColumnarValue:
        a, b = (numbers_of(each).astype(np.int64, copy=False) for each in (left, right))
        with np.errstate(all="ignore"):
            values, failed = operation(a, b)
        if type.bit_width < 64:
            failed |= (values < low) | (values > high)
        return from_numbers(values, type, [left, right], failed)

    return compute


def _unary_operation(operation: Callable[[Numbers], Numbers], type: pa.DataType) -> Function:
    least, _ = integer_range(type)

    def compute(array: pa.Array) -> ColumnarValue:
        given = numbers_of(array)
        return from_numbers(operation(given), type, [array], given == least)

    return compute


def _division(operation: Callable[[Numbers, Numbers], Numbers], type: pa.DataType) -> Function:
    """Apply a division whose only failure is a zero divisor."""

    def compute(left: pa.Array, right: pa.Array) -> ColumnarValue:
        divisor = numbers_of(right)
        zero = divisor == 0
        with np.errstate(all="ignore"):
            values = operation(numbers_of(left), np.where(zero, divisor.dtype.type(1), divisor))
        return from_numbers(values, type, [left, right], zero)

    return compute


def _identity(array: pa.Array) -> pa.Array:
    return array
