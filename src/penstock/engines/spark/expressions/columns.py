"""Columns, literals and fields in the JVM, and columns that share large parts of expressions.

A Column is a tree, and a rule that needs its input twice doubles it: four such rules inside each other would
make a tree that Spark plans for minutes. `SharedColumns` keeps what is large as a column of its own, which is
computed once. Spark itself puts such a column back in place where it is used only once.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.spark_value import Rules, SparkValue
from penstock.engines.spark.types import spark_type
from penstock.expr import Column as Named
from penstock.expr import Literal


def column(name: str) -> Column:
    """Returns the column of exactly that name, whatever dots and backticks it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def literal(value: Any, type: pa.DataType) -> Column:
    """Returns a plain value as a typed literal; Spark folds the conversions away before it runs."""
    if value is None:
        return F.lit(None) if kind.is_null(type) else F.lit(None).cast(spark_type(type))
    if kind.is_date32(type):
        return F.date_from_unix_date(F.lit(value))
    if kind.is_timestamp(type):
        return F.timestamp_micros(F.lit(value).cast("long"))
    return F.lit(value).cast(spark_type(type))


PREFIX = "__penstock_part_"


class SharedColumns:
    """Rows with the shared parts beside their columns; select from `rows` what is wanted in the end."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self._count = 0

    def add(self, part: SparkValue) -> SparkValue:
        """Makes the part a column of the rows, and its failure another; returns the two."""
        name = f"{PREFIX}{self._count}"
        self._count += 1
        columns = {name: part.value}
        if part.failed is not None:
            columns[f"{name}_failed"] = part.failed
        self.rows = self.rows.withColumns(columns)
        failed = None if part.failed is None else column(f"{name}_failed")
        return SparkValue(column(name), failed, part.constant, 1, int(failed is not None))


RULES: Rules = {
    Named: lambda node, out, inputs: SparkValue(column(node.name)),
    Literal: lambda node, out, inputs: SparkValue(literal(node.value, out.type), constant=node.value),
}
