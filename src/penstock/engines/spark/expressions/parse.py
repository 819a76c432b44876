"""Casts from text in the JVM: a regular expression says what is well formed, then Spark parses it.

Spark alone would trim, and read more forms than the other engines. The patterns hold all but the length of
months, which Spark knows, so that nothing it is given can be misread.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.lowered import Lowered, null_from
from penstock.engines.spark.expressions.string import ascii_lower
from penstock.engines.spark.types import spark_type

_INT = r"\A[+-]?[0-9]+\z"
_FLOAT = r"\A(?:[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|[+-]?Infinity)\z"
_DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_HOUR, _SIXTY = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_CLOCK = rf"[T ]{_HOUR}:{_SIXTY}(?::{_SIXTY}(?:\.[0-9]{{1,9}})?)?"
_ZONE = rf"([+-])({_HOUR}):({_SIXTY})\z"
_MOMENT = rf"\A{_DAY}(?:{_CLOCK}(?:Z|[+-]{_HOUR}:{_SIXTY})?)?\z"


def parsed(text: Lowered, wanted: pa.DataType) -> Lowered | Column:
    """The text as a value of the wanted type."""
    given = text.value
    if kind.is_binary(wanted):
        return given.cast("binary")
    if kind.is_signed_integer(wanted):
        return null_from(_where(given, _INT, given.try_cast(spark_type(wanted))), text)
    if kind.is_floating(wanted):
        number = _where(given, _FLOAT, given.try_cast("double"))
        return null_from(number.cast("float") if kind.is_float32(wanted) else number, text)
    if kind.is_boolean(wanted):
        word = ascii_lower(given)
        return null_from(F.when(word == "true", F.lit(True)).when(word == "false", F.lit(False)), text)
    if kind.is_date32(wanted):
        return null_from(_where(given, rf"\A{_DAY}\z", given.try_cast("date")), text)
    return null_from(_where(given, _MOMENT, _moment(given)), text)


def _where(text: Column, pattern: str, value: Column) -> Column:
    return F.when(F.rlike(text, F.lit(pattern)), value)


def _moment(text: Column) -> Column:
    """The local time by Spark, less the offset: Spark's zones end at 18 hours, ours at 23:59."""
    local = F.regexp_replace(text, r"(?:Z|[+-][0-9]{2}:[0-9]{2})\z", "")
    minutes = _number(text, 2) * 60 + _number(text, 3)
    offset = F.when(F.regexp_extract(text, _ZONE, 1) == "-", -minutes).otherwise(minutes)
    return F.timestamp_micros(F.unix_micros(local.try_cast("timestamp")) - offset * 60_000_000)


def _number(text: Column, group: int) -> Column:
    """A part of the zone; zero where there is none."""
    return F.concat(F.lit("0"), F.regexp_extract(text, _ZONE, group)).cast("long")
