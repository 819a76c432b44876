"""Logic, null and conditionals on arrays, with the failures that each choice lets through."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, any_failed
from penstock.expr.arrow.lower import Function, kernel, lower_node
from penstock.expr.nodes.conditional import And, Case, Coalesce, FillNull, IsNan, IsNotNull, IsNull, Not, Or
from penstock.expr.program import Instruction


@lower_node.register
def _and(node: And, instruction: Instruction) -> Function:
    return lambda a, b: _fail_undecided(pc.and_kleene(a.values, b.values), a, b)


@lower_node.register
def _or(node: Or, instruction: Instruction) -> Function:
    return lambda a, b: _fail_undecided(pc.or_kleene(a.values, b.values), a, b)


@lower_node.register
def _not(node: Not, instruction: Instruction) -> Function:
    return kernel(pc.invert)


@lower_node.register
def _is_null(node: IsNull, instruction: Instruction) -> Function:
    return kernel(pc.is_null)


@lower_node.register
def _is_not_null(node: IsNotNull, instruction: Instruction) -> Function:
    return kernel(pc.is_valid)


@lower_node.register
def _is_nan(node: IsNan, instruction: Instruction) -> Function:
    return kernel(pc.is_nan)


@lower_node.register
def _fill_null(node: FillNull, instruction: Instruction) -> Function:
    return _first_not_null


@lower_node.register
def _coalesce(node: Coalesce, instruction: Instruction) -> Function:
    return _first_not_null


@lower_node.register
def _case(node: Case, instruction: Instruction) -> Function:
    count = len(node.conditions)

    def chosen(*inputs: ColumnarValue) -> ColumnarValue:
        taken = inputs[-1]
        # From the last condition to the first, so that an earlier one overrules what comes after it.
        for condition, value in zip(reversed(inputs[:count]), reversed(inputs[count:-1]), strict=True):
            taken = _if_else(condition, value, taken)
        return taken

    return chosen


def _if_else(condition: ColumnarValue, value: ColumnarValue, other: ColumnarValue) -> ColumnarValue:
    holds = pc.fill_null(condition.values, False)
    values = pc.if_else(holds, value.values, other.values)
    inside = _if_else_failed(holds, value.failed, other.failed)
    return ColumnarValue(values, any_failed(condition.failed, inside))


def _if_else_failed(
    holds: pa.BooleanArray, then: pa.BooleanArray | None, other: pa.BooleanArray | None
) -> pa.BooleanArray | None:
    if then is None and other is None:
        return None
    no = pa.scalar(False)
    return pc.if_else(holds, no if then is None else then, no if other is None else other)


def _fail_undecided(values: pa.BooleanArray, a: ColumnarValue, b: ColumnarValue) -> ColumnarValue:
    """A failed side is null here; where the other side decided, the result is not null and nothing failed."""
    failed = any_failed(a.failed, b.failed)
    return ColumnarValue(values, None if failed is None else pc.and_(failed, values.is_null()))


def _first_not_null(*inputs: ColumnarValue) -> ColumnarValue:
    """From the last to the first: a value hides what comes after it, and so does a failure."""
    taken = inputs[-1]
    for each in reversed(inputs[:-1]):
        there = each.values.is_valid()
        values = pc.if_else(there, each.values, taken.values)
        inherited = None if taken.failed is None else pc.and_not(taken.failed, there)
        taken = ColumnarValue(values, any_failed(each.failed, inherited))
    return taken
