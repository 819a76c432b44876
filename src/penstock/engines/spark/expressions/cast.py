"""Casts in the JVM, by the rules listed in `expr/cast.py`; casts from text are in `parse.py`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.lowered import Lowered, null_from, unless
from penstock.engines.spark.expressions.parse import parsed
from penstock.engines.spark.expressions.rule import Inputs, rule
from penstock.engines.spark.expressions.time import scaled
from penstock.engines.spark.types import spark_type
from penstock.expr import Cast, Node
from penstock.expr.program import Line
from penstock.expr.time import UNITS
from penstock.expr.values import integer_range

COPIES: dict[type[Node], int] = {Cast: 4}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970
_MOMENT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


@rule.register
def _cast(node: Cast, line: Line, inputs: Inputs) -> Lowered | Column:
    given, wanted = line.operands[0], line.type
    if given == wanted:
        return inputs[0].value
    if kind.is_string(given):
        return parsed(inputs[0], wanted)
    if kind.is_temporal(given):
        return _from_time(inputs[0], given, wanted)
    if kind.is_signed_integer(wanted) and not kind.is_boolean(given):
        return _to_integer(inputs[0], given, wanted)
    if kind.is_float32(wanted):  # through float64, as a row does it
        return inputs[0].value.cast("double").cast("float")
    return inputs[0].value.cast(spark_type(wanted))


def _to_integer(number: Lowered, given: pa.DataType, wanted: pa.DataType) -> Lowered | Column:
    if kind.is_floating(given):
        return _cut_off(number, wanted)
    if given.bit_width <= wanted.bit_width:
        return number.value.cast(spark_type(wanted))
    return null_from(number.value.try_cast(spark_type(wanted)), number)


def _cut_off(number: Lowered, wanted: pa.DataType) -> Lowered:
    """Towards zero. Spark's own check takes 2.0**63 for the greatest int64, which it is not."""
    low, high = integer_range(wanted)
    given = number.value.cast("double")
    above = given >= float(low) if wanted.bit_width == 64 else given > low - 1.0
    # NaN is greater than all, so the second test refuses it.
    fits = above & (given < high + 1.0)
    return unless(~fits, given.cast(spark_type(wanted)), number)


def _from_time(time: Lowered, given: pa.DataType, wanted: pa.DataType) -> Lowered | Column:
    if kind.is_timestamp(given) and kind.is_timestamp(wanted):
        return time.value
    if kind.is_date32(wanted):
        return time.value.cast("date")
    if kind.is_timestamp(wanted):
        return scaled(Lowered(F.unix_date(time.value), constant=time.constant), UNITS["d"])
    day = time.value.cast("date")
    four_digits = day.between(
        F.date_from_unix_date(F.lit(_FIRST_DAY)), F.date_from_unix_date(F.lit(_LAST_DAY))
    )
    text = time.value.cast("string") if kind.is_date32(given) else F.date_format(time.value, _MOMENT)
    return unless(~four_digits, text, time)
