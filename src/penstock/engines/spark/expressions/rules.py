"""Numbers, text, time, logic and choices in the JVM, with the failures that each choice lets through.

Arithmetic takes `try_` forms for what can overflow, plain operators for what cannot. Spark's `%` and `div`
round towards zero, and raise for a zero divisor under ANSI rules; here they are put right for negative
numbers and guarded. A literal divisor that is not zero needs no guard and no flag.

Times are computed as integers, and by Spark's calendar where the session's zone is UTC. Spark's order is
ours: NaN equals itself and is greatest, -0.0 equals 0.0.
"""

from __future__ import annotations

import math
import operator
import re
import string as ascii_tables
from collections.abc import Callable

import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock import expr as nodes
from penstock.engines.spark.expressions.columns import (
    Inputs,
    SparkValue,
    all_present,
    any_failed,
    fail_where,
    fail_where_null,
    literal,
    null_where_failed,
)
from penstock.engines.spark.types import spark_type
from penstock.expr.nodes.text_and_time import UNITS
from penstock.expr.program import Instruction, Rules, convert_literal
from penstock.expr.values import integer_range

_ALL = (1 << 31) - 1  # more characters than a text can have
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
_COUNTS = {"us": F.unix_micros, "ms": F.unix_millis, "s": F.unix_seconds}


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
    """Return the remainder with the sign of the divisor: C's fmod of floats, also with the sign of a zero."""
    a, b = inputs
    if b.is_constant and b.constant > 0 and kind.is_signed_integer(out.type):
        return F.pmod(a.value, b.value)
    cut = a.value % b.value
    zero = F.signum(b.value) * F.lit(0.0) if kind.is_floating(out.type) else cut
    rest = F.when(cut == 0, zero).when((cut < 0) != (b.value < 0), cut + b.value).otherwise(cut)
    rest = rest.cast(spark_type(out.type))
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


def _float_quotient(a: Column, b: Column) -> Column:
    """Return Python's float //: made whole from what % leaves over; a zero has the sign of a / b."""
    rest = a % b
    one_less = F.when((rest != 0) & ((rest < 0) != (b < 0)), F.lit(1.0)).otherwise(F.lit(0.0))
    down = (a - rest) / b - one_less
    nearest = F.rint(down)
    whole = F.when(nearest - down == 0.5, nearest - 1.0).otherwise(nearest)  # a half goes down
    return F.when(down == 0, a / b * F.lit(0.0)).otherwise(whole)


def _split(node: nodes.Split, out: Instruction, inputs: Inputs) -> Column:
    # Spark splits by a regular expression; -1 keeps empty texts at the end.
    pattern = _SPECIAL.sub(lambda match: "\\" + match[0], node.pattern)
    return F.split(inputs[0].value, pattern, -1)


def _slice(node: nodes.Slice, out: Instruction, inputs: Inputs) -> Column:
    text, length = inputs[0].value, _ALL if node.length is None else node.length
    if node.start >= 0:
        return F.substring(text, min(node.start + 1, _ALL), length)
    # Spark counts the length from a start before the text; the tail must be taken first.
    tail = F.substring(text, node.start, _ALL)
    return tail if node.length is None else F.substring(tail, 1, length)


def ascii_lower(text: Column) -> Column:
    """Return A to Z as a to z; Spark's own lower knows other letters than Python's and Arrow's."""
    return F.translate(text, ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)


def _epoch(node: nodes.Epoch, out: Instruction, inputs: Inputs) -> Column:
    if node.unit in _COUNTS:
        return _COUNTS[node.unit](inputs[0].value)
    return F.unix_date(inputs[0].value.cast("date")).cast("long")


