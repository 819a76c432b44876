"""Logic, null and conditionals on arrays, with the failures that each choice lets through."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr import compute as pc
from penstock.expr.arrow.evaluated import Evaluated, either
from penstock.expr.arrow.rule import Function, kernel, rule
from penstock.expr.nodes.conditional import And, Case, Coalesce, FillNull, IsNan, IsNotNull, IsNull, Not, Or
from penstock.expr.program import Line


@rule.register
def _and(node: And, line: Line) -> Function:
    return lambda a, b: _undecided_fails(pc.and_kleene(a.values, b.values), a, b)


@rule.register
def _or(node: Or, line: Line) -> Function:
    return lambda a, b: _undecided_fails(pc.or_kleene(a.values, b.values), a, b)


@rule.register
def _not(node: Not, line: Line) -> Function:
    return kernel(pc.invert)


@rule.register
def _is_null(node: IsNull, line: Line) -> Function:
    return kernel(pc.is_null)


@rule.register
def _is_not_null(node: IsNotNull, line: Line) -> Function:
    return kernel(pc.is_valid)


@rule.register
def _is_nan(node: IsNan, line: Line) -> Function:
    return kernel(pc.is_nan)


@rule.register
def _fill_null(node: FillNull, line: Line) -> Function:
    return _first_not_null


@rule.register
def _coalesce(node: Coalesce, line: Line) -> Function:
    return _first_not_null


@rule.register
def _case(node: Case, line: Line) -> Function:
    count = len(node.conditions)

    def chosen(*inputs: Evaluated) -> Evaluated:
        taken = inputs[-1]
        # From the last condition to the first, so that an earlier one overrules what comes after it.
        for condition, value in zip(reversed(inputs[:count]), reversed(inputs[count:-1]), strict=True):
            taken = _if_else(condition, value, taken)
        return taken

    return chosen


def _if_else(condition: Evaluated, value: Evaluated, other: Evaluated) -> Evaluated:
    holds = pc.fill_null(condition.values, False)
    values = pc.if_else(holds, value.values, other.values)
    inside = _if_else_failed(holds, value.failed, other.failed)
    return Evaluated(values, either(condition.failed, inside))


def _if_else_failed(
    holds: pa.BooleanArray, then: pa.BooleanArray | None, other: pa.BooleanArray | None
) -> pa.BooleanArray | None:
    if then is None and other is None:
        return None
    no = pa.scalar(False)
    return pc.if_else(holds, no if then is None else then, no if other is None else other)


def _undecided_fails(values: pa.BooleanArray, a: Evaluated, b: Evaluated) -> Evaluated:
    """A failed side is null here; where the other side decided, the result is not null and nothing failed."""
    failed = either(a.failed, b.failed)
    return Evaluated(values, None if failed is None else pc.and_(failed, values.is_null()))


def _first_not_null(*inputs: Evaluated) -> Evaluated:
    """From the last to the first: a value hides what comes after it, and so does a failure."""
    taken = inputs[-1]
    for each in reversed(inputs[:-1]):
        there = each.values.is_valid()
        values = pc.if_else(there, each.values, taken.values)
        inherited = None if taken.failed is None else pc.and_not(taken.failed, there)
        taken = Evaluated(values, either(each.failed, inherited))
    return taken
