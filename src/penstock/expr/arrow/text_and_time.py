"""Text, dates and timestamps on arrays: integer arithmetic, and NumPy's calendar, which has no last year."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock import expr as nodes
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, Numbers, from_numbers
from penstock.expr.arrow.numbers import add_checked, multiply_checked
from penstock.expr.nodes.text_and_time import CLOCK_PARTS, DAY, UNITS
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.values import numbers_of


def _slice(node: nodes.Slice, out: Instruction) -> Function:
    def slice_text(text: pa.Array) -> pa.Array:
        tail = pc.utf8_slice_codeunits(text, start=node.start)
        return tail if node.length is None else pc.utf8_slice_codeunits(tail, start=0, stop=node.length)

    return slice_text


def months_of(days: Numbers) -> Numbers:
    """Return months since January 1970, as int64."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def first_day_of(months: Numbers) -> Numbers:
    """Return the first day of a month since January 1970, in days since 1970."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def _time_part(node: nodes.TimePart, out: Instruction) -> Function:
    is_date = kind.is_date32(out.operands[0])

    def part(times: pa.Array) -> ColumnarValue:
        counts = numbers_of(times).astype(np.int64, copy=False)
        if node.part in CLOCK_PARTS:
            length, modulus = CLOCK_PARTS[node.part]
            return from_numbers(counts // length % modulus, out.type, [times])
        return from_numbers(_date_part(node.part, counts if is_date else counts // DAY), out.type, [times])

    return part


def _epoch(node: nodes.Epoch, out: Instruction) -> Function:
    length = 1 if kind.is_date32(out.operands[0]) else UNITS[node.unit]
    return lambda times: from_numbers(numbers_of(times) // length, out.type, [times])


def _truncate(node: nodes.Truncate, out: Instruction) -> Function:
    length = np.int64(node.micros)

    def truncate(times: pa.Array) -> ColumnarValue:
        counts = numbers_of(times)
        beyond = counts % length
        values, failed = add_checked(counts, -beyond)
        return from_numbers(values, out.type, [times], failed)

    return truncate


def _shift(node: nodes.Shift, out: Instruction) -> Function:
    def shift(times: pa.Array) -> ColumnarValue:
        with np.errstate(all="ignore"):
            values, failed = add_checked(numbers_of(times), np.full(len(times), node.micros, dtype=np.int64))
        return from_numbers(values, out.type, [times], failed)

    return shift


def scale_to_micros(counts: pa.Array, length: int, type: pa.DataType) -> ColumnarValue:
    """Multiply counts by a length in microseconds; beyond 64 bits the row fails."""
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
    nodes.Lower: lambda node, out: pc.ascii_lower,
    nodes.Upper: lambda node, out: pc.ascii_upper,
    nodes.Length: lambda node, out: lambda text: pc.utf8_length(text).cast(pa.int64()),
    nodes.Contains: lambda node, out: lambda text: pc.match_substring(text, node.pattern),
    nodes.StartsWith: lambda node, out: lambda text: pc.starts_with(text, node.pattern),
    nodes.EndsWith: lambda node, out: lambda text: pc.ends_with(text, node.pattern),
    nodes.Split: lambda node, out: lambda text: pc.split_pattern(text, node.pattern),
    nodes.Replace: lambda node, out: lambda text: pc.replace_substring(text, node.pattern, node.replacement),
    nodes.Strip: lambda node, out: lambda text: pc.utf8_trim(text, characters=node.characters),
    nodes.Slice: _slice,
    nodes.Concat: lambda node, out: lambda *texts: pc.binary_join_element_wise(*texts, ""),
    nodes.TimePart: _time_part,
    nodes.Epoch: _epoch,
    nodes.FromEpoch: lambda node, out: lambda counts: scale_to_micros(counts, UNITS[node.unit], out.type),
    nodes.Truncate: _truncate,
    nodes.Shift: _shift,
}
