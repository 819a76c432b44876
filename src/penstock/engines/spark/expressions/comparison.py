"""Comparison in the JVM, whose order is ours: NaN equals itself and is greatest, -0.0 equals 0.0."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.columns import literal
from penstock.engines.spark.expressions.spark_value import Inputs, Rules, all_present
from penstock.expr import Between, Equal, Greater, GreaterEqual, IsIn, Less, LessEqual, Node, NotEqual
from penstock.expr.nodes.comparison import Comparison
from penstock.expr.program import Instruction
from penstock.expr.signature import convert_literal

COPIES: dict[type[Node], int] = {Between: 2}
_OPERATORS: dict[type[Comparison], Callable[[Any, Any], Any]] = {
    Equal: operator.eq,
    NotEqual: operator.ne,
    Less: operator.lt,
    LessEqual: operator.le,
    Greater: operator.gt,
    GreaterEqual: operator.ge,
}


def _comparison(node: Comparison, out: Instruction, inputs: Inputs) -> Column:
    compared: Column = _OPERATORS[type(node)](inputs[0].value, inputs[1].value)
    return compared


def _between(node: Between, out: Instruction, inputs: Inputs) -> Column:
    value, low, high = inputs
    within = value.value.between(low.value, high.value)
    # Spark's is false as soon as one bound is missed; ours is null while the other bound is null.
    known = all_present(low, high)
    return within if known is None else F.when(known, within)


def _is_in(node: IsIn, out: Instruction, inputs: Inputs) -> Column:
    (type,), (tested,) = out.operands, inputs
    wanted = [convert_literal(value.value, type) for value in node.values]
    if not wanted:
        return F.when(tested.value.isNotNull(), F.lit(False))
    if kind.is_floating(type) and 0.0 in wanted:
        wanted += [0.0, -0.0]  # many values are looked up by their bits, in which the zeros differ
    return tested.value.isin([literal(value, type) for value in wanted])


RULES: Rules = {
    **dict.fromkeys(_OPERATORS, _comparison),
    Between: _between,
    IsIn: _is_in,
}
