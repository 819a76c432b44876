"""Comparison on arrays: everything follows from `equal` and `less`, which know the place of NaN."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import null_of
from penstock.expr.nodes.comparison import (
    Between,
    Equal,
    Greater,
    GreaterEqual,
    IsIn,
    Less,
    LessEqual,
    NotEqual,
)
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.signature import BOOL, convert_literal
from penstock.expr.values import from_numpy, from_plain, to_numpy

INTEGERS = frozenset((pa.int8(), pa.int16(), pa.int32(), pa.int64()))
NUMPY_ROWS = 4096
"""Up to this many integers are compared by NumPy. Arrow releases the interpreter's lock: where several
threads work on small batches, getting it back takes longer than the comparison.
"""


def equal(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Returns whether both are equal; NaN equals NaN."""
    if (numbers := _small_integers(a, b)) is not None:
        return from_numpy(numbers[0] == numbers[1])
    same = pc.equal(a, b)
    return pc.or_(same, pc.and_(pc.is_nan(a), pc.is_nan(b))) if kind.is_floating(a.type) else same


def less(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Returns whether a comes before b; everything but NaN comes before NaN."""
    if (numbers := _small_integers(a, b)) is not None:
        return from_numpy(numbers[0] < numbers[1])
    before = pc.less(a, b)
    if not kind.is_floating(a.type):
        return before
    return pc.or_(before, pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b)))


def _small_integers(a: pa.Array | pa.Scalar, b: pa.Array | pa.Scalar) -> tuple[Any, Any] | None:
    """Returns both for NumPy if they are few integers without nulls; either may be one value for all rows."""
    if a.type not in INTEGERS:
        return None
    sides = []
    for side in (a, b):
        if isinstance(side, pa.Scalar):
            sides.append(side.as_py())
        elif len(side) > NUMPY_ROWS or side.null_count:
            return None
        else:
            sides.append(to_numpy(side))
    if sides[0] is None or sides[1] is None or type(sides[0]) is type(sides[1]) is int:
        return None
    return sides[0], sides[1]


def _is_in(node: IsIn, out: Instruction) -> Function:
    type = out.operands[0]
    wanted = _normalize_floats(
        from_plain([convert_literal(value.value, type) for value in node.values], type)
    )

    def look_up(array: pa.Array) -> pa.BooleanArray:
        hits = pc.is_in(_normalize_floats(array), value_set=wanted)
        return pc.if_else(array.is_valid(), hits, null_of(BOOL)) if array.null_count else hits

    return look_up


def _normalize_floats(array: pa.Array) -> pa.Array:
    """Makes equal floats equal in their bits, by which Arrow looks them up: one zero and one NaN."""
    if not kind.is_floating(array.type):
        return array
    one_zero = pc.add(array, pa.scalar(0.0, array.type))
    return pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, array.type), one_zero)


RULES: Rules = {
    Equal: lambda node, out: equal,
    NotEqual: lambda node, out: lambda a, b: pc.invert(equal(a, b)),
    Less: lambda node, out: less,
    LessEqual: lambda node, out: lambda a, b: pc.invert(less(b, a)),
    Greater: lambda node, out: lambda a, b: less(b, a),
    GreaterEqual: lambda node, out: lambda a, b: pc.invert(less(a, b)),
    Between: lambda node, out: (
        lambda a, low, high: pc.and_(pc.invert(less(a, low)), pc.invert(less(high, a)))
    ),
    IsIn: _is_in,
}
