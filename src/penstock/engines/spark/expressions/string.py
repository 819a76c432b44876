"""Text, lists and JSON. All but JSON runs in the JVM.

JSON is read by the same function as on the other engines, in a Python worker: Spark's own readers take what
JSON forbids (a repeated key, text after the end) and turn what does not fit into null.
"""

from __future__ import annotations

import re
import string as ascii_tables

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from penstock.engines.spark.expressions.rule import Inputs, Lowered, rule
from penstock.engines.spark.types import spark_type
from penstock.expr import (
    Concat,
    Contains,
    EndsWith,
    JsonValue,
    Length,
    ListItem,
    ListLength,
    Lower,
    Replace,
    Slice,
    Split,
    StartsWith,
    Strip,
    Upper,
    col,
    lower_arrow,
)
from penstock.expr.program import Line

_ALL = (1 << 31) - 1  # more characters than a text can have
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


@rule.register
def _lower(node: Lower, line: Line, inputs: Inputs) -> Column:
    return ascii_lower(inputs[0].value)


@rule.register
def _upper(node: Upper, line: Line, inputs: Inputs) -> Column:
    return F.translate(inputs[0].value, ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase)


@rule.register
def _length(node: Length, line: Line, inputs: Inputs) -> Column:
    return F.length(inputs[0].value).cast("long")


@rule.register
def _contains(node: Contains, line: Line, inputs: Inputs) -> Column:
    return inputs[0].value.contains(F.lit(node.pattern))


@rule.register
def _starts_with(node: StartsWith, line: Line, inputs: Inputs) -> Column:
    return inputs[0].value.startswith(F.lit(node.pattern))


@rule.register
def _ends_with(node: EndsWith, line: Line, inputs: Inputs) -> Column:
    return inputs[0].value.endswith(F.lit(node.pattern))


@rule.register
def _split(node: Split, line: Line, inputs: Inputs) -> Column:
    # Spark splits by a regular expression; -1 keeps empty texts at the end.
    pattern = _SPECIAL.sub(lambda found: "\\" + found[0], node.pattern)
    return F.split(inputs[0].value, pattern, -1)


@rule.register
def _replace(node: Replace, line: Line, inputs: Inputs) -> Column:
    return F.replace(inputs[0].value, F.lit(node.pattern), F.lit(node.replacement))


@rule.register
def _strip(node: Strip, line: Line, inputs: Inputs) -> Column:
    return F.btrim(inputs[0].value, F.lit(node.characters))


@rule.register
def _slice(node: Slice, line: Line, inputs: Inputs) -> Column:
    text, length = inputs[0].value, _ALL if node.length is None else node.length
    if node.start >= 0:
        return F.substring(text, min(node.start + 1, _ALL), length)
    # Spark counts the length from a start before the text; the tail must be taken first.
    tail = F.substring(text, node.start, _ALL)
    return tail if node.length is None else F.substring(tail, 1, length)


@rule.register
def _concat(node: Concat, line: Line, inputs: Inputs) -> Column:
    return F.concat(*(each.value for each in inputs))


@rule.register
def _list_length(node: ListLength, line: Line, inputs: Inputs) -> Column:
    return F.array_size(inputs[0].value).cast("long")


@rule.register
def _list_item(node: ListItem, line: Line, inputs: Inputs) -> Column:
    if node.index >= 0:
        return F.get(inputs[0].value, F.lit(node.index))
    return F.try_element_at(inputs[0].value, F.lit(node.index))


@rule.register
def _json(node: JsonValue, line: Line, inputs: Inputs) -> Lowered:
    found = _reader_of_json(node.path, line.type)(inputs[0].value)
    return Lowered(found.getField("value"), found.getField("failed"))


def ascii_lower(text: Column) -> Column:
    """A to Z as a to z; Spark's own lower knows other letters than Python's and Arrow's."""
    return F.translate(text, ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)


def _reader_of_json(path: str, type: pa.DataType) -> Column:
    """A function of a text column that gives (value, failed), by the one rule in `expr/nodes/nested.py`."""
    returned = StructType(
        [StructField("value", spark_type(type)), StructField("failed", BooleanType(), nullable=False)]
    )

    def read(texts: pa.Array) -> pa.Array:
        found = lower_arrow(col("text").json(path, type), pa.schema({"text": pa.string()}))(
            pa.RecordBatch.from_arrays([texts.cast(pa.string())], ["text"])
        )
        failed = pa.repeat(False, len(texts)) if found.failed is None else found.failed
        fields = [pa.field("value", type), pa.field("failed", pa.bool_(), nullable=False)]
        return pa.StructArray.from_arrays([found.values, failed], fields=fields)

    return F.arrow_udf(read, returned)
