"""Dates and timestamps on arrays: integer arithmetic, and NumPy's calendar, which has no last year."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.arrow.arithmetic import add_checked, multiply_checked
from penstock.expr.arrow.columnar_value import ColumnarValue, Numbers, from_numbers
from penstock.expr.nodes.time import UNITS, Epoch, FromEpoch, Shift, TimePart, Truncate
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.values import numbers_of

DAY = UNITS["d"]
_PER_UNIT = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def months_of(days: Numbers) -> Numbers:
    """Returns months since January 1970, as int64."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def first_day_of(months: Numbers) -> Numbers:
    """Returns the first day of a month since January 1970, in days since 1970."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def _time_part(node: TimePart, out: Instruction) -> Function:
    is_date = kind.is_date32(out.operands[0])

    def part(times: pa.Array) -> ColumnarValue:
        counts = numbers_of(times).astype(np.int64, copy=False)
        if node.part in _PER_UNIT:
            length, modulus = _PER_UNIT[node.part]
            return from_numbers(counts // length % modulus, out.type, [times])
        return from_numbers(_date_part(node.part, counts if is_date else counts // DAY), out.type, [times])

    return part


def _epoch(node: Epoch, out: Instruction) -> Function:
    length = 1 if kind.is_date32(out.operands[0]) else UNITS[node.unit]
    return lambda times: from_numbers(numbers_of(times) // length, out.type, [times])


def _truncate(node: Truncate, out: Instruction) -> Function:
    length = np.int64(node.micros)

    def truncate(times: pa.Array) -> ColumnarValue:
        counts = numbers_of(times)
        beyond = counts % length
        values, failed = add_checked(counts, -beyond)
        return from_numbers(values, out.type, [times], failed)

    return truncate


def _shift(node: Shift, out: Instruction) -> Function:
    def shift(times: pa.Array) -> ColumnarValue:
        with np.errstate(all="ignore"):
            values, failed = add_checked(numbers_of(times), np.full(len(times), node.micros, dtype=np.int64))
        return from_numbers(values, out.type, [times], failed)

    return shift


def scale_to_micros(counts: pa.Array, length: int, type: pa.DataType) -> ColumnarValue:
    """Multiplies counts by a length in microseconds; beyond 64 bits the row fails."""
    numbers = numbers_of(counts).astype(np.int64, copy=False)
    with np.errstate(all="ignore"):
        values, failed = multiply_checked(numbers, np.full(len(numbers), length, dtype=np.int64))
    return from_numbers(values, type, [counts], failed)


def _date_part(part: str, days: Numbers) -> Numbers:
    if part == "weekday":
        return (days + 3) % 7  # 1970 began on a Thursday
    months = months_of(days)
    if part == "year":
        return months // 12 + 1970
    return months % 12 + 1 if part == "month" else days - first_day_of(months) + 1


RULES: Rules = {
    TimePart: _time_part,
    Epoch: _epoch,
    FromEpoch: lambda node, out: lambda counts: scale_to_micros(counts, UNITS[node.unit], out.type),
    Truncate: _truncate,
    Shift: _shift,
}
