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

from penstock.connect.batching import values_of
from penstock.expr.values import numbers_of, valid_in
from penstock.kernels.join.boxes import GREATEST, LEAST, ORDERED, OWN, WHOLE, bound_codes
from penstock.stages import policy
from penstock.stages.join.payload import is_in_block
from penstock.stages.keys.index import build_keys
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.batch import Batch, Ints, Mask

CLOCK = 0
"""The code by which rows meet and expire; the conditions have the codes after it."""
_OUTWARDS = np.array([[-math.inf], [math.inf]])
Floats = npt.NDArray[np.float64]


class Condition(ABC):
    """One comparison of a left and a right row.

    names     the columns of the left and of the right
    unit      what a code stands for (`kernels/join/boxes.py`)
    """

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
        self.width = min(whole, 2**64)

    def codes(self, side: int, rows: pa.RecordBatch) -> Ints:
        """Implement `Condition.codes`."""
        (name,) = self.names[side]
        return numbers_of(rows.column(name)).astype(np.int64)

    def ranges(self, codes: Ints) -> tuple[Ints, Ints]:
        """Implement `Condition.ranges`; a range ends where int64 does."""
        width = self.width
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
    is searched a little wider than it is, and then they are subtracted (`hold_floats`).
    """

    unit = ORDERED

    def __init__(self, left: str, right: str, width: float, *, strict: bool) -> None:
        super().__init__((left,), (right,))
        self.width, self.strict = _float_width(width, strict=strict), strict
        self.reach = float(np.nextafter(self.width, math.inf))

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
        ends = np.nextafter([values - self.reach, values + self.reach], _OUTWARDS)
        if math.isinf(self.reach):  # infinity less infinity
            ends = np.where(np.isnan(ends), _OUTWARDS, ends)
        low, high = order_floats(ends)
        return low, high

    def numbers(self, codes: Ints) -> Floats:
        """Implement `Condition.numbers`: the floats themselves."""
        return np.where(codes < 0, codes ^ np.int64(GREATEST), codes).view(np.float64)


class BandEncoder:
    """Codes and ranges of rows whose conditions are all bands, in one loop.

    settings  the units of all codes, their widths and reaches, and the exact widths of floats and whether
              they are strict, as the loops of `kernels/join/` want them
    """

    def __init__(self, bands: Sequence[IntBand | FloatBand], schemas: tuple[pa.Schema, pa.Schema]) -> None:
        self._n_codes = 1 + len(bands)
        # For each side the columns: the name, whether it is compared as floats, and whether its memory is so.
        self._columns = [[_plan_column(band, side, schemas[side]) for band in bands] for side in range(2)]
        rows = [
            (ORDERED, 0, band.reach, band.width, int(band.strict))
            if isinstance(band, FloatBand)
            else (WHOLE, band.width, 0.0, 0.0, 0)
            for band in bands
        ]
        units, widths, reaches, exact, strict = zip((WHOLE, 0, 0.0, 0.0, 0), *rows, strict=True)
        self.settings = (
            np.array(units, np.int64),
            np.array(widths, np.int64),
            np.array(reaches, np.float64),
            np.array(exact, np.float64),
            np.array(strict, np.int64),
        )

    def read(self, side: int, batch: Batch, clock: Ints) -> Ints | None:
        """Return the values of rows, their clock first; those of floats are bits. None if one is null."""
        n_rows = len(clock)
        codes = np.empty((self._n_codes, n_rows), np.int64)
        codes[CLOCK] = clock
        floats, plain = codes.view(np.float64), batch.plain
        for place, (name, is_float, is_memory) in enumerate(self._columns[side], 1):
            values: Any
            if plain is not None:
                values = values_of(plain, name)
                if None in values:
                    return None
            else:
                column = batch.column(name)
                if column.null_count:
                    return None
                if is_memory and n_rows:
                    codes[place] = np.frombuffer(column.buffers()[1], np.int64, n_rows, column.offset * 8)
                    continue
                values = numbers_of(column)
            (floats if is_float else codes)[place] = values
        return codes

    def encode(
        self, side: int, batch: Batch, clock: Ints, clocks: tuple[Ints, Ints], run: policy.JitPolicy
    ) -> tuple[Ints, Ints, Ints] | None:
        """Return the codes of all rows, and the least and greatest codes that they meet.

        None if a value is null or NaN: such rows have no codes.

        clocks  the clocks of the other side that they meet
        """
        codes = self.read(side, batch, clock)
        if codes is None:
            return None
        lows, highs = np.empty_like(codes), np.empty_like(codes)
        lows[CLOCK], highs[CLOCK] = clocks
        arrays = (codes, codes.view(np.float64), *self.settings[:3], lows, highs)
        return (codes, lows, highs) if run(bound_codes, *arrays, work=codes.size) else None


def _plan_column(band: IntBand | FloatBand, side: int, schema: pa.Schema) -> tuple[str, bool, bool]:
    (name,), is_float = band.names[side], isinstance(band, FloatBand)
    type_ = schema.field(name).type
    return name, is_float, is_in_block(type_) and is_float == kind.is_float64(type_)


def build_encoder(
    conditions: Sequence[Condition], schemas: tuple[pa.Schema, pa.Schema]
) -> BandEncoder | None:
    """Return what encodes rows at once; None if there are no conditions, or others than bands."""
    bands = [
        one
        for one in conditions
        if isinstance(one, FloatBand) or (isinstance(one, IntBand) and 0 <= one.width <= GREATEST)
    ]
    return BandEncoder(bands, schemas) if bands and len(bands) == len(conditions) else None


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
