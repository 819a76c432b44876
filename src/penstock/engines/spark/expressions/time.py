"""Dates and timestamps in the JVM: as integers, and by Spark's calendar where the session's zone is UTC."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.spark_value import Inputs, Rules, SparkValue, fail_where_null
from penstock.expr import Epoch, FromEpoch, Node, Shift, TimePart, Truncate
from penstock.expr.nodes.time import UNITS
from penstock.expr.program import Instruction

DAY = UNITS["d"]
COPIES: dict[type[Node], int] = {Truncate: 2}
_PARTS = {
    "year": F.year,
    "month": F.month,
    "day": F.dayofmonth,
    "weekday": F.weekday,
    "hour": F.hour,
    "minute": F.minute,
    "second": F.second,
}
_COUNTS = {"us": F.unix_micros, "ms": F.unix_millis, "s": F.unix_seconds}


def _epoch(node: Epoch, out: Instruction, inputs: Inputs) -> Column:
    if node.unit in _COUNTS:
        return _COUNTS[node.unit](inputs[0].value)
    return F.unix_date(inputs[0].value.cast("date")).cast("long")


def _from_epoch(node: FromEpoch, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    (count,) = inputs
    if node.unit == "us":
        return F.timestamp_micros(count.value)
    return timestamp_after(count, UNITS[node.unit])


def _truncate(node: Truncate, out: Instruction, inputs: Inputs) -> SparkValue:
    micros = F.unix_micros(inputs[0].value)
    down = F.try_subtract(micros, F.pmod(micros, F.lit(node.micros).cast("long")))
    return fail_where_null(F.timestamp_micros(down), *inputs)


def _shift(node: Shift, out: Instruction, inputs: Inputs) -> SparkValue:
    moved = F.try_add(F.unix_micros(inputs[0].value), F.lit(node.micros).cast("long"))
    return fail_where_null(F.timestamp_micros(moved), *inputs)


def timestamp_after(count: SparkValue, length: int) -> SparkValue:
    """Returns the timestamp `count` lengths after 1970; beyond 64 bits the row fails."""
    micros = F.try_multiply(count.value.cast("long"), F.lit(length).cast("long"))
    return fail_where_null(F.timestamp_micros(micros), count)


RULES: Rules = {
    TimePart: lambda node, out, inputs: _PARTS[node.part](inputs[0].value).cast("long"),
    Epoch: _epoch,
    FromEpoch: _from_epoch,
    Truncate: _truncate,
    Shift: _shift,
}
