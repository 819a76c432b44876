"""Rows on their way into the state of a stage, as arrays: what window stores and keyed state accept.

Watermarks are plain integers between NEVER and ENDED: times are within 2^61 microseconds of 1970, so sums
of a time, a size and a lateness stay in int64.

Columns become the numbers that accumulators keep, and these become columns again. Integers, bools, dates and
timestamps are whole numbers; floats are floats where they are added up, and integers where they are compared
or only carried. Times come back in the unit of the input's time column.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.values import from_numpy, numbers_of, valid_in
from penstock.frozen import Frozen, dataclass
from penstock.kernels.windows.accumulate import decode_floats
from penstock.stages.rows.batch import Ints, Mask
from penstock.timing.units import TimeType

NEVER = -(2**62)
"""The watermark before the first row."""
ENDED = 2**62
"""The watermark after the last row."""
NOT_LIFTED = object()
"""Stands for the result of a fold's `lift` where it is not known."""
Objects = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Values:
    """A column to aggregate: int64[n] or float64[n], and which values are not null (None: all)."""

    data: npt.NDArray[Any]
    valid: Mask | None = None

    def at(self, places: npt.NDArray[Any] | slice) -> Values:
        """Return the values of some rows."""
        return Values(self.data[places], None if self.valid is None else self.valid[places])


class InputRows(Frozen):
    """Rows on their way into stores; all arrays have one length.

    slots       int64[n]  dense numbers of the keys
    times       int64[n]
    order       as in Batch; accumulators that read an order (first, last) need exactly one array
    values      one per column that accumulators name
    rows        the columns for stores that keep rows: the input's, then computed expressions, always in this
                order, so that sorting by all columns is sorting by the input. None if no store keeps rows
    tags        int64[n]  a number that a store attaches to each row: of count windows the id of a pending
                row, -1 if another kind admitted it; of kept rows whether they were fired early
    single_key  whether it is known that all slots are 0
    lifted      for folds in Python: what `lift` returned for each row, one array of objects per fold. A
                snapshot holds only the rows; after a restore this is NOT_LIFTED
    """

    slots: Ints
    times: Ints
    order: tuple[Ints, ...] = ()
    values: tuple[Values, ...] = ()
    rows: pa.RecordBatch | None = None
    tags: Ints | None = None
    single_key: bool = False
    lifted: tuple[Objects, ...] = ()

    def at(self, places: npt.NDArray[Any] | slice) -> InputRows:
        """Return some of the rows, in the order of `places`."""
        return InputRows(
            self.slots[places],
            self.times[places],
            tuple(column[places] for column in self.order),
            tuple(column.at(places) for column in self.values),
            None if self.rows is None else self.rows.take(pa.array(places)),
            None if self.tags is None else self.tags[places],
            self.single_key,
            tuple(parts[places] for parts in self.lifted),
        )


class WindowRows(Frozen):
    """The rows of several windows: window i has rows[places[offsets[i]:offsets[i + 1]]], in order.

    `lifted` is as in InputRows, for `rows`.
    """

    rows: pa.RecordBatch
    offsets: Ints
    places: Ints
    lifted: tuple[Objects, ...] = ()

    def at(self, windows: Ints) -> WindowRows:
        """Return the rows of some of the windows."""
        counts = np.diff(self.offsets)[windows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], counts)
        places = self.places[np.repeat(self.offsets[windows], counts) + within]
        return WindowRows(self.rows, offsets, places, self.lifted)


def no_ints() -> Ints:
    """Return an empty array of integers."""
    return np.empty(0, np.int64)


class Form(StrEnum):
    """What numbers are made of values.

    PRESENT  none: only which values are not null matters
    WHOLE    the integers below integers, bools, dates and timestamps
    FLOAT    float64, of any numbers
    ORDERED  float64, of floats, to be compared: NaN greatest, both zeros the same. Cells keep them as
             integers of that order: `encode_floats` in `kernels/windows/accumulate.py` makes them
    BITS     the bits of floats, to be given back as they came
    COUPON   a hash, as sketches of different values take it: `hash_coupons` in `stages/sketches.py`
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
    """Return numbers as an array of `type_`, null where `missing` says so; they fit the type."""
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
    """Return microseconds as values of the time column, floored to its unit; raise TimeError beyond it."""
    if time.unit == "ns":
        for end in (micros.min(initial=0), micros.max(initial=0)):
            time.value(int(end))  # raises where the product would wrap
        return build_column(micros * 1_000, time.type)
    return build_column(micros if time.step == 1 else micros // time.step, time.type)
