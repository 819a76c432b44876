"""Casts from text on arrays: a regular expression says what is well formed, then the parts are computed.

What is not well formed is replaced before Arrow parses it, because Arrow would refuse the whole batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.arrow.arithmetic import to_integer
from penstock.expr.arrow.evaluated import Evaluated, Mask, Numbers, built, either, failing, numbers
from penstock.expr.arrow.rule import Function
from penstock.expr.arrow.time import DAY, first_day_of

_INT = r"\A[+-]?[0-9]+\z"
_FLOAT = r"\A(?:[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|[+-]?Infinity)\z"
_DATE = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_CLOCK = (
    r"[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?:Z|(?P<sign>[+-])(?P<offset_hour>[0-9]{2}):(?P<offset_minute>[0-9]{2}))?"
)
_LARGEST = {False: "9223372036854775807", True: "9223372036854775808"}


def parser(wanted: pa.DataType) -> Function:
    """The function from text to the wanted type."""
    if kind.is_signed_integer(wanted):
        return lambda text: _integer(text, wanted)
    if kind.is_floating(wanted):
        return lambda text: _float(text, wanted)
    if kind.is_boolean(wanted):
        return _bool
    if kind.is_date32(wanted):
        return lambda text: _date(text, wanted)
    if kind.is_timestamp(wanted):
        return lambda text: _moment(text, wanted)
    return lambda text: text.cast(wanted)


def _integer(text: pa.Array, wanted: pa.DataType) -> Evaluated:
    negative = pc.starts_with(text, "-")
    digits = pc.replace_substring_regex(text, r"\A[+-]?0*", "")
    largest = pc.if_else(negative, _LARGEST[True], _LARGEST[False])
    length = pc.binary_length(digits)
    small = pc.or_(pc.less(length, 19), pc.and_(pc.equal(length, 19), pc.less_equal(digits, largest)))
    good = pc.and_(pc.match_substring_regex(text, _INT), small)
    signed = pc.binary_join_element_wise(pc.if_else(negative, "-", ""), "0", digits, "")
    parsed = failing(pc.if_else(good, signed, "0").cast(pa.int64()), good)
    narrow = to_integer(parsed.values, wanted)
    return Evaluated(narrow.values, either(parsed.failed, narrow.failed))


def _float(text: pa.Array, wanted: pa.DataType) -> Evaluated:
    good = pc.match_substring_regex(text, _FLOAT)
    parsed = failing(pc.if_else(good, text, "0").cast(pa.float64()), good)
    return Evaluated(parsed.values.cast(wanted, safe=False), parsed.failed)


def _bool(text: pa.Array) -> Evaluated:
    word = pc.ascii_lower(text)
    true = pc.equal(word, "true")
    return failing(true, pc.or_(true, pc.equal(word, "false")))


def _date(text: pa.Array, wanted: pa.DataType) -> Evaluated:
    parts = pc.extract_regex(text, rf"\A{_DATE}\z")
    days, good = _days(parts)
    return built(days, wanted, [text], ~good)


def _moment(text: pa.Array, wanted: pa.DataType) -> Evaluated:
    parts = pc.extract_regex(text, rf"\A{_DATE}(?:{_CLOCK})?\z")
    days, good = _days(parts)
    hour, minute, second = (_part(parts, name) for name in ("hour", "minute", "second"))
    offset_hour, offset_minute = _part(parts, "offset_hour"), _part(parts, "offset_minute")
    for value, limit in ((hour, 24), (minute, 60), (second, 60), (offset_hour, 24), (offset_minute, 60)):
        good &= value < limit
    west = numbers(pc.equal(_text(parts, "sign"), "-"))
    offset = np.where(west, -1, 1) * (offset_hour * 60 + offset_minute)
    seconds = (hour * 60 + minute - offset) * 60 + second
    return built(days * DAY + seconds * 1_000_000 + _micros(parts), wanted, [text], ~good)


def _days(parts: pa.StructArray) -> tuple[Numbers, Mask]:
    """Days since 1970, and where year, month and day name a day that exists."""
    year, month, day = (_part(parts, name) for name in ("year", "month", "day"))
    months = (year - 1970) * 12 + month - 1
    first = first_day_of(months)
    exists = (
        (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (first + day <= first_day_of(months + 1))
    )
    return first + day - 1, exists


def _micros(parts: pa.StructArray) -> Numbers:
    six = pc.utf8_slice_codeunits(_text(parts, "fraction"), start=0, stop=6)
    return numbers(pc.utf8_rpad(six, width=6, padding="0").cast(pa.int64()))


def _part(parts: pa.StructArray, name: str) -> Numbers:
    """A part as a number; zero where the text has none or is not well formed."""
    return numbers(pc.utf8_lpad(_text(parts, name), width=1, padding="0").cast(pa.int64()))


def _text(parts: pa.StructArray, name: str) -> pa.StringArray:
    """A part as text, empty where the text has none or is not well formed."""
    return pc.fill_null(pc.struct_field(parts, name), "")
