"""Columns, literals, fields, the hash, and the way out into Spark's own SQL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.rule import Inputs, Lowered, rule
from penstock.engines.spark.types import spark_type
from penstock.expr import Column as Named
from penstock.expr import Field, Hash, Literal, SparkSql
from penstock.expr.program import Line


def column(name: str) -> Column:
    """The column of exactly that name, whatever dots and backticks it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def literal(value: Any, type: pa.DataType) -> Column:
    """A plain value as a typed literal; Spark folds the conversions away before it runs."""
    if value is None:
        return F.lit(None) if kind.is_null(type) else F.lit(None).cast(spark_type(type))
    if kind.is_date32(type):
        return F.date_from_unix_date(F.lit(value))
    if kind.is_timestamp(type):
        return F.timestamp_micros(F.lit(value).cast("long"))
    return F.lit(value).cast(spark_type(type))


@rule.register
def _column(node: Named, line: Line, inputs: Inputs) -> Lowered:
    return Lowered(column(node.name))


@rule.register
def _literal(node: Literal, line: Line, inputs: Inputs) -> Lowered:
    return Lowered(literal(node.value, line.type), constant=node.value)


@rule.register
def _field(node: Field, line: Line, inputs: Inputs) -> Column:
    return inputs[0].value.getField(node.name)


@rule.register
def _hash(node: Hash, line: Line, inputs: Inputs) -> Column:
    return F.xxhash64(*(each.value for each in inputs))


@rule.register
def _spark_sql(node: SparkSql, line: Line, inputs: Inputs) -> Column:
    # The program's own text, as it stands; nothing is put into it.
    return F.expr(node.sql)


# Large parts of expressions as columns of their own, so that what is used twice is computed once.
#
# A Column is a tree, and a rule that needs its input twice doubles it: four such rules inside each other
# would make a tree that Spark plans for minutes. Spark itself puts a column back in place where it is used
# only once.

PREFIX = "__penstock_part_"


class SharedColumns:
    """Rows with the kept parts beside their columns; select from `rows` what is wanted in the end."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self._count = 0

    def kept(self, part: Lowered) -> Lowered:
        """The part as a column of the rows, and its failure as another."""
        name = f"{PREFIX}{self._count}"
        self._count += 1
        made = {name: part.value}
        if part.failed is not None:
            made[f"{name}_failed"] = part.failed
        self.rows = self.rows.withColumns(made)
        failed = None if part.failed is None else column(f"{name}_failed")
        return Lowered(column(name), failed, part.constant, 1, int(failed is not None))
