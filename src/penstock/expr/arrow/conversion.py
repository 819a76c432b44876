"""Casts, fields of structs, items of lists, and JSON on arrays, by `expr/nodes/conversion.py`.

Casts from text match a regular expression for what is well formed, then Arrow parses it. What is not well
formed is replaced before, because Arrow would refuse the whole batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock import expr as nodes
from penstock.errors import RowFailure
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, any_failed, from_numbers, null_of
from penstock.expr.arrow.rules import scale_to_micros, to_integer
from penstock.expr.nodes import conversion as spec
from penstock.expr.nodes.text_and_time import DAY
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.values import from_plain, numbers_of

_INT, _FLOAT = rf"\A{spec.INTEGER_TEXT}\z", rf"\A(?:{spec.FLOAT_TEXT})\z"
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


def _names_day(text: pa.Array, pattern: str) -> pa.BooleanArray:
    """Return whether text matches and begins with a day that exists: Arrow takes 30 February for 1 March."""
    day = pc.utf8_slice_codeunits(text, start=0, stop=10)
    parsed = pc.strptime(day, format="%Y-%m-%d", unit="s", error_is_null=True)
    exists = pc.fill_null(pc.equal(parsed.cast(pa.date32()).cast(pa.string()), day), False)
    return pc.and_(pc.match_substring_regex(text, rf"\A{pattern}\z"), exists)


def _day(text: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    good = _names_day(text, spec.DAY_TEXT)
    return _fail_unless(pc.if_else(good, text, "1970-01-01").cast(wanted), good)


def _moment(text: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    """Give all text what Arrow parses: a clock, no more than six decimals, and a zone."""
    good = _names_day(text, spec.MOMENT_TEXT)
    full = pc.if_else(good, text, "1970-01-01")
    midnight = pc.binary_join_element_wise(full, "00:00", " ")
    full = pc.if_else(pc.equal(pc.binary_length(full), 10), midnight, full)
    full = pc.replace_substring_regex(full, r"(\.[0-9]{6})[0-9]+", r"\1")
    has_zone = pc.match_substring_regex(full, rf"{spec.ZONE_TEXT}\z")
    full = pc.if_else(has_zone, full, pc.binary_join_element_wise(full, "Z", ""))
    return _fail_unless(full.cast(pa.timestamp("us", "UTC")).view(pa.int64()).view(wanted), good)


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
    "text to day": _day,
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
