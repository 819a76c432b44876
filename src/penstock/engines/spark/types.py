"""The types of rows in Spark, and the way of batches between Arrow and Spark.

Inside our plans every timestamp is Spark's TIMESTAMP, microseconds in UTC, whether or not its Arrow type
names a zone: the session's zone is UTC, so both mean the same instants, and TIMESTAMP turns into its integer
for nothing while TIMESTAMP_NTZ goes through a calendar. The zone is a label that our own schema keeps;
`from_spark` puts it back. All else has exactly one Spark type.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kind

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

UTC = "UTC"


@cache
def spark_type(type: pa.DataType) -> DataType:
    """Return the Spark type of a canonical Arrow type."""
    from pyspark.sql import types as spark

    if kind.is_timestamp(type):
        return spark.TimestampType()
    if kind.is_decimal128(type):
        return spark.DecimalType(type.precision, type.scale)
    if kind.is_list(type):
        return spark.ArrayType(spark_type(type.value_type), containsNull=True)
    if kind.is_struct(type):
        return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in type])
    simple = {
        pa.bool_(): spark.BooleanType,
        pa.int8(): spark.ByteType,
        pa.int16(): spark.ShortType,
        pa.int32(): spark.IntegerType,
        pa.int64(): spark.LongType,
        pa.float32(): spark.FloatType,
        pa.float64(): spark.DoubleType,
        pa.string(): spark.StringType,
        pa.binary(): spark.BinaryType,
        pa.date32(): spark.DateType,
    }
    assert type in simple, f"{type} is not canonical"
    return simple[type]()


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a canonical one; every column may be null."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, spark_type(field.type)) for field in schema])


def arrow_in_spark(type: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark hands over and takes a column of the canonical type."""
    if kind.is_timestamp(type):
        return pa.timestamp("us", UTC)
    if kind.is_list(type):
        return pa.list_(arrow_in_spark(type.value_type))
    if kind.is_struct(type):
        return pa.struct([field.with_type(arrow_in_spark(field.type)) for field in type])
    return type


def to_spark(batch: Any) -> Any:
    """Return a batch or table as Spark takes it: every timestamp labelled UTC, nothing copied."""
    fields = [pa.field(field.name, arrow_in_spark(field.type)) for field in batch.schema]
    return _relabel(batch, pa.schema(fields))


def from_spark(batch: Any, schema: pa.Schema) -> Any:
    """Return a batch or table that came from Spark, in the types of our own schema, nothing copied."""
    return _relabel(batch, schema)


def _relabel(batch: Any, schema: pa.Schema) -> Any:
    columns = [
        column if column.type == field.type else column.cast(field.type, safe=False)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return type(batch).from_arrays(columns, schema=schema)
