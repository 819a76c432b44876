"""Logic, null and conditionals on arrays, with the failures that each choice lets through."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, any_failed
from penstock.expr.nodes.conditional import And, Case, Coalesce, FillNull, IsNan, IsNotNull, IsNull, Not, Or
from penstock.expr.program import Function, Instruction, Rules


def _case(node: Case, out: Instruction) -> Function:
    count = len(node.conditions)

    def choose(*inputs: ColumnarValue) -> ColumnarValue:
        chosen = inputs[-1]
        # From the last condition to the first, so that an earlier one overrules what comes after it.
        for condition, value in zip(reversed(inputs[:count]), reversed(inputs[count:-1]), strict=True):
            chosen = _if_else(condition, value, chosen)
        return chosen

    return choose


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
    """Fails where a side failed, which is null here, and the other side did not decide."""
    failed = any_failed(a.failed, b.failed)
    return ColumnarValue(values, None if failed is None else pc.and_(failed, values.is_null()))


def _first_not_null(*inputs: ColumnarValue) -> ColumnarValue:
    """Goes from the last to the first: a value hides what comes after it, and so does a failure."""
    chosen = inputs[-1]
    for value in reversed(inputs[:-1]):
        valid = value.values.is_valid()
        inherited = None if chosen.failed is None else pc.and_not(chosen.failed, valid)
        values = pc.if_else(valid, value.values, chosen.values)
        chosen = ColumnarValue(values, any_failed(value.failed, inherited))
    return chosen


RULES: Rules = {
    And: lambda node, out: lambda a, b: _fail_undecided(pc.and_kleene(a.values, b.values), a, b),
    Or: lambda node, out: lambda a, b: _fail_undecided(pc.or_kleene(a.values, b.values), a, b),
    Not: lambda node, out: pc.invert,
    IsNull: lambda node, out: pc.is_null,
    IsNotNull: lambda node, out: pc.is_valid,
    IsNan: lambda node, out: pc.is_nan,
    FillNull: lambda node, out: _first_not_null,
    Coalesce: lambda node, out: _first_not_null,
    Case: _case,
}
