"""Arrow columns as the numbers that registers keep, and back.

Integers, bools, dates and timestamps are whole numbers; floats are floats where they are added up, and
integers where they are compared or only carried. Times come back in the unit of the input's time column.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.arrow.evaluated import numbers
from penstock.kernels.registers import GREATEST_INT, INFINITY_BITS, NAN_BITS, floats_of
from penstock.stages.batch import Ints, Mask
from penstock.stages.store import Values
from penstock.timing.column import TimeType


def is_whole(type_: pa.DataType) -> bool:
    """Whether values of the type are kept as int64, with their order."""
    whole = kind.is_integer(type_) or kind.is_boolean(type_) or kind.is_timestamp(type_)
    return bool(whole or kind.is_date32(type_))


def is_numeric(type_: pa.DataType) -> bool:
    """Whether registers can be of such values; of others they only count."""
    return bool(is_whole(type_) or kind.is_floating(type_))


class Form(StrEnum):
    """What numbers are made of values.

    PRESENT  none: only which values are not null matters
    WHOLE    the integers below integers, bools, dates and timestamps
    FLOAT    float64, of any numbers
    ORDERED  integers in the order of floats: NaN greatest, both zeros the same
    BITS     the bits of floats, to be given back as they came
    """

    PRESENT = "present"
    WHOLE = "whole"
    FLOAT = "float"
    ORDERED = "ordered"
    BITS = "bits"


def values_of(array: pa.Array, form: Form) -> Values:
    """A column as numbers of a form, and which are not null."""
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if form is Form.PRESENT:
        return Values(np.zeros(len(array), np.int64), valid)
    if form is Form.WHOLE:
        return Values(np.ascontiguousarray(numbers(array), np.int64), valid)
    floats = np.ascontiguousarray(numbers(array), np.float64)
    if form is Form.FLOAT:
        return Values(floats, valid)
    return Values(_ordered(floats) if form is Form.ORDERED else floats.view(np.int64), valid)


def _ordered(floats: npt.NDArray[np.float64]) -> Ints:
    """As `kernels.registers.order_floats`, which this is the array form of."""
    bits = floats.view(np.int64)
    size = bits & GREATEST_INT
    return np.where(size > INFINITY_BITS, NAN_BITS, np.where(bits < 0, -size, size))


def numbers_back(kept: Ints, form: Form) -> npt.NDArray[Any]:
    """What registers of integers kept, as the values they were of."""
    if form is Form.ORDERED:
        return floats_of(kept)
    return kept.view(np.float64) if form is Form.BITS else kept


def column_of(values: npt.NDArray[Any], type_: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """Numbers as an array of `type_`, null where `missing` says so; they fit the type."""
    stored = type_
    if kind.is_timestamp(type_):
        stored = pa.int64()
    elif kind.is_date32(type_):
        stored = pa.int32()
    if missing is not None:
        values = np.where(missing, values.dtype.type(0), values)
    width = np.dtype(stored.to_pandas_dtype())
    array = pa.array(values.astype(width, copy=False), stored, mask=missing, from_pandas=False)
    return array if stored is type_ else array.view(type_)


def times_of(micros: Ints, time: TimeType) -> pa.Array:
    """Microseconds as values of the time column, floored to its unit."""
    values = micros * 1_000 if time.unit == "ns" else micros // time.step
    return column_of(values, time.type)
