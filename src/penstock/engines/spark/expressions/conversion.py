"""Casts, fields of structs and items of lists in the JVM, by `expr/nodes/conversion.py`; JSON in a worker.

Casts from text match a regular expression for what is well formed, then Spark parses it. Spark alone would
trim, and read more forms than the other engines. The patterns say all but the length of months, which Spark
knows, so that nothing it parses can be misread.

JSON is read by the same function as on the other engines: Spark's own readers take what JSON forbids (a
repeated key, text after the end) and turn what does not fit into null.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from penstock import expr as nodes
from penstock.engines.spark.expressions.columns import Inputs, SparkValue, fail_where, fail_where_null
from penstock.engines.spark.expressions.rules import ascii_lower, timestamp_after
from penstock.engines.spark.types import spark_type
from penstock.expr.nodes import conversion as spec
from penstock.expr.nodes.text_and_time import DAY
from penstock.expr.program import Instruction, Rules
from penstock.expr.values import integer_range

_CAST_MOMENT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_INT, _FLOAT = rf"\A{spec.INTEGER_TEXT}\z", rf"\A(?:{spec.FLOAT_TEXT})\z"
_ZONE = r"([+-])([0-9]{2}):([0-9]{2})\z"


def _narrow(number: SparkValue, out: Instruction) -> SparkValue | Column:
    if out.operands[0].bit_width <= out.type.bit_width:
        return number.value.cast(spark_type(out.type))
    return fail_where_null(number.value.try_cast(spark_type(out.type)), number)


def _cut_off(number: SparkValue, out: Instruction) -> SparkValue:
    """Round towards zero. Spark's own check takes 2.0**63 for the greatest int64, which it is not."""
    low, high = integer_range(out.type)
    double = number.value.cast("double")
    above = double >= float(low) if out.type.bit_width == 64 else double > low - 1.0
    # NaN is greater than all, so the second test refuses it.
    fits = above & (double < high + 1.0)
    return fail_where(~fits, double.cast(spark_type(out.type)), number)


def _to_float(number: SparkValue, out: Instruction) -> Column:
    double = number.value.cast("double")  # also on the way to float32, as a row does it
    return double.cast("float") if kind.is_float32(out.type) else double


def _time_text(time: SparkValue, out: Instruction) -> SparkValue:
    day = time.value.cast("date")
    four_digits = day.between(
        F.date_from_unix_date(F.lit(spec.FIRST_DAY)), F.date_from_unix_date(F.lit(spec.LAST_DAY))
    )
    is_date = kind.is_date32(out.operands[0])
    text = time.value.cast("string") if is_date else F.date_format(time.value, _CAST_MOMENT)
    return fail_where(~four_digits, text, time)


def _bool(text: SparkValue, out: Instruction) -> SparkValue:
    word = ascii_lower(text.value)
    return fail_where_null(F.when(word == "true", F.lit(True)).when(word == "false", F.lit(False)), text)


def _parse(pattern: str, parse: Callable[[Column, Instruction], Column]) -> Callable[..., SparkValue]:
    """Return the rule that parses what a pattern matches, and fails all other text."""
    return lambda text, out: fail_where_null(
        F.when(F.rlike(text.value, F.lit(pattern)), parse(text.value, out)), text
    )


def _plain(value: SparkValue, out: Instruction) -> Column:
    return value.value.cast(spark_type(out.type))


def _moment(text: Column, out: Instruction) -> Column:
    """Return Spark's local time less the offset: Spark's zones end at 18 hours, ours at 23:59."""
    local = F.regexp_replace(text, r"(?:Z|[+-][0-9]{2}:[0-9]{2})\z", "")
    minutes = _number(text, 2) * 60 + _number(text, 3)
    offset = F.when(F.regexp_extract(text, _ZONE, 1) == "-", -minutes).otherwise(minutes)
    return F.timestamp_micros(F.unix_micros(local.try_cast("timestamp")) - offset * 60_000_000)


def _number(text: Column, group: int) -> Column:
    """Return a part of the zone; zero where there is none."""
    return F.concat(F.lit("0"), F.regexp_extract(text, _ZONE, group)).cast("long")


_CASTS: dict[str | None, Callable[[SparkValue, Instruction], SparkValue | Column]] = {
    "same": lambda value, out: value.value,
    "integer to integer": _narrow,
    "float to integer": _cut_off,
    "number to float": _to_float,
    "bool to number": _plain,
    "bool to text": _plain,
    "integer to text": _plain,
    "moment to text": _time_text,
    "day to text": _time_text,
    "text to integer": _parse(_INT, lambda text, out: text.try_cast(spark_type(out.type))),
    "text to float": _parse(_FLOAT, lambda text, out: text.try_cast("double").cast(spark_type(out.type))),
    "text to bool": _bool,
    "text to moment": _parse(rf"\A{spec.MOMENT_TEXT}\z", _moment),
    "text to day": _parse(rf"\A{spec.DAY_TEXT}\z", lambda text, out: text.try_cast("date")),
    "text to binary": _plain,
    "day to moment": lambda day, out: timestamp_after(
        SparkValue(F.unix_date(day.value), constant=day.constant), DAY
    ),
    "moment to day": _plain,
    "moment to moment": lambda moment, out: moment.value,
    "decimal to float": _plain,
    "wider decimal": _plain,
}


def _cast(node: nodes.Cast, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    return _CASTS[spec.find_cast(out.operands[0], out.type)](inputs[0], out)


def _list_item(node: nodes.ListItem, out: Instruction, inputs: Inputs) -> Column:
    if node.index >= 0:
        return F.get(inputs[0].value, F.lit(node.index))
    return F.try_element_at(inputs[0].value, F.lit(node.index))


def _json(node: nodes.JsonValue, out: Instruction, inputs: Inputs) -> SparkValue:
    """Read it in a worker, by the rule in `expr/nodes`, which gives (value, failed)."""
    path, type = node.path, out.type

    def read(texts: pa.Array) -> pa.Array:
        value = nodes.lower_arrow(nodes.col("text").json(path, type), pa.schema({"text": pa.string()}))(
            pa.RecordBatch.from_arrays([texts.cast(pa.string())], ["text"])
        )
        failed = pa.repeat(False, len(texts)) if value.failed is None else value.failed
        fields = [pa.field("value", type), pa.field("failed", pa.bool_(), nullable=False)]
        return pa.StructArray.from_arrays([value.values, failed], fields=fields)

    returned = StructType(
        [StructField("value", spark_type(type)), StructField("failed", BooleanType(), nullable=False)]
    )
    value = F.arrow_udf(read, returned)(inputs[0].value)
    return SparkValue(value.getField("value"), value.getField("failed"))


RULES: Rules = {
    nodes.Cast: _cast,
    nodes.Field: lambda node, out, inputs: inputs[0].value.getField(node.name),
    nodes.ListLength: lambda node, out, inputs: F.array_size(inputs[0].value).cast("long"),
    nodes.ListItem: _list_item,
    nodes.JsonValue: _json,
}
