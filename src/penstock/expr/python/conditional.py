"""Logic, null and conditionals in plain Python: the nodes that handle nulls and failures themselves."""

from __future__ import annotations

import math

from penstock.expr.nodes.conditional import And, Case, Coalesce, FillNull, IsNan, IsNotNull, IsNull, Not, Or
from penstock.expr.program import Function, Instruction, Rules
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class FailedValue:
    """Stands for the value of an input that failed."""

    reason: str


def _decide(left: object, right: object, *, by: bool) -> object:
    """Returns `by` if either side is it; else a failure, else null, else the opposite of `by`."""
    if left is by or right is by:
        return by
    for side in (left, right):
        if isinstance(side, FailedValue):
            return side
    return None if left is None or right is None else not by


def _first_not_null(*inputs: object) -> object:
    """Returns the first input that is not null; a failure is not null."""
    return next((value for value in inputs if value is not None), None)


def _case(node: Case, out: Instruction) -> Function:
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
    And: lambda node, out: lambda a, b: _decide(a, b, by=False),
    Or: lambda node, out: lambda a, b: _decide(a, b, by=True),
    Not: lambda node, out: lambda a: not a,
    IsNull: lambda node, out: lambda a: a is None,
    IsNotNull: lambda node, out: lambda a: a is not None,
    IsNan: lambda node, out: math.isnan,
    FillNull: lambda node, out: _first_not_null,
    Coalesce: lambda node, out: _first_not_null,
    Case: _case,
}
