"""The expressions that a step evaluates, wherever its operator keeps them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.expr import Expr
from penstock.expr.spark_only import SparkSql
from penstock.expr.walk import post_order
from penstock.operators.filter import Filter
from penstock.operators.flat_map import FlatMap
from penstock.operators.function import Expressions
from penstock.operators.map import Map, Select
from penstock.operators.op import Op
from penstock.operators.source import Source
from penstock.operators.split import Split
from penstock.operators.windows import Windows


def expressions_of(op: Op) -> Iterator[Expr]:
    """All expressions of an operator; none for those that take functions only."""
    match op:
        case Map() | FlatMap():
            if isinstance(op.how, Expressions):
                yield from (expr for _, expr in op.how.columns)
        case Select():
            yield from (expr for _, expr in op.columns)
        case Filter() | Split():
            if isinstance(op.how, Expr):
                yield op.how
            if isinstance(op, Split):
                yield from (op.predicates or {}).values()
        case Windows():
            yield from (each.value for each in (op.aggregates or {}).values() if each.value is not None)
        case Source():
            if isinstance(op.watermark, Expr):
                yield op.watermark


def only_on_spark(op: Op) -> str | None:
    """The first piece of Spark SQL in an operator's expressions, or None."""
    for expr in expressions_of(op):
        for node in post_order(expr):
            if isinstance(node, SparkSql):
                return str(node)
    return None
