"""Numbers, text, time, logic and choices in plain Python, by `expr/nodes/`.

Its integers are exact, its // and % are the definition, and its strings are sequences of code points. Its own
dates end at the years 1 and 9999. The calendar repeats every 400 years, so a day is moved by whole cycles
into that range, asked, and moved back. The hash is that of the xxhash library over bytes by the rules of
`expr/nodes/numbers.py`.

For comparison each value gets a sort key in which NaN comes last and equals itself. Logic and choices handle
nulls and failures themselves.
"""

from __future__ import annotations

import math
import string as ascii_tables
import struct
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.types as kind
import xxhash

from penstock import expr as nodes
from penstock.errors import RowFailure
from penstock.expr.nodes.numbers import SEED
from penstock.expr.nodes.text_and_time import CLOCK_PARTS, DAY, UNITS
from penstock.expr.program import Function, Instruction, Rules, convert_literal
from penstock.expr.values import integer_range, type_name
from penstock.frozen import Frozen

_LOWER = str.maketrans(ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)
_UPPER = str.maketrans(ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase)
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_ANCHOR = date(2000, 1, 1)
_ANCHOR_DAYS = (_ANCHOR - date(1970, 1, 1)).days


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


def calendar(days: int) -> tuple[int, int, int, int]:
    """Return year, month, day and weekday (Monday is 0) of a number of days since 1970."""
    cycles, rest = divmod(days - _ANCHOR_DAYS, _CYCLE_DAYS)
    day = _ANCHOR + timedelta(days=rest)
    return day.year + cycles * _CYCLE_YEARS, day.month, day.day, day.weekday()


def _time_part(node: nodes.TimePart, out: Instruction) -> Function:
    if node.part in CLOCK_PARTS:
        length, count = CLOCK_PARTS[node.part]
        return lambda t: t // length % count
    place = ("year", "month", "day", "weekday").index(node.part)
    length = 1 if kind.is_date32(out.operands[0]) else DAY
    return lambda t: calendar(t // length)[place]


def _epoch(node: nodes.Epoch, out: Instruction) -> Function:
    length = 1 if kind.is_date32(out.operands[0]) else UNITS[node.unit]
    return lambda t: t // length


def sort_key(value: object) -> tuple[bool, object]:
    """Return the value's place in the total order of its type."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0.0 if is_nan else value)


def _compare(node: nodes.Comparison, out: Instruction) -> Function:
    holds = type(node).holds
    return lambda a, b: holds(sort_key(a), sort_key(b))


def _is_in(node: nodes.IsIn, out: Instruction) -> Function:
    wanted = [sort_key(convert_literal(value.value, out.operands[0])) for value in node.values]
    return lambda a: sort_key(a) in wanted


class FailedValue(Frozen):
    """Stands for the value of an input that failed."""

    reason: str


def _decide(left: object, right: object, *, by: bool) -> object:
    """Return `by` if either side is it; else a failure, else null, else the opposite of `by`."""
    if left is by or right is by:
        return by
    for side in (left, right):
        if isinstance(side, FailedValue):
            return side
    return None if left is None or right is None else not by


def _first_not_null(*inputs: object) -> object:
    """Return the first input that is not null; a failure is not null."""
    return next((value for value in inputs if value is not None), None)


def _case(node: nodes.Case, out: Instruction) -> Function:
    count = len(node.conditions)

    def choose(*inputs: object) -> object:
        for condition, value in zip(inputs[:count], inputs[count:], strict=False):
            if isinstance(condition, FailedValue):
                return condition
            if condition is True:
                return value
        return inputs[-1]

    return choose


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
    nodes.Lower: lambda node, out: lambda text: text.translate(_LOWER),
    nodes.Upper: lambda node, out: lambda text: text.translate(_UPPER),
    nodes.Length: lambda node, out: len,
    nodes.Contains: lambda node, out: lambda text: node.pattern in text,
    nodes.StartsWith: lambda node, out: lambda text: text.startswith(node.pattern),
    nodes.EndsWith: lambda node, out: lambda text: text.endswith(node.pattern),
    nodes.Split: lambda node, out: lambda text: text.split(node.pattern),
    nodes.Replace: lambda node, out: lambda text: text.replace(node.pattern, node.replacement),
    nodes.Strip: lambda node, out: lambda text: text.strip(node.characters),
    nodes.Slice: lambda node, out: lambda text: text[node.start :][: node.length],
    nodes.Concat: lambda node, out: lambda *texts: "".join(texts),
    nodes.TimePart: _time_part,
    nodes.Epoch: _epoch,
    nodes.FromEpoch: lambda node, out: lambda count: check_range(count * UNITS[node.unit], out.type),
    nodes.Truncate: lambda node, out: lambda t: check_range(t // node.micros * node.micros, out.type),
    nodes.Shift: lambda node, out: lambda t: check_range(t + node.micros, out.type),
    **dict.fromkeys(nodes.Comparison.__subclasses__(), _compare),
    nodes.Between: lambda node, out: lambda a, low, high: sort_key(low) <= sort_key(a) <= sort_key(high),
    nodes.IsIn: _is_in,
    nodes.And: lambda node, out: lambda a, b: _decide(a, b, by=False),
    nodes.Or: lambda node, out: lambda a, b: _decide(a, b, by=True),
    nodes.Not: lambda node, out: lambda a: not a,
    nodes.IsNull: lambda node, out: lambda a: a is None,
    nodes.IsNotNull: lambda node, out: lambda a: a is not None,
    nodes.IsNan: lambda node, out: math.isnan,
    nodes.FillNull: lambda node, out: _first_not_null,
    nodes.Coalesce: lambda node, out: _first_not_null,
    nodes.Case: _case,
}
