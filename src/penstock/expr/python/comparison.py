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
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.signature import convert_literal

_OPERATORS: dict[type[Comparison], Callable[[Any, Any], bool]] = {
    Equal: operator.eq,
    NotEqual: operator.ne,
    Less: operator.lt,
    LessEqual: operator.le,
    Greater: operator.gt,
    GreaterEqual: operator.ge,
}


def sort_key(value: object) -> tuple[bool, object]:
    """Returns the value's place in the total order of its type."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0.0 if is_nan else value)


def _compare(node: Comparison, out: Instruction) -> Function:
    holds = _OPERATORS[type(node)]
    return lambda a, b: holds(sort_key(a), sort_key(b))


def _is_in(node: IsIn, out: Instruction) -> Function:
    wanted = [sort_key(convert_literal(value.value, out.operands[0])) for value in node.values]
    return lambda a: sort_key(a) in wanted


RULES: Rules = {
    **dict.fromkeys(_OPERATORS, _compare),
    Between: lambda node, out: lambda a, low, high: sort_key(low) <= sort_key(a) <= sort_key(high),
    IsIn: _is_in,
}
