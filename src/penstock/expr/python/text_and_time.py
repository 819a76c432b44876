"""Text, dates and timestamps in plain Python.

Its strings are sequences of code points. Its own dates end at the years 1 and 9999. The calendar repeats
every 400 years, so a day is moved by whole cycles into that range, asked, and moved back.
"""

from __future__ import annotations

import string as ascii_tables
from datetime import date, timedelta

import pyarrow.types as kind

from penstock import expr as nodes
from penstock.expr.nodes.text_and_time import CLOCK_PARTS, DAY, UNITS
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.python.numbers import check_range

_LOWER = str.maketrans(ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)
_UPPER = str.maketrans(ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase)
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_ANCHOR = date(2000, 1, 1)
_ANCHOR_DAYS = (_ANCHOR - date(1970, 1, 1)).days


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


RULES: Rules = {
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
}
