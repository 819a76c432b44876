"""Logic, null and conditionals in plain Python: the nodes that look at nulls and failures themselves."""

from __future__ import annotations

import math

from penstock.expr.nodes.conditional import And, Case, Coalesce, FillNull, IsNan, IsNotNull, IsNull, Not, Or
from penstock.expr.program import Line
from penstock.expr.python.rule import Failed, Function, rule


@rule.register
def _and(node: And, line: Line) -> Function:
    return lambda a, b: _decided(a, b, by=False)


@rule.register
def _or(node: Or, line: Line) -> Function:
    return lambda a, b: _decided(a, b, by=True)


@rule.register
def _not(node: Not, line: Line) -> Function:
    return lambda a: not a


@rule.register
def _is_null(node: IsNull, line: Line) -> Function:
    return lambda a: a is None


@rule.register
def _is_not_null(node: IsNotNull, line: Line) -> Function:
    return lambda a: a is not None


@rule.register
def _is_nan(node: IsNan, line: Line) -> Function:
    return math.isnan


@rule.register
def _fill_null(node: FillNull, line: Line) -> Function:
    return _first_not_null


@rule.register
def _coalesce(node: Coalesce, line: Line) -> Function:
    return _first_not_null


@rule.register
def _case(node: Case, line: Line) -> Function:
    count = len(node.conditions)

    def chosen(*inputs: object) -> object:
        for condition, value in zip(inputs[:count], inputs[count:], strict=False):
            if isinstance(condition, Failed):
                return condition
            if condition is True:
                return value
        return inputs[-1]

    return chosen


def _decided(left: object, right: object, *, by: bool) -> object:
    """`by` decides from either side; then a failure counts, then a null; else the opposite of `by`."""
    if left is by or right is by:
        return by
    for side in (left, right):
        if isinstance(side, Failed):
            return side
    return None if left is None or right is None else not by


def _first_not_null(*inputs: object) -> object:
    """A failure is not null: reaching one before a value is a failure."""
    return next((value for value in inputs if value is not None), None)
