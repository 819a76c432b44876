"""What of a predicate can be compared as numbers: equalities and bands, as int64 codes and ranges of codes.

A condition gives every row a code, so that a row of the other side fulfils it, or may, when its code is in a
range. Integers are their own codes; floats have codes in their order; keys have the codes that `KeySlots`
gives them. So all conditions of a join, with the bound of time, ask whether a point lies in a box
(`kernels/join/boxes.py`). Rows with a null, or in a band with a NaN, fulfil nothing and have no codes.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.values import numbers_of, valid_in
from penstock.kernels.join.boxes import ORDERED, OWN, WHOLE
from penstock.stages.keys.index import build_keys
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.batch import Ints, Mask

LEAST, GREATEST = -(2**63), 2**63 - 1
_OUTWARDS = np.array([[-math.inf], [math.inf]])
Floats = npt.NDArray[np.float64]


class Condition(ABC):
    """One comparison of a left and a right row.

    names     the columns of the left and of the right
    is_exact  whether a code inside the range is enough; else `holds` decides
    unit      what a code stands for (`kernels/join/boxes.py`)
    """

    is_exact = True
    unit = WHOLE

    def __init__(self, left: Sequence[str], right: Sequence[str]) -> None:
        self.names = (tuple(left), tuple(right))

    def valid(self, side: int, rows: pa.RecordBatch) -> Mask | None:
        """Return which rows can fulfil the condition at all; None if all can."""
        columns = [column for name in self.names[side] if (column := rows.column(name)).null_count]
        return np.logical_and.reduce([valid_in(column) for column in columns]) if columns else None

    @abstractmethod
    def codes(self, side: int, rows: pa.RecordBatch) -> Ints:
        """Return the codes of valid rows."""

    @abstractmethod
    def ranges(self, codes: Ints) -> tuple[Ints, Ints]:
        """Return the least and the greatest code of the other side that rows of these codes may meet."""

    @abstractmethod
    def numbers(self, codes: Ints) -> Floats:
        """Return numbers by which shares can be estimated: as far apart as the values of the codes."""

    def holds(self, codes: Ints, opposite: Ints) -> Mask:
        """Return which pairs fulfil the condition, where that is not certain from the ranges."""
        return np.ones(len(codes), np.bool_)


class KeyEquality(Condition):
    """Equal values in one or more columns: one slot for each key, of both sides together.

    NaN equals NaN, -0.0 equals 0.0. A slot is free again when no row of its key is stored.
    """

    unit = OWN

    def __init__(self, left: Sequence[str], right: Sequence[str], types: Sequence[pa.DataType]) -> None:
        super().__init__(left, right)
        self.types = list(types)
        self.keys: KeySlots = build_keys(self.types)
        self._n_rows = np.zeros(0, np.int64)

    def codes(self, side: int, rows: pa.RecordBatch) -> Ints:
        """Implement `Condition.codes`; keys not seen before get slots."""
        slots = self.keys.assign([rows.column(name) for name in self.names[side]], rows.num_rows)
        more = int(slots.max(initial=-1)) + 1 - len(self._n_rows)
        if more > 0:
            self._n_rows = np.append(self._n_rows, np.zeros(max(more, len(self._n_rows)), np.int64))
        return slots

    def ranges(self, codes: Ints) -> tuple[Ints, Ints]:
        """Implement `Condition.ranges`."""
        return codes, codes

    def numbers(self, codes: Ints) -> Floats:
        """Implement `Condition.numbers`."""
        return codes.astype(np.float64)

    def keep(self, codes: Ints) -> None:
        """Note that rows of these keys are stored."""
        np.add.at(self._n_rows, codes, 1)

    def release(self, codes: Ints) -> None:
        """Note that stored rows are gone, or that rows were not stored: keys without rows are forgotten."""
        np.subtract.at(self._n_rows, codes, 1)
        slots = np.unique(codes)
        self.keys.free(slots[self._n_rows[slots] == 0])


class IntBand(Condition):
    """|left - right| <= width, for integers: exact at all values of int64."""

    def __init__(self, left: str, right: str, width: float, *, strict: bool) -> None:
        super().__init__((left,), (right,))
        whole = 2**64 if math.isinf(width) else math.ceil(width) - 1 if strict else math.floor(width)
        self._width = min(whole, 2**64)

    def codes(self, side: int, rows: pa.RecordBatch) -> Ints:
        """Implement `Condition.codes`."""
        (name,) = self.names[side]
        return numbers_of(rows.column(name)).astype(np.int64)

    def ranges(self, codes: Ints) -> tuple[Ints, Ints]:
        """Implement `Condition.ranges`; a range ends where int64 does."""
        width = self._width
        if width < 0:  # nothing is nearer than 0: ranges that hold nothing
            return np.full(len(codes), GREATEST, np.int64), np.full(len(codes), LEAST, np.int64)
        if width > GREATEST:
            lows = [max(LEAST, code - width) for code in codes.tolist()]
            highs = [min(GREATEST, code + width) for code in codes.tolist()]
            return np.array(lows, np.int64), np.array(highs, np.int64)
        low = np.where(codes < LEAST + width, LEAST, codes - width)
        high = np.where(codes > GREATEST - width, GREATEST, codes + width)
        return low, high

    def numbers(self, codes: Ints) -> Floats:
        """Implement `Condition.numbers`."""
        return codes.astype(np.float64)


TIME = IntBand("", "", 0, strict=False)
"""Stands for the clock, which is a whole number like others."""


class FloatBand(Condition):
    """|left - right| <= width, for floats, and for integers against floats, as Python computes it.

    The rounded difference falls as the right value grows, so the values that are close to one are a range; it
    is searched a little wider than it is, and `holds` subtracts.
    """

    is_exact = False
    unit = ORDERED

    def __init__(self, left: str, right: str, width: float, *, strict: bool) -> None:
        super().__init__((left,), (right,))
        self._width, self._strict = _float_width(width, strict=strict), strict
        self._reach = float(np.nextafter(self._width, math.inf))

    def valid(self, side: int, rows: pa.RecordBatch) -> Mask | None:
        """Implement `Condition.valid`: NaN is close to nothing."""
        valid = super().valid(side, rows)
        column = rows.column(self.names[side][0])
        if not kind.is_floating(column.type):
            return valid
        is_nan: Mask = np.isnan(numbers_of(column))
        if not is_nan.any():
            return valid
        return ~is_nan if valid is None else valid & ~is_nan

    def codes(self, side: int, rows: pa.RecordBatch) -> Ints:
        """Implement `Condition.codes`."""
        (name,) = self.names[side]
        return order_floats(numbers_of(rows.column(name)).astype(np.float64))

    def ranges(self, codes: Ints) -> tuple[Ints, Ints]:
        """Implement `Condition.ranges`."""
        values = self.numbers(codes)
        ends = np.nextafter([values - self._reach, values + self._reach], _OUTWARDS)
        if math.isinf(self._reach):  # infinity less infinity
            ends = np.where(np.isnan(ends), _OUTWARDS, ends)
        low, high = order_floats(ends)
        return low, high

    def numbers(self, codes: Ints) -> Floats:
        """Implement `Condition.numbers`: the floats themselves."""
        return np.where(codes < 0, codes ^ np.int64(GREATEST), codes).view(np.float64)

    def holds(self, codes: Ints, opposite: Ints) -> Mask:
        """Implement `Condition.holds`; it does not matter which of the two is the left."""
        with np.errstate(all="ignore"):
            apart = np.abs(self.numbers(codes) - self.numbers(opposite))
            return np.asarray(apart < self._width if self._strict else apart <= self._width)


def order_floats(values: Floats) -> Ints:
    """Return integers in the order of floats, none of which is NaN; -0.0 and 0.0 are the same.

    >>> codes = order_floats(np.array([-math.inf, -1.5, -0.0, 0.0, 2.0]))
    >>> bool((np.diff(codes) >= 0).all()), int(codes[3] - codes[2])
    (True, 0)
    """
    # The bits of a float, but for its sign, are in its order.
    bits = (values + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(GREATEST), bits)


def _float_width(width: Any, *, strict: bool) -> float:
    """Return the float by which floats compare as they do with the width, which may be any integer."""
    try:
        near = float(width)
    except OverflowError:
        return math.inf if strict else sys.float_info.max
    if strict and near < width:
        return float(np.nextafter(near, math.inf))
    return float(np.nextafter(near, -math.inf)) if not strict and near > width else near
