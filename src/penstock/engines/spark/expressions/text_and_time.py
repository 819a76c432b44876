"""Text in the JVM, and times: as integers, and by Spark's calendar where the session's zone is UTC."""

from __future__ import annotations

import re
import string as ascii_tables

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock import expr as nodes
from penstock.engines.spark.expressions.columns import Inputs, SparkValue, fail_where_null
from penstock.expr.nodes.text_and_time import UNITS
from penstock.expr.program import Instruction, Rules

_ALL = (1 << 31) - 1  # more characters than a text can have
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
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


def _split(node: nodes.Split, out: Instruction, inputs: Inputs) -> Column:
    # Spark splits by a regular expression; -1 keeps empty texts at the end.
    pattern = _SPECIAL.sub(lambda match: "\\" + match[0], node.pattern)
    return F.split(inputs[0].value, pattern, -1)


def _slice(node: nodes.Slice, out: Instruction, inputs: Inputs) -> Column:
    text, length = inputs[0].value, _ALL if node.length is None else node.length
    if node.start >= 0:
        return F.substring(text, min(node.start + 1, _ALL), length)
    # Spark counts the length from a start before the text; the tail must be taken first.
    tail = F.substring(text, node.start, _ALL)
    return tail if node.length is None else F.substring(tail, 1, length)


def ascii_lower(text: Column) -> Column:
    """Return A to Z as a to z; Spark's own lower knows other letters than Python's and Arrow's."""
    return F.translate(text, ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)


def _epoch(node: nodes.Epoch, out: Instruction, inputs: Inputs) -> Column:
    if node.unit in _COUNTS:
        return _COUNTS[node.unit](inputs[0].value)
    return F.unix_date(inputs[0].value.cast("date")).cast("long")


def _from_epoch(node: nodes.FromEpoch, out: Instruction, inputs: Inputs) -> SparkValue | Column:
    (count,) = inputs
    if node.unit == "us":
        return F.timestamp_micros(count.value)
    return timestamp_after(count, UNITS[node.unit])


def _truncate(node: nodes.Truncate, out: Instruction, inputs: Inputs) -> SparkValue:
    micros = F.unix_micros(inputs[0].value)
    down = F.try_subtract(micros, F.pmod(micros, F.lit(node.micros).cast("long")))
    return fail_where_null(F.timestamp_micros(down), *inputs)


def _shift(node: nodes.Shift, out: Instruction, inputs: Inputs) -> SparkValue:
    moved = F.try_add(F.unix_micros(inputs[0].value), F.lit(node.micros).cast("long"))
    return fail_where_null(F.timestamp_micros(moved), *inputs)


def timestamp_after(count: SparkValue, length: int) -> SparkValue:
    """Return the timestamp `count` lengths after 1970; beyond 64 bits the row fails."""
    micros = F.try_multiply(count.value.cast("long"), F.lit(length).cast("long"))
    return fail_where_null(F.timestamp_micros(micros), count)


RULES: Rules = {
    nodes.Lower: lambda node, out, inputs: ascii_lower(inputs[0].value),
    nodes.Upper: lambda node, out, inputs: F.translate(
        inputs[0].value, ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase
    ),
    nodes.Length: lambda node, out, inputs: F.length(inputs[0].value).cast("long"),
    nodes.Contains: lambda node, out, inputs: inputs[0].value.contains(F.lit(node.pattern)),
    nodes.StartsWith: lambda node, out, inputs: inputs[0].value.startswith(F.lit(node.pattern)),
    nodes.EndsWith: lambda node, out, inputs: inputs[0].value.endswith(F.lit(node.pattern)),
    nodes.Split: _split,
    nodes.Replace: lambda node, out, inputs: F.replace(
        inputs[0].value, F.lit(node.pattern), F.lit(node.replacement)
    ),
    nodes.Strip: lambda node, out, inputs: F.btrim(inputs[0].value, F.lit(node.characters)),
    nodes.Slice: _slice,
    nodes.Concat: lambda node, out, inputs: F.concat(*(text.value for text in inputs)),
    nodes.TimePart: lambda node, out, inputs: _PARTS[node.part](inputs[0].value).cast("long"),
    nodes.Epoch: _epoch,
    nodes.FromEpoch: _from_epoch,
    nodes.Truncate: _truncate,
    nodes.Shift: _shift,
}
