"""Fields of structs and items of lists in the JVM, and JSON in a Python worker.

JSON is read by the same function as on the other engines: Spark's own readers take what JSON forbids (a
repeated key, text after the end) and turn what does not fit into null.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from penstock.engines.spark.expressions.spark_value import Inputs, Rules, SparkValue
from penstock.engines.spark.types import spark_type
from penstock.expr import Field, JsonValue, ListItem, ListLength, col, lower_arrow
from penstock.expr.program import Instruction


def _list_item(node: ListItem, out: Instruction, inputs: Inputs) -> Column:
    if node.index >= 0:
        return F.get(inputs[0].value, F.lit(node.index))
    return F.try_element_at(inputs[0].value, F.lit(node.index))


def _json(node: JsonValue, out: Instruction, inputs: Inputs) -> SparkValue:
    value = _json_reader(node.path, out.type)(inputs[0].value)
    return SparkValue(value.getField("value"), value.getField("failed"))


def _json_reader(path: str, type: pa.DataType) -> Column:
    """Returns a function of a text column that gives (value, failed), by the rule in `expr/nodes`."""
    returned = StructType(
        [StructField("value", spark_type(type)), StructField("failed", BooleanType(), nullable=False)]
    )

    def read(texts: pa.Array) -> pa.Array:
        value = lower_arrow(col("text").json(path, type), pa.schema({"text": pa.string()}))(
            pa.RecordBatch.from_arrays([texts.cast(pa.string())], ["text"])
        )
        failed = pa.repeat(False, len(texts)) if value.failed is None else value.failed
        fields = [pa.field("value", type), pa.field("failed", pa.bool_(), nullable=False)]
        return pa.StructArray.from_arrays([value.values, failed], fields=fields)

    return F.arrow_udf(read, returned)


RULES: Rules = {
    Field: lambda node, out, inputs: inputs[0].value.getField(node.name),
    ListLength: lambda node, out, inputs: F.array_size(inputs[0].value).cast("long"),
    ListItem: _list_item,
    JsonValue: _json,
}
