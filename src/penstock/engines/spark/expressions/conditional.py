"""Logic, null and conditionals in the JVM, with the failures that value choice lets through."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.spark_value import (
    Inputs,
    Rules,
    SparkValue,
    any_failed,
    null_where_failed,
)
from penstock.expr import And, Case, Coalesce, FillNull, IsNan, IsNotNull, IsNull, Node, Not, Or
from penstock.expr.program import Instruction

COPIES: dict[type[Node], int] = {IsNan: 2, Case: 2, Coalesce: 2, FillNull: 2}


def _is_nan(node: IsNan, out: Instruction, inputs: Inputs) -> Column:
    # Spark's isnan of null is false.
    return F.when(inputs[0].value.isNotNull(), F.isnan(inputs[0].value))


def _case(node: Case, out: Instruction, inputs: Inputs) -> SparkValue:
    count = len(node.conditions)
    conditions, values, default = inputs[:count], inputs[count:-1], inputs[-1]
    chosen = F.when(conditions[0].value, values[0].value)
    for condition, value in zip(conditions[1:], values[1:], strict=True):
        chosen = chosen.when(condition.value, value.value)
    failed = default.failed
    # From the last condition to the first, so that an earlier one overrules what comes after it.
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        failed = any_failed(condition.failed, _if_else(condition.value, value.failed, failed))
    return null_where_failed(SparkValue(chosen.otherwise(default.value), failed))


def _if_else(holds: Column, then: Column | None, other: Column | None) -> Column | None:
    if then is None and other is None:
        return None
    no = F.lit(False)
    return F.when(holds, no if then is None else then).otherwise(no if other is None else other)


def _fail_undecided(value: Column, inputs: Inputs) -> SparkValue:
    """Fails where a side failed, which is null here, and the other side did not decide."""
    failed = any_failed(*(value.failed for value in inputs))
    return SparkValue(value, None if failed is None else failed & value.isNull())


def _first_not_null(inputs: Inputs) -> SparkValue:
    """Goes from the last to the first: a value hides what comes after it, and so does a failure."""
    failed = inputs[-1].failed
    for value in reversed(inputs[:-1]):
        inherited = None if failed is None else value.value.isNull() & failed
        failed = any_failed(value.failed, inherited)
    return null_where_failed(SparkValue(F.coalesce(*(value.value for value in inputs)), failed))


RULES: Rules = {
    And: lambda node, out, inputs: _fail_undecided(inputs[0].value & inputs[1].value, inputs),
    Or: lambda node, out, inputs: _fail_undecided(inputs[0].value | inputs[1].value, inputs),
    Not: lambda node, out, inputs: ~inputs[0].value,
    IsNull: lambda node, out, inputs: inputs[0].value.isNull(),
    IsNotNull: lambda node, out, inputs: inputs[0].value.isNotNull(),
    IsNan: _is_nan,
    FillNull: lambda node, out, inputs: _first_not_null(inputs),
    Coalesce: lambda node, out, inputs: _first_not_null(inputs),
    Case: _case,
}
