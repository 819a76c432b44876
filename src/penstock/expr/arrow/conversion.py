"""Casts, fields of structs, items of lists, and JSON on arrays, by `expr/nodes/conversion.py`.

Casts from text match a regular expression for what is well formed, then compute the parts. What is not well
formed is replaced before Arrow parses it, because Arrow would refuse the whole batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock import expr as nodes
from penstock.errors import RowFailure
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, Mask, Numbers, any_failed, from_numbers, null_of
from penstock.expr.arrow.rules import first_day_of, scale_to_micros, to_integer
from penstock.expr.nodes import conversion as spec
from penstock.expr.nodes.text_and_time import DAY
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.values import from_plain, numbers_of

_INT, _FLOAT = rf"\A{spec.INTEGER_TEXT}\z", rf"\A(?:{spec.FLOAT_TEXT})\z"
_DATE = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_CLOCK = (
    r"[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?:Z|(?P<sign>[+-])(?P<offset_hour>[0-9]{2}):(?P<offset_minute>[0-9]{2}))?"
)
_LARGEST = {False: "9223372036854775807", True: "9223372036854775808"}


def _fail_unless(values: pa.Array, good: pa.BooleanArray) -> ColumnarValue:
    """Return the values where `good` is true; failed where it is false, null where it is null."""
    if good.false_count == 0:
        return ColumnarValue(values)
    return ColumnarValue(pc.if_else(good, values, null_of(values.type)), pc.fill_null(pc.invert(good), False))


def _to_float(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert through float64, as a row does; what is beyond the range of float32 becomes infinite."""
    wide = array.cast(pa.float64(), safe=False)
    if kind.is_float64(wanted):
        return wide
    with np.errstate(all="ignore"):
        return from_numbers(numbers_of(wide).astype(np.float32), wanted, [array]).values


