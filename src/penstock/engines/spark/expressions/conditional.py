"""Logic, null and conditionals in the JVM, with the failures that each choice lets through."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.spark_value import (
    Inputs,
    SparkValue,
    any_failed,
    lower_node,
    null_where_failed,
)
from penstock.expr import And, Case, Coalesce, FillNull, IsNan, IsNotNull, IsNull, Node, Not, Or
from penstock.expr.program import Instruction

COPIES: dict[type[Node], int] = {IsNan: 2, Case: 2, Coalesce: 2, FillNull: 2}


@lower_node.register
def _and(node: And, instruction: Instruction, inputs: Inputs) -> SparkValue:
    return _undecided_fails(inputs[0].value & inputs[1].value, inputs)


@lower_node.register
def _or(node: Or, instruction: Instruction, inputs: Inputs) -> SparkValue:
    return _undecided_fails(inputs[0].value | inputs[1].value, inputs)


@lower_node.register
def _not(node: Not, instruction: Instruction, inputs: Inputs) -> Column:
    return ~inputs[0].value


@lower_node.register
def _is_null(node: IsNull, instruction: Instruction, inputs: Inputs) -> Column:
    return inputs[0].value.isNull()


@lower_node.register
def _is_not_null(node: IsNotNull, instruction: Instruction, inputs: Inputs) -> Column:
    return inputs[0].value.isNotNull()


@lower_node.register
def _is_nan(node: IsNan, instruction: Instruction, inputs: Inputs) -> Column:
    # Spark's isnan of null is false.
    return F.when(inputs[0].value.isNotNull(), F.isnan(inputs[0].value))


@lower_node.register
def _fill_null(node: FillNull, instruction: Instruction, inputs: Inputs) -> SparkValue:
    return _first_not_null(inputs)


@lower_node.register
def _coalesce(node: Coalesce, instruction: Instruction, inputs: Inputs) -> SparkValue:
    return _first_not_null(inputs)


@lower_node.register
def _case(node: Case, instruction: Instruction, inputs: Inputs) -> SparkValue:
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


def _undecided_fails(value: Column, inputs: Inputs) -> SparkValue:
    """A failed side is null here; where the other side decided, the result is not null and nothing failed."""
    failed = any_failed(*(each.failed for each in inputs))
    return SparkValue(value, None if failed is None else failed & value.isNull())


def _first_not_null(inputs: Inputs) -> SparkValue:
    """From the last to the first: a value hides what comes after it, and so does a failure."""
    failed = inputs[-1].failed
    for each in reversed(inputs[:-1]):
        inherited = None if failed is None else each.value.isNull() & failed
        failed = any_failed(each.failed, inherited)
    return null_where_failed(SparkValue(F.coalesce(*(each.value for each in inputs)), failed))
