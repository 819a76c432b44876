"""The third lowering of the expression language: to columns that Spark computes in the JVM.

`lower_spark(expr, schema)` follows the typed program of `expr.resolve`, as `lower_arrow` does, and returns a
`SparkValue`: the value's Column, and the Column that is true where the row failed, or None where no row can.
A failed row's value is null and nothing is ever raised inside Spark, so a plan routes the flagged rows by the
step's `on_error`. What cannot fail is the very Column that a person would write. Deep expressions need
`SharedColumns(rows)`, which keeps large parts as columns of their own.
"""

from penstock.engines.spark.expressions.columns import SharedColumns as SharedColumns
from penstock.engines.spark.expressions.columns import SparkValue as SparkValue
from penstock.engines.spark.expressions.lower import lower_spark as lower_spark
