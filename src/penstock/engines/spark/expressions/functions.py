"""The hash, and expressions in Spark's own SQL."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.spark_value import Inputs, lower_node
from penstock.expr import Hash, SparkSql
from penstock.expr.program import Instruction


@lower_node.register
def _hash(node: Hash, instruction: Instruction, inputs: Inputs) -> Column:
    return F.xxhash64(*(each.value for each in inputs))


@lower_node.register
def _spark_sql(node: SparkSql, instruction: Instruction, inputs: Inputs) -> Column:
    # The program's own text, as it stands; nothing is put into it.
    return F.expr(node.sql)