def _time_text(array: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    """Print dates and timestamps; years that have not four digits fail."""
    counts, is_date = numbers_of(array), kind.is_date32(array.type)
    days = counts if is_date else counts // DAY
    printable = from_numbers(counts, array.type, [array], (days < spec.FIRST_DAY) | (days > spec.LAST_DAY))
    if is_date:
        return ColumnarValue(printable.values.cast(pa.string()), printable.failed)
    text = printable.values.view(pa.int64()).view(pa.timestamp("us")).cast(pa.string())
    return ColumnarValue(pc.replace_substring(text, " ", "T"), printable.failed)


def _integer(text: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    negative = pc.starts_with(text, "-")
    digits = pc.replace_substring_regex(text, r"\A[+-]?0*", "")
    largest = pc.if_else(negative, _LARGEST[True], _LARGEST[False])
    length = pc.binary_length(digits)
    small = pc.or_(pc.less(length, 19), pc.and_(pc.equal(length, 19), pc.less_equal(digits, largest)))
    good = pc.and_(pc.match_substring_regex(text, _INT), small)
    signed = pc.binary_join_element_wise(pc.if_else(negative, "-", ""), "0", digits, "")
    parsed = _fail_unless(pc.if_else(good, signed, "0").cast(pa.int64()), good)
    narrow = to_integer(parsed.values, wanted)
    return ColumnarValue(narrow.values, any_failed(parsed.failed, narrow.failed))


def _float(text: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    good = pc.match_substring_regex(text, _FLOAT)
    parsed = _fail_unless(pc.if_else(good, text, "0").cast(pa.float64()), good)
    return ColumnarValue(parsed.values.cast(wanted, safe=False), parsed.failed)


def _bool(text: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    word = pc.ascii_lower(text)
    true = pc.equal(word, "true")
    return _fail_unless(true, pc.or_(true, pc.equal(word, "false")))


def _date(text: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    parts = pc.extract_regex(text, rf"\A{_DATE}\z")
    days, good = _days(parts)
    return from_numbers(days, wanted, [text], ~good)


def _moment(text: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    parts = pc.extract_regex(text, rf"\A{_DATE}(?:{_CLOCK})?\z")
    days, good = _days(parts)
    hour, minute, second = (_part(parts, name) for name in ("hour", "minute", "second"))
    offset_hour, offset_minute = _part(parts, "offset_hour"), _part(parts, "offset_minute")
    for value, limit in ((hour, 24), (minute, 60), (second, 60), (offset_hour, 24), (offset_minute, 60)):
        good &= value < limit
    west = numbers_of(pc.equal(_text(parts, "sign"), "-"))
    offset = np.where(west, -1, 1) * (offset_hour * 60 + offset_minute)
    seconds = (hour * 60 + minute - offset) * 60 + second
    return from_numbers(days * DAY + seconds * 1_000_000 + _micros(parts), wanted, [text], ~good)


def _days(parts: pa.StructArray) -> tuple[Numbers, Mask]:
    """Return days since 1970, and where year, month and day name a day that exists."""
    year, month, day = (_part(parts, name) for name in ("year", "month", "day"))
    months = (year - 1970) * 12 + month - 1
    first = first_day_of(months)
    exists = (
        (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (first + day <= first_day_of(months + 1))
    )
    return first + day - 1, exists


def _micros(parts: pa.StructArray) -> Numbers:
    six = pc.utf8_slice_codeunits(_text(parts, "fraction"), start=0, stop=6)
    return numbers_of(pc.utf8_rpad(six, width=6, padding="0").cast(pa.int64()))


def _part(parts: pa.StructArray, name: str) -> Numbers:
    """Return a part as a number; zero where the text has none or is not well formed."""
    return numbers_of(pc.utf8_lpad(_text(parts, name), width=1, padding="0").cast(pa.int64()))


def _text(parts: pa.StructArray, name: str) -> pa.StringArray:
    """Return a part as text, empty where the text has none or is not well formed."""
    return pc.fill_null(pc.struct_field(parts, name), "")


_CASTS: dict[str | None, Function] = {
    "same": lambda array, wanted: array,
    "integer to integer": to_integer,
    "float to integer": to_integer,
    "number to float": _to_float,
    "bool to number": pa.Array.cast,
    "bool to text": pa.Array.cast,
    "integer to text": pa.Array.cast,
    "moment to text": _time_text,
    "day to text": _time_text,
    "text to integer": _integer,
    "text to float": _float,
    "text to bool": _bool,
    "text to moment": _moment,
    "text to day": _date,
    "text to binary": pa.Array.cast,
    "day to moment": lambda days, wanted: scale_to_micros(days, DAY, wanted),
    "moment to day": lambda moments, wanted: from_numbers(numbers_of(moments) // DAY, wanted, [moments]),
    "moment to moment": lambda moments, wanted: moments.view(pa.int64()).view(wanted),
    # Arrow's own cast multiplies, and may miss the nearest float; parsing the digits does not.
    "decimal to float": lambda array, wanted: array.cast(pa.string()).cast(wanted),
    "wider decimal": pa.Array.cast,
}


def _cast(node: nodes.Cast, out: Instruction) -> Function:
    convert = _CASTS[spec.find_cast(out.operands[0], out.type)]
    return lambda array: convert(array, out.type)


def _field(node: nodes.Field, out: Instruction) -> Function:
    place = out.operands[0].get_field_index(node.name)
    return lambda structs: pc.struct_field(structs, [place])


def _list_item(node: nodes.ListItem, out: Instruction) -> Function:
    def item(lists: pa.ListArray) -> pa.Array:
        offsets = lists.offsets.to_numpy()
        starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        places = (starts if node.index >= 0 else ends) + node.index
        missing = (places < starts) | (places >= ends) | lists.is_null().to_numpy(zero_copy_only=False)
        return lists.values.take(pa.array(np.where(missing, 0, places), mask=missing))

    return item


def _json(node: nodes.JsonValue, out: Instruction) -> Function:
    steps = spec.parse_path(node.path)

    def extract(text: pa.Array) -> ColumnarValue:
        """Apply the rule for one text to each distinct text: Arrow has no kernel that reads JSON per row."""
        encoded = text.dictionary_encode()
        values: list[object] = []
        failed: list[bool] = []
        for one in encoded.dictionary.to_pylist():
            try:
                values.append(spec.extract_json(one, steps, out.type))
                failed.append(False)
            except RowFailure:
                values.append(None)
                failed.append(True)
        flags = pa.array(failed, pa.bool_()).take(encoded.indices)
        return ColumnarValue(from_plain(values, out.type).take(encoded.indices), pc.fill_null(flags, False))

    return extract


RULES: Rules = {
    nodes.Cast: _cast,
    nodes.Field: _field,
    nodes.ListLength: lambda node, out: lambda lists: pc.list_value_length(lists).cast(pa.int64()),
    nodes.ListItem: _list_item,
    nodes.JsonValue: _json,
}
