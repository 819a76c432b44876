"""Follow the typed program from top to bottom, once, into a Column for the value and one for the failure."""

from __future__ import annotations

import pyarrow as pa

from penstock.engines.spark.expressions import (
    arithmetic,
    cast,
    columns,
    comparison,
    conditional,
    functions,
    nested,
    string,
    time,
)
from penstock.engines.spark.expressions.columns import SharedColumns
from penstock.engines.spark.expressions.spark_value import (
    Inputs,
    Rules,
    SparkValue,
    any_failed,
    null_where_failed,
)
from penstock.errors import NotSupported
from penstock.expr import Expr, InputHandling, Node, resolve
from penstock.expr.program import Instruction

_FAMILIES = (arithmetic, cast, columns, comparison, conditional, functions, nested, string, time)
RULES: Rules = {node: rule for family in _FAMILIES for node, rule in family.RULES.items()}
COPIES: dict[type[Node], int] = {
    **arithmetic.COPIES,
    **cast.COPIES,
    **conditional.COPIES,
    **comparison.COPIES,
    **time.COPIES,
}
SHARED_NODES = 300
"""A part with more nodes is cheaper as a column that is computed once."""
MAX_NODES = 20_000
"""Trees beyond this many nodes would keep Spark's planner busy for longer than the batch."""


def lower_spark(expr: Expr, schema: pa.Schema, *, shared: SharedColumns | None = None) -> SparkValue:
    """Returns the Columns of an expression over rows of that schema; needs a running Spark.

    With `shared`, what is large becomes a column of its own in `shared.rows`, from which the result must then
    be selected; without, an expression that would grow too large is refused.
    """
    results: list[SparkValue] = []
    for instruction in resolve(expr, schema):
        value = _lower(instruction, [results[place] for place in instruction.inputs])
        if shared is not None and value.size > SHARED_NODES:
            value = shared.add(value)
        if value.size > MAX_NODES:
            raise NotSupported(
                f"{instruction.node!s:.80} is too large for one expression on Spark",
                detail="each part that is used twice is written out twice",
                hint="compute a part of it in a step of its own first: .with_columns(part=…)",
            )
        results.append(value)
    return results[-1]


def _lower(instruction: Instruction, inputs: Inputs) -> SparkValue:
    rule = RULES.get(type(instruction.node))
    if rule is None:
        raise NotSupported(
            f"Spark has no rule for {type(instruction.node).__name__}",
            hint="add it in engines/spark/expressions/",
        )
    value = rule(instruction.node, instruction, inputs)
    own = value if isinstance(value, SparkValue) else SparkValue(value)
    if instruction.node.input_handling is not InputHandling.FAILURES:
        own = _with_failures(own, instruction.node, inputs)
    weight, flag = _weights(own, instruction, inputs)
    return SparkValue(own.value, own.failed, own.constant, weight, flag)


def _with_failures(own: SparkValue, node: Node, inputs: Inputs) -> SparkValue:
    """Hands on the failures of inputs; nulls are handed on by Spark's own functions."""
    failed = any_failed(*(value.failed for value in inputs), own.failed)
    if failed is None or node.input_handling is InputHandling.STRICT:
        return SparkValue(own.value, failed, own.constant)
    return null_where_failed(SparkValue(own.value, failed))


def _weights(own: SparkValue, instruction: Instruction, inputs: Inputs) -> tuple[int, int]:
    """Estimates the sizes of the trees: inputs count as often as a rule of this class may write them out."""
    inside = sum(value.weight for value in inputs)
    weight = 1 + inside * COPIES.get(type(instruction.node), 1)
    if own.failed is None:
        return weight, 0
    return weight, 1 + weight + inside + sum(value.flag_weight for value in inputs)
