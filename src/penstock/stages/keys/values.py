"""The distinct values of key columns, each with a slot: one class for each form that a key can have.

Each class gives equal values one slot: null is a value of its own, NaN equals NaN, -0.0 equals 0.0. Types are
canonical (`expr/types.py`) and not nested: the plan refuses other keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.values import from_numpy, numbers_of, valid_in
from penstock.stages.keys.allocator import MIN_SLOTS, SlotAllocator
from penstock.stages.keys.index import StringIndex, WordIndex
from penstock.stages.rows.batch import ColumnView

Ints = npt.NDArray[np.int64]

SPARE_VALUES = 256
"""Values that combined keys may leave behind before they are swept."""


class KeyValues(Protocol):
    """The distinct values of one or more columns."""

    @property
    def allocator(self) -> SlotAllocator:
        """Return what knows which slots are in use."""

    @property
    def nbytes(self) -> int:
        """Return the memory held."""

    def assign(self, columns: Sequence[ColumnView]) -> Ints:
        """Return the slot of each row; values not seen before get a new or a freed one."""

    def free(self, slots: Ints) -> None:
        """Forget the values of these slots, each live and named once."""

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Return the values of live slots."""


class NumberValues:
    """Integers, dates, timestamps, bools and floats: each is a 64-bit word."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._index = WordIndex()
        self.allocator, self.free = self._index.allocator, self._index.free

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._index.nbytes

    def assign(self, columns: Sequence[ColumnView]) -> Ints:
        """Implement `KeyValues.assign`."""
        array = columns[0].take()
        words = _to_words(array)
        if array.null_count == 0:
            return self._index.assign(words)
        slots, valid = np.empty(len(array), np.int64), valid_in(array)
        slots[valid] = self._index.assign(words[valid])
        slots[~valid] = self._index.null_slot()
        return slots

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Implement `KeyValues.columns_of`."""
        return [_from_words(self._index.words_of(slots), self._index.nulls_of(slots), self._type)]


class StringValues:
    """Strings and binaries, and decimals as their sixteen bytes.

    These are equal exactly when the decimals are, as all values of a column have one scale.
    """

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._is_decimal = kind.is_decimal128(type_)
        self._index = StringIndex()
        self.allocator, self.free = self._index.allocator, self._index.free

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._index.nbytes

    def assign(self, columns: Sequence[ColumnView]) -> Ints:
        """Implement `KeyValues.assign`."""
        (column,) = columns
        if column.values.null_count == 0:
            return self._index.assign(self._to_strings(column))
        array = column.take()
        slots, valid = np.empty(len(array), np.int64), valid_in(array)
        slots[valid] = self._index.assign(self._to_strings(ColumnView(array.drop_null(), None)))
        if not valid.all():
            slots[~valid] = self._index.null_slot()
        return slots

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Implement `KeyValues.columns_of`."""
        known = ~self._index.nulls_of(slots)
        strings = self._index.strings_of(slots[known], pa.binary() if self._is_decimal else self._type)
        if self._is_decimal:
            strings = pa.Array.from_buffers(self._type, len(strings), [None, strings.buffers()[2]])
        if known.all():
            return [strings]
        return [pc.take(strings, from_numpy(np.cumsum(known) - 1, missing=~known))]

    def _to_strings(self, column: ColumnView) -> ColumnView:
        if not self._is_decimal:
            return column
        return ColumnView(column.take().view(pa.binary(16)).cast(pa.binary()), None)


class PairValues:
    """The combinations of two: a word holds the left slot above the right one.

    Words are kept short (the right slot takes only the bits it needs), so that combinations of few values
    stay in a dense table. A value that no combination uses any more is swept later, many at a time.
    """

    def __init__(self, left: KeyValues, right: KeyValues, *, n_left: int) -> None:
        self._left, self._right, self._n_left = left, right, n_left
        self._index = WordIndex()
        self.allocator = self._index.allocator
        self._bits = MIN_SLOTS.bit_length() - 1

    @property
    def nbytes(self) -> int:
        """Return the memory held, that of left and right included."""
        return self._index.nbytes + self._left.nbytes + self._right.nbytes

    def assign(self, columns: Sequence[ColumnView]) -> Ints:
        """Implement `KeyValues.assign`."""
        left = self._left.assign(columns[: self._n_left])
        right = self._right.assign(columns[self._n_left :])
        needed = (self._right.allocator.capacity - 1).bit_length()
        if needed > self._bits:
            self._index.widen(self._bits, needed - self._bits)
            self._bits = needed
        return self._index.assign((left << self._bits) | right)

    def free(self, slots: Ints) -> None:
        """Implement `KeyValues.free`."""
        self._index.free(slots)
        enough = 2 * self.allocator.n_live + SPARE_VALUES
        sides = (self._left, self._right)
        if any(values.allocator.n_live > enough for values in sides):
            for values, used in zip(sides, self._split(self.allocator.live()), strict=True):
                is_unused = np.zeros(values.allocator.capacity, np.bool_)
                is_unused[values.allocator.live()] = True
                is_unused[used] = False
                values.free(np.flatnonzero(is_unused))

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Implement `KeyValues.columns_of`."""
        left, right = self._split(slots)
        return self._left.columns_of(left) + self._right.columns_of(right)

    def _split(self, slots: Ints) -> tuple[Ints, Ints]:
        """Return the slots of the left and of the right values of combinations."""
        words = self._index.words_of(slots)
        return words >> self._bits, words & ((1 << self._bits) - 1)


class SingleKey:
    """The key of a stream without key columns: slot 0, and no look-up."""

    nbytes = 0

    def __init__(self) -> None:
        self.allocator = SlotAllocator(1)
        self.free = self.allocator.release

    def assign(self, columns: Sequence[ColumnView]) -> Ints:
        """Return slot 0 for every row."""
        array = columns[0].values
        if len(array) and self.allocator.n_free:
            self.allocator.take()
        return np.zeros(len(array), np.int64)

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Return no columns."""
        return []


def build_values(types: Sequence[pa.DataType]) -> KeyValues:
    """Return values for key columns: one column as it is, several as pairs of pairs, from the left."""
    if not types:
        return SingleKey()
    columns = [_build_column_values(type_) for type_ in types]
    values = columns[0]
    for n_left, right in enumerate(columns[1:], 1):
        values = PairValues(values, right, n_left=n_left)
    return values


def _build_column_values(type_: pa.DataType) -> KeyValues:
    assert not kind.is_nested(type_), f"the plan let a key of type {type_} pass"
    is_string = kind.is_string(type_) or kind.is_binary(type_) or kind.is_decimal128(type_)
    return StringValues(type_) if is_string else NumberValues(type_)


def _to_words(array: pa.Array) -> Ints:
    """Return each value as a word, equal words for equal values; anything in place of null."""
    values = numbers_of(array)
    if kind.is_floating(array.type):
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            values = values + values.dtype.type(0)
        values[np.isnan(values)] = np.nan
        values = values.view(np.int64 if values.dtype.itemsize == 8 else np.int32)
    return values.astype(np.int64, copy=False)


def _from_words(words: Ints, nulls: npt.NDArray[np.bool_], type_: pa.DataType) -> pa.Array:
    mask = nulls if nulls.any() else None
    if kind.is_boolean(type_):
        return from_numpy(words.astype(np.bool_), missing=mask)
    if type_.bit_width == 64:
        return from_numpy(words, missing=mask).view(type_)
    stored = np.dtype(f"i{type_.bit_width // 8}")
    return from_numpy(words.astype(stored), missing=mask).view(type_)
