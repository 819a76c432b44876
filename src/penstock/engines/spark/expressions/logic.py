"""Comparison, logic, null tests and choices in the JVM, with the failures that each choice lets through.

Its order is ours: NaN equals itself and is greatest, -0.0 equals 0.0.
"""

from __future__ import annotations

import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock import expr as nodes
from penstock.engines.spark.expressions.columns import (
    Inputs,
    SparkValue,
    all_present,
    any_failed,
    literal,
    null_where_failed,
)
from penstock.expr.nodes.logic import COMPARISONS
from penstock.expr.program import Instruction, Rules, convert_literal


def _comparison(node: nodes.Comparison, out: Instruction, inputs: Inputs) -> Column:
    compared: Column = COMPARISONS[type(node)](inputs[0].value, inputs[1].value)
    return compared


def _between(node: nodes.Between, out: Instruction, inputs: Inputs) -> Column:
    value, low, high = inputs
    within = value.value.between(low.value, high.value)
    # Spark's is false as soon as one bound is missed; ours is null while the other bound is null.
    known = all_present(low, high)
    return within if known is None else F.when(known, within)


def _is_in(node: nodes.IsIn, out: Instruction, inputs: Inputs) -> Column:
    (type,), (tested,) = out.operands, inputs
    wanted = [convert_literal(value.value, type) for value in node.values]
    if not wanted:
        return F.when(tested.value.isNotNull(), F.lit(False))
    if kind.is_floating(type) and 0.0 in wanted:
        wanted += [0.0, -0.0]  # many values are looked up by their bits, in which the zeros differ
    return tested.value.isin([literal(value, type) for value in wanted])


def _is_nan(node: nodes.IsNan, out: Instruction, inputs: Inputs) -> Column:
    # Spark's isnan of null is false.
    return F.when(inputs[0].value.isNotNull(), F.isnan(inputs[0].value))


def _case(node: nodes.Case, out: Instruction, inputs: Inputs) -> SparkValue:
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
    """Fail where a side failed, which is null here, and the other side did not decide."""
    failed = any_failed(*(value.failed for value in inputs))
    return SparkValue(value, None if failed is None else failed & value.isNull())


def _first_not_null(inputs: Inputs) -> SparkValue:
    """Go from the last to the first: a value hides what comes after it, and so does a failure."""
    failed = inputs[-1].failed
    for value in reversed(inputs[:-1]):
        inherited = None if failed is None else value.value.isNull() & failed
        failed = any_failed(value.failed, inherited)
    return null_where_failed(SparkValue(F.coalesce(*(value.value for value in inputs)), failed))


RULES: Rules = {
    **dict.fromkeys(COMPARISONS, _comparison),
    nodes.Between: _between,
    nodes.IsIn: _is_in,
    nodes.And: lambda node, out, inputs: _fail_undecided(inputs[0].value & inputs[1].value, inputs),
    nodes.Or: lambda node, out, inputs: _fail_undecided(inputs[0].value | inputs[1].value, inputs),
    nodes.Not: lambda node, out, inputs: ~inputs[0].value,
    nodes.IsNull: lambda node, out, inputs: inputs[0].value.isNull(),
    nodes.IsNotNull: lambda node, out, inputs: inputs[0].value.isNotNull(),
    nodes.IsNan: _is_nan,
    nodes.FillNull: lambda node, out, inputs: _first_not_null(inputs),
    nodes.Coalesce: lambda node, out, inputs: _first_not_null(inputs),
    nodes.Case: _case,
}
