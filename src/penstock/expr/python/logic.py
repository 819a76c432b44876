"""Comparison, logic, null tests and choices in plain Python.

For comparison each value gets a sort key in which NaN comes last and equals itself. The other nodes handle
nulls and failures themselves.
"""

from __future__ import annotations

import math

from penstock import expr as nodes
from penstock.expr.nodes.logic import COMPARISONS
from penstock.expr.program import Function, Instruction, Rules, convert_literal
from penstock.frozen import dataclass


def sort_key(value: object) -> tuple[bool, object]:
    """Return the value's place in the total order of its type."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0.0 if is_nan else value)


def _compare(node: nodes.Comparison, out: Instruction) -> Function:
    holds = COMPARISONS[type(node)]
    return lambda a, b: holds(sort_key(a), sort_key(b))


def _is_in(node: nodes.IsIn, out: Instruction) -> Function:
    wanted = [sort_key(convert_literal(value.value, out.operands[0])) for value in node.values]
    return lambda a: sort_key(a) in wanted


@dataclass(frozen=True, slots=True)
class FailedValue:
    """Stands for the value of an input that failed."""

    reason: str


def _decide(left: object, right: object, *, by: bool) -> object:
    """Return `by` if either side is it; else a failure, else null, else the opposite of `by`."""
    if left is by or right is by:
        return by
    for side in (left, right):
        if isinstance(side, FailedValue):
            return side
    return None if left is None or right is None else not by


def _first_not_null(*inputs: object) -> object:
    """Return the first input that is not null; a failure is not null."""
    return next((value for value in inputs if value is not None), None)


def _case(node: nodes.Case, out: Instruction) -> Function:
    count = len(node.conditions)

    def choose(*inputs: object) -> object:
        for condition, value in zip(inputs[:count], inputs[count:], strict=False):
            if isinstance(condition, FailedValue):
                return condition
            if condition is True:
                return value
        return inputs[-1]

    return choose


RULES: Rules = {
    **dict.fromkeys(COMPARISONS, _compare),
    nodes.Between: lambda node, out: lambda a, low, high: sort_key(low) <= sort_key(a) <= sort_key(high),
    nodes.IsIn: _is_in,
    nodes.And: lambda node, out: lambda a, b: _decide(a, b, by=False),
    nodes.Or: lambda node, out: lambda a, b: _decide(a, b, by=True),
    nodes.Not: lambda node, out: lambda a: not a,
    nodes.IsNull: lambda node, out: lambda a: a is None,
    nodes.IsNotNull: lambda node, out: lambda a: a is not None,
    nodes.IsNan: lambda node, out: math.isnan,
    nodes.FillNull: lambda node, out: _first_not_null,
    nodes.Coalesce: lambda node, out: _first_not_null,
    nodes.Case: _case,
}
