"""Dates and timestamps on arrays: integer arithmetic, and NumPy's calendar, which has no last year."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.arrow.arithmetic import product_of, sum_of
from penstock.expr.arrow.evaluated import Evaluated, Numbers, built, numbers
from penstock.expr.arrow.rule import Function, rule
from penstock.expr.nodes.time import UNITS, Epoch, FromEpoch, Shift, TimePart, Truncate
from penstock.expr.program import Line

DAY = UNITS["d"]
_PER_UNIT = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def months_of(days: Numbers) -> Numbers:
    """Months since January 1970, as int64."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def first_day_of(months: Numbers) -> Numbers:
    """The first day of a month since January 1970, in days since 1970."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


@rule.register
def _time_part(node: TimePart, line: Line) -> Function:
    is_date = kind.is_date32(line.operands[0])

    def part(times: pa.Array) -> Evaluated:
        counts = numbers(times).astype(np.int64, copy=False)
        if node.part in _PER_UNIT:
            length, modulus = _PER_UNIT[node.part]
            return built(counts // length % modulus, line.type, [times])
        return built(_date_part(node.part, counts if is_date else counts // DAY), line.type, [times])

    return part


@rule.register
def _epoch(node: Epoch, line: Line) -> Function:
    length = 1 if kind.is_date32(line.operands[0]) else UNITS[node.unit]
    return lambda times: built(numbers(times) // length, line.type, [times])


@rule.register
def _from_epoch(node: FromEpoch, line: Line) -> Function:
    return lambda counts: scaled(counts, UNITS[node.unit], line.type)


@rule.register
def _truncate(node: Truncate, line: Line) -> Function:
    length = np.int64(node.micros)

    def truncated(times: pa.Array) -> Evaluated:
        counts = numbers(times)
        beyond = counts % length
        values, failed = sum_of(counts, -beyond)
        return built(values, line.type, [times], failed)

    return truncated


@rule.register
def _shift(node: Shift, line: Line) -> Function:
    def shifted(times: pa.Array) -> Evaluated:
        with np.errstate(all="ignore"):
            values, failed = sum_of(numbers(times), np.full(len(times), node.micros, dtype=np.int64))
        return built(values, line.type, [times], failed)

    return shifted


def scaled(counts: pa.Array, length: int, type: pa.DataType) -> Evaluated:
    """The counts times a length in microseconds; beyond 64 bits the row fails."""
    given = numbers(counts).astype(np.int64, copy=False)
    with np.errstate(all="ignore"):
        values, failed = product_of(given, np.full(len(given), length, dtype=np.int64))
    return built(values, type, [counts], failed)


def _date_part(part: str, days: Numbers) -> Numbers:
    if part == "weekday":
        return (days + 3) % 7  # 1970 began on a Thursday
    months = months_of(days)
    if part == "year":
        return months // 12 + 1970
    return months % 12 + 1 if part == "month" else days - first_day_of(months) + 1
