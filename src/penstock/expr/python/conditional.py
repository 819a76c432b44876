"""Logic, null and conditionals in plain Python: the nodes that look at nulls and failures themselves."""

from __future__ import annotations

import math

from penstock.expr.nodes.conditional import And, Case, Coalesce, FillNull, IsNan, IsNotNull, IsNull, Not, Or
from penstock.expr.program import Instruction
from penstock.expr.python.lower import Failed, Function, lower_node


@lower_node.register
def _and(node: And, instruction: Instruction) -> Function:
    return lambda a, b: _decide(a, b, by=False)


@lower_node.register
def _or(node: Or, instruction: Instruction) -> Function:
    return lambda a, b: _decide(a, b, by=True)


@lower_node.register
def _not(node: Not, instruction: Instruction) -> Function:
    return lambda a: not a


@lower_node.register
def _is_null(node: IsNull, instruction: Instruction) -> Function:
    return lambda a: a is None


@lower_node.register
def _is_not_null(node: IsNotNull, instruction: Instruction) -> Function:
    return lambda a: a is not None


@lower_node.register
def _is_nan(node: IsNan, instruction: Instruction) -> Function:
    return math.isnan


@lower_node.register
def _fill_null(node: FillNull, instruction: Instruction) -> Function:
    return _first_not_null


@lower_node.register
def _coalesce(node: Coalesce, instruction: Instruction) -> Function:
    return _first_not_null


@lower_node.register
def _case(node: Case, instruction: Instruction) -> Function:
    count = len(node.conditions)

    def chosen(*inputs: object) -> object:
        for condition, value in zip(inputs[:count], inputs[count:], strict=False):
            if isinstance(condition, Failed):
                return condition
            if condition is True:
                return value
        return inputs[-1]

    return chosen


def _decide(left: object, right: object, *, by: bool) -> object:
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
