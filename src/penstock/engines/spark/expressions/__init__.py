"""The third lowering of the expression language: to columns that Spark computes in the JVM.

`lower_spark(expr, schema, shared=SharedColumns(rows))` follows the typed program of `expr.resolve`, as
`lower_arrow` does, and returns a `SparkValue`: the value's Column, and the Column that is true where the row
failed, or None where no row can. A failed row's value is null and nothing is ever raised inside Spark, so a
plan routes the flagged rows by the step's `on_error`. What cannot fail is the very Column that a person would
write. Large parts are kept as columns of their own in `shared.rows`.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import functions as F

from penstock import expr as nodes
from penstock.engines.spark.expressions import conversion, rules
from penstock.engines.spark.expressions.columns import Inputs, SparkValue, any_failed, column, literal
from penstock.engines.spark.expressions.columns import SharedColumns as SharedColumns
from penstock.expr.node import Expr, InputHandling, Node
from penstock.expr.program import Instruction, Lowering, Rules, resolve

_LEAVES: Rules = {
    nodes.Column: lambda node, out, inputs: SparkValue(column(node.name)),
    nodes.Literal: lambda node, out, inputs: SparkValue(literal(node.value, out.type), constant=node.value),
    # The program's own text, as it stands; nothing is put into it.
    nodes.SparkSql: lambda node, out, inputs: F.expr(node.sql),
}
RULES = Lowering("Spark", "engines/spark/expressions/", _LEAVES | rules.RULES | conversion.RULES)
"""From a node, its instruction and its inputs to the Column that computes it.

A rule may return a SparkValue, with the failures that are its own. Unless the node handles failures itself,
its value must be null where an input is (if it handles nulls, anything); failures of inputs are added by
`lower_spark`. A rule must not return a Column that raises for any values, whatever `spark.sql.ansi.enabled`
says, and `COPIES` says how often an input stands in its value.
"""
COPIES: dict[type[Node], int] = {
    nodes.FloorDivide: 20,
    nodes.Modulo: 8,
    nodes.Cast: 4,
    **dict.fromkeys((nodes.Power, nodes.Floor, nodes.Ceil, nodes.Round), 3),
    **dict.fromkeys((nodes.Between, nodes.IsNan, nodes.Truncate), 2),
    **dict.fromkeys((nodes.Case, nodes.Coalesce, nodes.FillNull), 2),
}
"""How often a rule may write out its inputs, where that is more than once."""
SHARED_NODES = 300
"""A part with more nodes is cheaper as a column that is computed once."""


def lower_spark(expr: Expr, schema: pa.Schema, *, shared: SharedColumns) -> SparkValue:
    """Return the Columns of an expression over rows of that schema; needs a running Spark.

    What is large becomes a column of its own in `shared.rows`, from which the result must then be selected.
    """
    results: list[SparkValue] = []
    for instruction in resolve(expr, schema):
        value = _lower(instruction, [results[place] for place in instruction.inputs])
        results.append(shared.add(value) if value.weight > SHARED_NODES else value)
    return results[-1]


def _lower(instruction: Instruction, inputs: Inputs) -> SparkValue:
    node = instruction.node
    kind = nodes.Column if isinstance(node, nodes.Column) else type(node)  # columns of a join's sides too
    own = RULES[kind](node, instruction, inputs)
    own = own if isinstance(own, SparkValue) else SparkValue(own)
    value, failed = own.value, own.failed
    if node.input_handling is not InputHandling.FAILURES:  # nulls are handed on by Spark's own functions
        failed = any_failed(*(value.failed for value in inputs), failed)
        if failed is not None and node.input_handling is InputHandling.NULLS:
            value = F.when(~failed, value)
    # Inputs count as often as a rule of this class may write them out.
    weight = 1 + sum(value.weight for value in inputs) * COPIES.get(type(node), 1)
    return SparkValue(value, failed, own.constant, weight if failed is None else 2 * weight)
