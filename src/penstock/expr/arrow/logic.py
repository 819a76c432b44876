"""Comparison, logic, null tests and choices on arrays, with the failures that each choice lets through.

Comparison follows from `equal` and `less`, which know the place of NaN.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.types as kind

from penstock import expr as nodes
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, any_failed, null_of
from penstock.expr.program import BOOL, Function, Instruction, Rules, convert_literal
from penstock.expr.values import from_plain


def equal(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Return whether both are equal; NaN equals NaN."""
    same = pc.equal(a, b)
    return pc.or_(same, pc.and_(pc.is_nan(a), pc.is_nan(b))) if kind.is_floating(a.type) else same


def less(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Return whether a comes before b; everything but NaN comes before NaN."""
    before = pc.less(a, b)
    if not kind.is_floating(a.type):
        return before
    return pc.or_(before, pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b)))


def _is_in(node: nodes.IsIn, out: Instruction) -> Function:
    type = out.operands[0]
    wanted = _normalize_floats(
        from_plain([convert_literal(value.value, type) for value in node.values], type)
    )

    def look_up(array: pa.Array) -> pa.BooleanArray:
        hits = pc.is_in(_normalize_floats(array), value_set=wanted)
        return pc.if_else(array.is_valid(), hits, null_of(BOOL)) if array.null_count else hits

    return look_up


def _normalize_floats(array: pa.Array) -> pa.Array:
    """Make equal floats equal in their bits, by which Arrow looks them up: one zero and one NaN."""
    if not kind.is_floating(array.type):
        return array
    one_zero = pc.add(array, pa.scalar(0.0, array.type))
    return pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, array.type), one_zero)


def _case(node: nodes.Case, out: Instruction) -> Function:
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
    """Fail where a side failed, which is null here, and the other side did not decide."""
    failed = any_failed(a.failed, b.failed)
    return ColumnarValue(values, None if failed is None else pc.and_(failed, values.is_null()))


def _first_not_null(*inputs: ColumnarValue) -> ColumnarValue:
    """Go from the last to the first: a value hides what comes after it, and so does a failure."""
    chosen = inputs[-1]
    for value in reversed(inputs[:-1]):
        valid = value.values.is_valid()
        inherited = None if chosen.failed is None else pc.and_not(chosen.failed, valid)
        values = pc.if_else(valid, value.values, chosen.values)
        chosen = ColumnarValue(values, any_failed(value.failed, inherited))
    return chosen


RULES: Rules = {
    nodes.Equal: lambda node, out: equal,
    nodes.NotEqual: lambda node, out: lambda a, b: pc.invert(equal(a, b)),
    nodes.Less: lambda node, out: less,
    nodes.LessEqual: lambda node, out: lambda a, b: pc.invert(less(b, a)),
    nodes.Greater: lambda node, out: lambda a, b: less(b, a),
    nodes.GreaterEqual: lambda node, out: lambda a, b: pc.invert(less(a, b)),
    nodes.Between: lambda node, out: (
        lambda a, low, high: pc.and_(pc.invert(less(a, low)), pc.invert(less(high, a)))
    ),
    nodes.IsIn: _is_in,
    nodes.And: lambda node, out: lambda a, b: _fail_undecided(pc.and_kleene(a.values, b.values), a, b),
    nodes.Or: lambda node, out: lambda a, b: _fail_undecided(pc.or_kleene(a.values, b.values), a, b),
    nodes.Not: lambda node, out: pc.invert,
    nodes.IsNull: lambda node, out: pc.is_null,
    nodes.IsNotNull: lambda node, out: pc.is_valid,
    nodes.IsNan: lambda node, out: pc.is_nan,
    nodes.FillNull: lambda node, out: _first_not_null,
    nodes.Coalesce: lambda node, out: _first_not_null,
    nodes.Case: _case,
}
