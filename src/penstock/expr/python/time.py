"""Dates and timestamps in plain Python, over the whole range of the types.

Python's own dates end at the years 1 and 9999. The calendar repeats every 400 years, so a day is moved by
whole cycles into that range, asked, and moved back.
"""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow.types as kind

from penstock.expr.nodes.time import UNITS, Epoch, FromEpoch, Shift, TimePart, Truncate
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.python.arithmetic import check_range

DAY = UNITS["d"]
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_ANCHOR = date(2000, 1, 1)
_ANCHOR_DAYS = (_ANCHOR - date(1970, 1, 1)).days
_PER_UNIT = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def calendar(days: int) -> tuple[int, int, int, int]:
    """Returns year, month, day and weekday (Monday is 0) of a number of days since 1970."""
    cycles, rest = divmod(days - _ANCHOR_DAYS, _CYCLE_DAYS)
    day = _ANCHOR + timedelta(days=rest)
    return day.year + cycles * _CYCLE_YEARS, day.month, day.day, day.weekday()


def _time_part(node: TimePart, out: Instruction) -> Function:
    if node.part in _PER_UNIT:
        length, count = _PER_UNIT[node.part]
        return lambda t: t // length % count
    place = ("year", "month", "day", "weekday").index(node.part)
    length = 1 if kind.is_date32(out.operands[0]) else DAY
    return lambda t: calendar(t // length)[place]


def _epoch(node: Epoch, out: Instruction) -> Function:
    length = 1 if kind.is_date32(out.operands[0]) else UNITS[node.unit]
    return lambda t: t // length


RULES: Rules = {
    TimePart: _time_part,
    Epoch: _epoch,
    FromEpoch: lambda node, out: lambda count: check_range(count * UNITS[node.unit], out.type),
    Truncate: lambda node, out: lambda t: check_range(t // node.micros * node.micros, out.type),
    Shift: lambda node, out: lambda t: check_range(t + node.micros, out.type),
}
