"""The hash, and expressions in Spark's own SQL."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.spark_value import Inputs, Rules
from penstock.expr import Hash, SparkSql
from penstock.expr.program import Instruction


def _spark_sql(node: SparkSql, out: Instruction, inputs: Inputs) -> Column:
    # The program's own text, as it stands; nothing is put into it.
    return F.expr(node.sql)


RULES: Rules = {
    Hash: lambda node, out, inputs: F.xxhash64(*(value.value for value in inputs)),
    SparkSql: _spark_sql,
}
