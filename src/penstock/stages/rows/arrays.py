"""Arrow columns as the numbers that accumulators keep, and back.

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

from penstock.expr.values import from_numpy, numbers_of, valid_in
from penstock.kernels.windows.accumulate import decode_floats
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import Values
from penstock.stages.sketches.hll import hash_coupons
from penstock.timing.column import TimeType


class Form(StrEnum):
    """What numbers are made of values.

    PRESENT  none: only which values are not null matters
    WHOLE    the integers below integers, bools, dates and timestamps
    FLOAT    float64, of any numbers
    ORDERED  float64, of floats, to be compared: NaN greatest, both zeros the same. Registers keep them as
             integers of that order, which `filling.py` makes of them chunk by chunk
    BITS     the bits of floats, to be given back as they came
    COUPON   a hash, as sketches of different values take it in (`coupons.py`)
    """

    PRESENT = "present"
    WHOLE = "whole"
    FLOAT = "float"
    ORDERED = "ordered"
    BITS = "bits"
    COUPON = "coupon"


def encode_column(array: pa.Array, form: Form) -> Values:
    """Return a column as numbers of a form, and which are not null."""
    valid = valid_in(array) if array.null_count else None
    if form is Form.PRESENT:
        return Values(np.zeros(len(array), np.int64), valid)
    if form is Form.COUPON:
        return Values(hash_coupons(array), valid)
    if form is Form.WHOLE:
        return Values(np.ascontiguousarray(numbers_of(array), np.int64), valid)
    floats = np.ascontiguousarray(numbers_of(array), np.float64)
    return Values(floats.view(np.int64) if form is Form.BITS else floats, valid)


def decode_numbers(encoded: Ints, form: Form) -> npt.NDArray[Any]:
    """Return what accumulators of integers encoded, as the values they were of."""
    if form is Form.ORDERED:
        return decode_floats(encoded)
    return encoded.view(np.float64) if form is Form.BITS else encoded


def build_column(values: npt.NDArray[Any], type_: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """Numbers as an array of `type_`, null where `missing` says so; they fit the type."""
    stored = type_
    if kind.is_timestamp(type_):
        stored = pa.int64()
    elif kind.is_date32(type_):
        stored = pa.int32()
    width = np.dtype(stored.to_pandas_dtype())
    if missing is not None and missing.any():
        values = np.where(missing, values.dtype.type(0), values)
        array = from_numpy(values.astype(width, copy=False), missing=missing)
        return array if stored is type_ else array.view(type_)
    values = np.ascontiguousarray(values, width)
    if width.kind == "b":
        return from_numpy(values)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def build_time_column(micros: Ints, time: TimeType) -> pa.Array:
    """Microseconds as values of the time column, floored to its unit; a TimeError if one does not fit."""
    if time.unit == "ns":
        for end in (micros.min(initial=0), micros.max(initial=0)):
            time.value(int(end))  # raises where the product would wrap
        return build_column(micros * 1_000, time.type)
    return build_column(micros if time.step == 1 else micros // time.step, time.type)
