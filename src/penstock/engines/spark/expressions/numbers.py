"""Arithmetic in the JVM: `try_` forms for what can overflow, plain operators for what cannot; and the hash.

Spark's `%` and `div` round towards zero, and raise for a zero divisor under ANSI rules; here they are put
right for negative numbers and guarded. A literal divisor that is not zero needs no guard and no flag.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock import expr as nodes
from penstock.engines.spark.expressions.columns import (
    Inputs,
    SparkValue,
    fail_where,
    fail_where_null,
    literal,
)
from penstock.engines.spark.types import spark_type
from penstock.expr.program import Instruction, Rules
from penstock.expr.values import integer_range

_WHOLE = 2.0**52  # a float this large has no fraction


_CHECKED: dict[type[nodes.Node], tuple[Callable[..., Column], Callable[..., Column]]] = {
    nodes.Add: (operator.add, F.try_add),
    nodes.Subtract: (operator.sub, F.try_subtract),
    nodes.Multiply: (operator.mul, F.try_multiply),
}
"""For floats and for integers."""


def _compute_checked(node: nodes.Node, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    for_floats, for_integers = _CHECKED[type(node)]
    a, b = (value.value for value in inputs)
    if kind.is_floating(out.type):
        return for_floats(a, b)
    if kind.is_timestamp(out.operands[0]):
        a, b = F.unix_micros(a), F.unix_micros(b)
    return fail_where_null(for_integers(a, b), *inputs)


def _divide(node: nodes.Divide, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    a, b = inputs
    if _is_safe(b):
        return a.value / b.value
    return fail_where(b.value == 0, a.value / b.value, a, b)


def _floor_divide(node: nodes.FloorDivide, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    a, b = inputs
    if kind.is_floating(out.type):
        quotient = _float_quotient(a.value, b.value)
        return quotient if _is_safe(b) else fail_where(b.value == 0, quotient, a, b)
    quotient = _quotient(a, b).cast(spark_type(out.type))
    if _is_safe(b) and b.constant != -1:
        return quotient
    least = literal(integer_range(out.type)[0], out.type)
    return fail_where((b.value == 0) | ((b.value == -1) & (a.value == least)), quotient, a, b)


def _modulo(node: nodes.Modulo, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    a, b = inputs
    if kind.is_floating(out.type):
        rest = _float_rest(a.value, b.value)
    elif b.is_constant and b.constant > 0:
        return F.pmod(a.value, b.value)
    else:
        rest = _rest(a.value, b.value).cast(spark_type(out.type))
    return rest if _is_safe(b) else fail_where(b.value == 0, rest, a, b)


def _power(node: nodes.Power, out: Instruction, inputs: Inputs) -> Column:
    a, b = inputs
    power = F.pow(a.value, b.value)
    if (b.is_constant and math.isfinite(b.constant)) or (a.is_constant and abs(a.constant) != 1):
        return power
    # IEEE 754 has 1 to any power, and -1 to an infinite one, as 1; Java has NaN.
    endless = F.abs(b.value) == math.inf
    one = (a.value == 1.0) | ((a.value == -1.0) & endless)
    return F.when(one & b.value.isNotNull(), F.lit(1.0)).otherwise(power)


def _negate(node: nodes.Negate, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    if kind.is_floating(out.type):
        return -inputs[0].value
    return fail_where_null(F.try_subtract(literal(0, out.type), inputs[0].value), *inputs)


def _absolute(node: nodes.Absolute, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    if kind.is_floating(out.type):
        return F.abs(inputs[0].value)
    least = literal(integer_range(out.type)[0], out.type)
    return fail_where(inputs[0].value == least, F.abs(inputs[0].value), *inputs)


def _round(node: nodes.Round, out: Instruction, inputs: Inputs) -> Column:
    number = inputs[0].value
    if kind.is_signed_integer(out.type):
        return number
    scaled = number * F.lit(10.0**node.digits)
    return F.when(F.abs(scaled) < _WHOLE, F.rint(scaled) / F.lit(10.0**node.digits)).otherwise(number)


def floor(x: Column) -> Column:
    """Return the whole double below; Spark's own floor gives a bigint, which is too small."""
    nearest = F.rint(x)
    return F.when(nearest > x, nearest - 1.0).otherwise(nearest)


def _in_double(whole: Column, out: Instruction, inputs: Inputs) -> Column:
    if kind.is_signed_integer(out.type):
        return inputs[0].value
    return whole if kind.is_float64(out.type) else whole.cast("float")


def _is_safe(divisor: SparkValue) -> bool:
    """Return whether the divisor is a literal other than zero."""
    return divisor.is_constant and divisor.constant != 0


def _quotient(a: SparkValue, b: SparkValue) -> Column:
    """Return the quotient rounded down; `div` rounds towards zero, one more where signs differ."""
    cut, rest = F.call_function("div", a.value, b.value), a.value % b.value
    if b.is_constant and b.constant > 0:
        return F.when(rest < 0, cut - 1).otherwise(cut)
    return F.when((rest != 0) & ((rest < 0) != (b.value < 0)), cut - 1).otherwise(cut)


def _rest(a: Column, b: Column) -> Column:
    """Return the remainder with the sign of the divisor."""
    rest = a % b
    return F.when((rest != 0) & ((rest < 0) != (b < 0)), rest + b).otherwise(rest)


def _float_rest(a: Column, b: Column) -> Column:
    """Return Python's float %: C's fmod with the sign of the divisor, also of a zero."""
    rest = a % b
    zero = F.signum(b) * F.lit(0.0)
    return F.when(rest == 0, zero).when((rest < 0) != (b < 0), rest + b).otherwise(rest)


def _float_quotient(a: Column, b: Column) -> Column:
    """Return Python's float //: made whole from what % leaves over; a zero has the sign of a / b."""
    rest = a % b
    one_less = F.when((rest != 0) & ((rest < 0) != (b < 0)), F.lit(1.0)).otherwise(F.lit(0.0))
    down = (a - rest) / b - one_less
    nearest = F.rint(down)
    whole = F.when(nearest - down == 0.5, nearest - 1.0).otherwise(nearest)  # a half goes down
    return F.when(down == 0, a / b * F.lit(0.0)).otherwise(whole)


RULES: Rules = {
    **dict.fromkeys(_CHECKED, _compute_checked),
    nodes.Divide: _divide,
    nodes.FloorDivide: _floor_divide,
    nodes.Modulo: _modulo,
    nodes.Power: _power,
    nodes.Negate: _negate,
    nodes.Absolute: _absolute,
    nodes.Floor: lambda node, out, inputs: _in_double(floor(inputs[0].value.cast("double")), out, inputs),
    nodes.Ceil: lambda node, out, inputs: _in_double(-floor(-inputs[0].value.cast("double")), out, inputs),
    nodes.Sqrt: lambda node, out, inputs: F.sqrt(inputs[0].value),
    nodes.Round: _round,
    nodes.Hash: lambda node, out, inputs: F.xxhash64(*(value.value for value in inputs)),
}