def _from_epoch(node: nodes.FromEpoch, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    (count,) = inputs
    if node.unit == "us":
        return F.timestamp_micros(count.value)
    return timestamp_after(count, UNITS[node.unit])


def _truncate(node: nodes.Truncate, out: Instruction, inputs: Inputs) -> SparkValue:
    micros = F.unix_micros(inputs[0].value)
    down = F.try_subtract(micros, F.pmod(micros, F.lit(node.micros).cast("long")))
    return fail_where_null(F.timestamp_micros(down), *inputs)


def _shift(node: nodes.Shift, out: Instruction, inputs: Inputs) -> SparkValue:
    moved = F.try_add(F.unix_micros(inputs[0].value), F.lit(node.micros).cast("long"))
    return fail_where_null(F.timestamp_micros(moved), *inputs)


def timestamp_after(count: SparkValue, length: int) -> SparkValue:
    """Return the timestamp `count` lengths after 1970; beyond 64 bits the row fails."""
    micros = F.try_multiply(count.value.cast("long"), F.lit(length).cast("long"))
    return fail_where_null(F.timestamp_micros(micros), count)


def _comparison(node: nodes.Comparison, out: Instruction, inputs: Inputs) -> Column:
    compared: Column = type(node).holds(inputs[0].value, inputs[1].value)
    return compared


def _between(node: nodes.Between, out: Instruction, inputs: Inputs) -> Column:
    value, low, high = inputs
    within = value.value.between(low.value, high.value)
    # Spark's is false as soon as one bound is missed; ours is null while the other bound is null.
    known = all_present(low, high)
    return within if known is None else F.when(known, within)


def _is_in(node: nodes.IsIn, out: Instruction, inputs: Inputs) -> Column:
    (type,), (tested,) = out.operands, inputs
    wanted = [convert_literal(value.value, type) for value in node.values]
    if not wanted:
        return F.when(tested.value.isNotNull(), F.lit(False))
    if kind.is_floating(type) and 0.0 in wanted:
        wanted += [0.0, -0.0]  # many values are looked up by their bits, in which the zeros differ
    return tested.value.isin([literal(value, type) for value in wanted])


def _is_nan(node: nodes.IsNan, out: Instruction, inputs: Inputs) -> Column:
    # Spark's isnan of null is false.
    return F.when(inputs[0].value.isNotNull(), F.isnan(inputs[0].value))


def _case(node: nodes.Case, out: Instruction, inputs: Inputs) -> SparkValue:
    count = len(node.conditions)
    conditions, values, default = inputs[:count], inputs[count:-1], inputs[-1]
    chosen = F.when(conditions[0].value, values[0].value)
    for condition, value in zip(conditions[1:], values[1:], strict=True):
        chosen = chosen.when(condition.value, value.value)
    failed = default.failed
    # From the last condition to the first, so that an earlier one overrules what comes after it.
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        if value.failed is not None or failed is not None:
            then, other = (F.lit(False) if flag is None else flag for flag in (value.failed, failed))
            failed = F.when(condition.value, then).otherwise(other)
        failed = any_failed(condition.failed, failed)
    return null_where_failed(SparkValue(chosen.otherwise(default.value), failed))


def _fail_undecided(value: Column, inputs: Inputs) -> SparkValue:
    """Fail where a side failed, which is null here, and the other side did not decide."""
    failed = any_failed(*(value.failed for value in inputs))
    return SparkValue(value, None if failed is None else failed & value.isNull())


def _first_not_null(inputs: Inputs) -> SparkValue:
    """Go from the last to the first: a value hides what comes after it, and so does a failure."""
    failed = inputs[-1].failed
    for value in reversed(inputs[:-1]):
        inherited = None if failed is None else value.value.isNull() & failed
        failed = any_failed(value.failed, inherited)
    return null_where_failed(SparkValue(F.coalesce(*(value.value for value in inputs)), failed))


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
    nodes.Lower: lambda node, out, inputs: ascii_lower(inputs[0].value),
    nodes.Upper: lambda node, out, inputs: F.translate(
        inputs[0].value, ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase
    ),
    nodes.Length: lambda node, out, inputs: F.length(inputs[0].value).cast("long"),
    nodes.Contains: lambda node, out, inputs: inputs[0].value.contains(F.lit(node.pattern)),
    nodes.StartsWith: lambda node, out, inputs: inputs[0].value.startswith(F.lit(node.pattern)),
    nodes.EndsWith: lambda node, out, inputs: inputs[0].value.endswith(F.lit(node.pattern)),
    nodes.Split: _split,
    nodes.Replace: lambda node, out, inputs: F.replace(
        inputs[0].value, F.lit(node.pattern), F.lit(node.replacement)
    ),
    nodes.Strip: lambda node, out, inputs: F.btrim(inputs[0].value, F.lit(node.characters)),
    nodes.Slice: _slice,
    nodes.Concat: lambda node, out, inputs: F.concat(*(text.value for text in inputs)),
    # Spark has a function of the name of every part.
    nodes.TimePart: lambda node, out, inputs: F.call_function(node.part, inputs[0].value).cast("long"),
    nodes.Epoch: _epoch,
    nodes.FromEpoch: _from_epoch,
    nodes.Truncate: _truncate,
    nodes.Shift: _shift,
    **dict.fromkeys(nodes.Comparison.__subclasses__(), _comparison),
    nodes.Between: _between,
    nodes.IsIn: _is_in,
    nodes.And: lambda node, out, inputs: _fail_undecided(inputs[0].value & inputs[1].value, inputs),
    nodes.Or: lambda node, out, inputs: _fail_undecided(inputs[0].value | inputs[1].value, inputs),
    nodes.Not: lambda node, out, inputs: ~inputs[0].value,
    nodes.IsNull: lambda node, out, inputs: inputs[0].value.isNull(),
    nodes.IsNotNull: lambda node, out, inputs: inputs[0].value.isNotNull(),
    nodes.IsNan: _is_nan,
    nodes.FillNull: lambda node, out, inputs: _first_not_null(inputs),
    nodes.Coalesce: lambda node, out, inputs: _first_not_null(inputs),
    nodes.Case: _case,
}
