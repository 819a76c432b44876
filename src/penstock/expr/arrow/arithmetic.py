"""Arithmetic on arrays: integers are computed with a check for overflow, floats by IEEE 754.

Integers of up to 32 bits are computed in 64, where they cannot overflow, and then checked for range.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.arrow.evaluated import Evaluated, Mask, Numbers, built, numbers
from penstock.expr.arrow.rule import Function, kernel, rule
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
from penstock.expr.program import Line
from penstock.expr.values import integer_range

Checked = Callable[[Numbers, Numbers], tuple[Numbers, Mask]]


@rule.register
def _add(node: Add, line: Line) -> Function:
    return pc.add if kind.is_floating(line.type) else _integers(sum_of, line.type)


@rule.register
def _subtract(node: Subtract, line: Line) -> Function:
    return pc.subtract if kind.is_floating(line.type) else _integers(_difference, line.type)


@rule.register
def _multiply(node: Multiply, line: Line) -> Function:
    return pc.multiply if kind.is_floating(line.type) else _integers(product_of, line.type)


@rule.register
def _divide(node: Divide, line: Line) -> Function:
    return _by_divisor(np.divide, line.type)


@rule.register
def _floor_divide(node: FloorDivide, line: Line) -> Function:
    if kind.is_floating(line.type):
        return _by_divisor(np.floor_divide, line.type)
    return _integers(_quotient, line.type)


@rule.register
def _modulo(node: Modulo, line: Line) -> Function:
    return _by_divisor(np.remainder, line.type)


@rule.register
def _power(node: Power, line: Line) -> Function:
    return kernel(pc.power)


@rule.register
def _negate(node: Negate, line: Line) -> Function:
    return pc.negate if kind.is_floating(line.type) else _unary(np.negative, line.type)


@rule.register
def _absolute(node: Absolute, line: Line) -> Function:
    return pc.abs if kind.is_floating(line.type) else _unary(np.abs, line.type)


@rule.register
def _floor(node: Floor, line: Line) -> Function:
    return pc.floor if kind.is_floating(line.type) else _unchanged


@rule.register
def _ceil(node: Ceil, line: Line) -> Function:
    return pc.ceil if kind.is_floating(line.type) else _unchanged


@rule.register
def _sqrt(node: Sqrt, line: Line) -> Function:
    return kernel(pc.sqrt)


@rule.register
def _round(node: Round, line: Line) -> Function:
    if kind.is_signed_integer(line.type):
        return _unchanged
    scale = 10.0**node.digits

    def rounded(array: pa.Array) -> Evaluated:
        given = numbers(array)
        with np.errstate(all="ignore"):
            scaled = given * scale
            # A float of 2**52 or more is whole already, and one that overflows has no decimals to lose.
            values = np.where(np.abs(scaled) < 2.0**52, np.rint(scaled) / scale, given)
        return built(values, line.type, [array])

    return rounded


def sum_of(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    """The sum, and where it left int64: there the sum's sign is that of neither operand."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def product_of(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    """The product, and where it left int64; the exact test by division runs only where a product is large."""
    product = a * b
    large = np.abs(a.astype(np.float64) * b.astype(np.float64)) >= 2.0**62
    left = np.zeros(len(product), dtype=np.bool_)
    if large.any():
        x, y, xy = a[large], b[large], product[large]  # a large product has no zero operand
        left[large] = (xy // y != x) | ((y == -1) & (x == np.iinfo(np.int64).min))
    return product, left


def to_integer(array: pa.Array, wanted: pa.DataType) -> Evaluated:
    """Numbers as integers, towards zero; NaN, infinity and what is out of range fail."""
    low, high = integer_range(wanted)
    given = numbers(array)
    if kind.is_floating(array.type):
        given = given.astype(np.float64)
        with np.errstate(all="ignore"):
            # Compared before truncation; high + 1 is a power of two and exact, high of int64 is not.
            failed = ~((given > low - 1.0 if wanted.bit_width < 64 else given >= low) & (given < high + 1.0))
        return built(np.where(failed, 0, given).astype(np.int64), wanted, [array], failed)
    return built(given, wanted, [array], (given < low) | (given > high))


def _difference(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    rest = a - b
    return rest, ((a ^ b) & (a ^ rest)) < 0


def _quotient(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    left = (b == 0) | ((b == -1) & (a == np.iinfo(np.int64).min))
    return a // np.where(left, 1, b), left


def _integers(operation: Checked, type: pa.DataType) -> Function:
    low, high = integer_range(type)

    def compute(left: pa.Array, right: pa.Array) -> Evaluated:
        a, b = (numbers(each).astype(np.int64, copy=False) for each in (left, right))
        with np.errstate(all="ignore"):
            values, failed = operation(a, b)
        if type.bit_width < 64:
            failed |= (values < low) | (values > high)
        return built(values, type, [left, right], failed)

    return compute


def _unary(operation: Callable[[Numbers], Numbers], type: pa.DataType) -> Function:
    least, _ = integer_range(type)

    def compute(array: pa.Array) -> Evaluated:
        given = numbers(array)
        return built(operation(given), type, [array], given == least)

    return compute


def _by_divisor(operation: Callable[[Numbers, Numbers], Numbers], type: pa.DataType) -> Function:
    """Apply a division whose only failure is a zero divisor."""

    def compute(left: pa.Array, right: pa.Array) -> Evaluated:
        divisor = numbers(right)
        zero = divisor == 0
        with np.errstate(all="ignore"):
            values = operation(numbers(left), np.where(zero, divisor.dtype.type(1), divisor))
        return built(values, type, [left, right], zero)

    return compute


def _unchanged(array: pa.Array) -> pa.Array:
    return array
