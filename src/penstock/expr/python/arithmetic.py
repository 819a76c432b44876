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
from penstock.expr.program import Instruction
from penstock.expr.python.lower import Function, lower_node
from penstock.expr.values import integer_range, type_name


@lower_node.register
def _add(node: Add, instruction: Instruction) -> Function:
    return lambda a, b: check_range(a + b, instruction.type)


@lower_node.register
def _subtract(node: Subtract, instruction: Instruction) -> Function:
    return lambda a, b: check_range(a - b, instruction.type)


@lower_node.register
def _multiply(node: Multiply, instruction: Instruction) -> Function:
    return lambda a, b: check_range(a * b, instruction.type)


@lower_node.register
def _divide(node: Divide, instruction: Instruction) -> Function:
    return lambda a, b: a / _divisor(b)


@lower_node.register
def _floor_divide(node: FloorDivide, instruction: Instruction) -> Function:
    return lambda a, b: check_range(a // _divisor(b), instruction.type)


@lower_node.register
def _modulo(node: Modulo, instruction: Instruction) -> Function:
    return lambda a, b: a % _divisor(b)


@lower_node.register
def _power(node: Power, instruction: Instruction) -> Function:
    return _ieee_power


@lower_node.register
def _negate(node: Negate, instruction: Instruction) -> Function:
    return lambda a: check_range(-a, instruction.type)


@lower_node.register
def _absolute(node: Absolute, instruction: Instruction) -> Function:
    return lambda a: check_range(abs(a), instruction.type)


@lower_node.register
def _floor(node: Floor, instruction: Instruction) -> Function:
    return lambda a: _whole(a, math.floor)


@lower_node.register
def _ceil(node: Ceil, instruction: Instruction) -> Function:
    return lambda a: _whole(a, math.ceil)


@lower_node.register
def _sqrt(node: Sqrt, instruction: Instruction) -> Function:
    return lambda a: math.nan if a < 0 else math.sqrt(a)


@lower_node.register
def _round(node: Round, instruction: Instruction) -> Function:
    if kind.is_signed_integer(instruction.type):
        return lambda a: a
    scale = 10.0**node.digits

    def rounded(a: float) -> float:
        scaled = a * scale
        # A float of 2**52 or more is whole already, and one that overflows has no decimals to lose.
        return _whole(scaled, round) / scale if abs(scaled) < 2.0**52 else a

    return rounded


def check_range(value: int | float, type: pa.DataType) -> int | float:
    """The value itself, or RowFailure when it is an integer beyond its type."""
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
    """The function's whole number as a float of the same sign, zero included; NaN and infinity stay."""
    if isinstance(value, int) or not math.isfinite(value):
        return value
    return math.copysign(float(function(value)), value)


def _ieee_power(base: float, exponent: float) -> float:
    """IEEE 754's pow, where Python would raise."""
    odd = exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:  # zero to a negative power, or a negative number to a fraction
        if base != 0:
            return math.nan
        return math.copysign(math.inf, base) if odd else math.inf
