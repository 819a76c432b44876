"""What a batch of values is while an expression is computed: an array, and which rows failed.

A failed row is null in the array, so Arrow's kernels hand failures on as they hand on nulls. This file is
also the way to NumPy and back. Assumes canonical types.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.values import from_numpy, valid_in
from penstock.frozen import Frozen

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


class ColumnarValue(Frozen):
    """One value per row; `failed` is None when no row failed, else true (never null) where one did."""

    values: pa.Array
    failed: pa.BooleanArray | None = None


def from_numbers(
    values: Numbers, type: pa.DataType, inputs: Sequence[pa.Array], failed: Mask | None = None
) -> ColumnarValue:
    """Return an array of `type`: null where an input is, null and failed where the mask says so."""
    nulls = [~valid_in(array) for array in inputs if array.null_count]
    missing = reduce(np.logical_or, nulls) if nulls else None
    if failed is not None and missing is not None:
        failed = failed & ~missing
    if failed is None or not failed.any():
        return ColumnarValue(_array(values, type, missing))
    missing = failed if missing is None else missing | failed
    return ColumnarValue(_array(values, type, missing), from_numpy(failed))


def any_failed(*flags: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return where any of the flags is true; None when none can be."""
    possible = [flag for flag in flags if flag is not None]
    return reduce(pc.or_, possible) if possible else None


def null_where_failed(evaluated: ColumnarValue) -> ColumnarValue:
    """Return the same with null in the failed rows, and without flags when no row failed."""
    if evaluated.failed is None or evaluated.failed.true_count == 0:
        return ColumnarValue(evaluated.values)
    null = null_of(evaluated.values.type)
    return ColumnarValue(pc.if_else(evaluated.failed, null, evaluated.values), evaluated.failed)


def null_of(type: pa.DataType) -> pa.Scalar:
    """Return the null of a type."""
    return pa.scalar(None, type)


def _array(values: Numbers, type: pa.DataType, missing: Mask | None) -> pa.Array:
    stored = type
    if kind.is_temporal(type):
        stored = pa.int32() if kind.is_date32(type) else pa.int64()
    width = np.dtype(stored.to_pandas_dtype())
    array = from_numpy(values.astype(width, copy=False), missing=missing)
    return array if stored is type else array.view(type)
