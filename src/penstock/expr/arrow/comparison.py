"""Comparison on arrays: everything follows from `equal` and `less`, which know the place of NaN."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import null_of
from penstock.expr.arrow.lower import Function, lower_node
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
from penstock.expr.program import Instruction
from penstock.expr.signature import BOOL, convert_literal
from penstock.expr.values import from_numpy, from_plain, to_numpy

INTEGERS = frozenset((pa.int8(), pa.int16(), pa.int32(), pa.int64()))
NUMPY_ROWS = 4096
"""So many numbers are compared by NumPy, which does not let go of Python's lock for them as Arrow does: where
several threads work on small batches, waiting for the lock takes longer than to compare.
"""


def equal(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Whether both are equal; NaN equals NaN."""
    if (few := _small_integers(a, b)) is not None:
        return from_numpy(few[0] == few[1])
    same = pc.equal(a, b)
    return pc.or_(same, pc.and_(pc.is_nan(a), pc.is_nan(b))) if kind.is_floating(a.type) else same


def less(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Whether a comes before b; everything but NaN comes before NaN."""
    if (few := _small_integers(a, b)) is not None:
        return from_numpy(few[0] < few[1])
    before = pc.less(a, b)
    if not kind.is_floating(a.type):
        return before
    return pc.or_(before, pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b)))


def _small_integers(a: pa.Array | pa.Scalar, b: pa.Array | pa.Scalar) -> tuple[Any, Any] | None:
    """Both as NumPy takes them, if they are few integers that are there; either may be one value for all."""
    if a.type not in INTEGERS:
        return None
    found = []
    for each in (a, b):
        if isinstance(each, pa.Scalar):
            found.append(each.as_py())
        elif len(each) > NUMPY_ROWS or each.null_count:
            return None
        else:
            found.append(to_numpy(each))
    if found[0] is None or found[1] is None or type(found[0]) is type(found[1]) is int:
        return None
    return found[0], found[1]


@lower_node.register
def _equal(node: Equal, instruction: Instruction) -> Function:
    return equal


@lower_node.register
def _not_equal(node: NotEqual, instruction: Instruction) -> Function:
    return lambda a, b: pc.invert(equal(a, b))


@lower_node.register
def _less(node: Less, instruction: Instruction) -> Function:
    return less


@lower_node.register
def _less_equal(node: LessEqual, instruction: Instruction) -> Function:
    return lambda a, b: pc.invert(less(b, a))


@lower_node.register
def _greater(node: Greater, instruction: Instruction) -> Function:
    return lambda a, b: less(b, a)


@lower_node.register
def _greater_equal(node: GreaterEqual, instruction: Instruction) -> Function:
    return lambda a, b: pc.invert(less(a, b))


@lower_node.register
def _between(node: Between, instruction: Instruction) -> Function:
    return lambda a, low, high: pc.and_(pc.invert(less(a, low)), pc.invert(less(high, a)))


@lower_node.register
def _is_in(node: IsIn, instruction: Instruction) -> Function:
    type = instruction.operands[0]
    wanted = _normalize_floats(
        from_plain([convert_literal(value.value, type) for value in node.values], type)
    )

    def found(array: pa.Array) -> pa.BooleanArray:
        hits = pc.is_in(_normalize_floats(array), value_set=wanted)
        return pc.if_else(array.is_valid(), hits, null_of(BOOL)) if array.null_count else hits

    return found


def _normalize_floats(array: pa.Array) -> pa.Array:
    """Arrow looks floats up by their bits: adding 0.0 turns -0.0 into 0.0, and all NaNs are made one."""
    if not kind.is_floating(array.type):
        return array
    one_zero = pc.add(array, pa.scalar(0.0, array.type))
    return pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, array.type), one_zero)
