"""Dates and timestamps in plain Python, over the whole range of the types.

Python's own dates end at the years 1 and 9999. The calendar repeats every 400 years, so a day is moved by
whole cycles into that range, asked, and moved back.
"""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow.types as kind

from penstock.expr.nodes.time import UNITS, Epoch, FromEpoch, Shift, TimePart, Truncate
from penstock.expr.program import Instruction
from penstock.expr.python.arithmetic import check_range
from penstock.expr.python.lower import Function, lower_node

DAY = UNITS["d"]
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_ANCHOR = date(2000, 1, 1)
_ANCHOR_DAYS = (_ANCHOR - date(1970, 1, 1)).days
_PER_UNIT = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def calendar(days: int) -> tuple[int, int, int, int]:
    """Year, month, day and weekday (Monday is 0) of a number of days since 1970."""
    cycles, rest = divmod(days - _ANCHOR_DAYS, _CYCLE_DAYS)
    day = _ANCHOR + timedelta(days=rest)
    return day.year + cycles * _CYCLE_YEARS, day.month, day.day, day.weekday()


@lower_node.register
def _time_part(node: TimePart, instruction: Instruction) -> Function:
    if node.part in _PER_UNIT:
        length, count = _PER_UNIT[node.part]
        return lambda t: t // length % count
    place = ("year", "month", "day", "weekday").index(node.part)
    length = 1 if kind.is_date32(instruction.operands[0]) else DAY
    return lambda t: calendar(t // length)[place]


@lower_node.register
def _epoch(node: Epoch, instruction: Instruction) -> Function:
    length = 1 if kind.is_date32(instruction.operands[0]) else UNITS[node.unit]
    return lambda t: t // length


@lower_node.register
def _from_epoch(node: FromEpoch, instruction: Instruction) -> Function:
    return lambda count: check_range(count * UNITS[node.unit], instruction.type)


@lower_node.register
def _truncate(node: Truncate, instruction: Instruction) -> Function:
    return lambda t: check_range(t // node.micros * node.micros, instruction.type)


@lower_node.register
def _shift(node: Shift, instruction: Instruction) -> Function:
    return lambda t: check_range(t + node.micros, instruction.type)
