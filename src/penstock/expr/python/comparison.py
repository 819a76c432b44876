"""Comparison in plain Python: each value gets a sort key in which NaN comes last and equals itself."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from penstock.expr.nodes.comparison import (
    Between,
    Comparison,
    Equal,
    Greater,
    GreaterEqual,
    IsIn,
    Less,
    LessEqual,
    NotEqual,
)
from penstock.expr.program import Line
from penstock.expr.python.rule import Function, rule
from penstock.expr.signature import converted

_OPERATORS: dict[type[Comparison], Callable[[Any, Any], bool]] = {
    Equal: operator.eq,
    NotEqual: operator.ne,
    Less: operator.lt,
    LessEqual: operator.le,
    Greater: operator.gt,
    GreaterEqual: operator.ge,
}


def order(value: object) -> tuple[bool, object]:
    """The value's place in the total order of its type."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0.0 if is_nan else value)


@rule.register
def _comparison(node: Comparison, line: Line) -> Function:
    holds = _OPERATORS[type(node)]
    return lambda a, b: holds(order(a), order(b))


@rule.register
def _between(node: Between, line: Line) -> Function:
    return lambda a, low, high: order(low) <= order(a) <= order(high)


@rule.register
def _is_in(node: IsIn, line: Line) -> Function:
    wanted = [order(converted(value.value, line.operands[0])) for value in node.values]
    return lambda a: order(a) in wanted
