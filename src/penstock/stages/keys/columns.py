"""Slots for 64-bit words, and for null: what number keys and combined keys are made of.

Small inputs live in a dict. The first large batch, or enough rows in small ones, moves the words into a
compiled table, and a stream never moves back: the slots stay the same throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.arrow.columnar_value import numbers_of
from penstock.expr.values import from_numpy, valid_in
from penstock.stages.keys.allocator import MIN_SLOTS, SlotAllocator
from penstock.stages.keys.index import DictIndex, Index, table_for

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LARGE_BATCH = 4096  # rows; below, a dict is done before Numba is loaded
LONG_STREAM = 1 << 17  # rows in all


def is_large(n_rows: int, n_rows_so_far: int) -> bool:
    """Whether a batch, or the stream so far, is worth loading Numba for."""
    return n_rows >= LARGE_BATCH or n_rows_so_far >= LONG_STREAM


class WordValues:
    """A dense slot for each different word, and one for null."""

    def __init__(self) -> None:
        self.room = SlotAllocator()
        self._words: Ints = np.zeros(self.room.capacity, dtype=np.int64)
        self._index: Index = DictIndex(self._words[:0], self._words)
        self._null = -1  # its slot, which is in no index
        self._n_rows = 0

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._words.nbytes + self._index.nbytes + self.room.nbytes

    def assign(self, words: Ints, valid: Mask | None = None) -> Ints:
        """The slot of each row's word; rows that are not valid share the slot of null."""
        if valid is None:
            return self._assign(np.ascontiguousarray(words))
        slots = np.empty(len(words), dtype=np.int64)
        slots[valid] = self._assign(words[valid])
        if not valid.all():
            slots[~valid] = self._null_slot()
        return slots

    def free(self, slots: Ints) -> None:
        """Forget the words of these slots."""
        self.room.release(slots)
        if self._null >= 0 and (slots == self._null).any():
            slots = slots[slots != self._null]
            self._null = -1
        self._index.remove(slots, self._words)
        if self.room.trim():
            self._words = self._words[: self.room.capacity].copy()
            self._reindex(self._words[:0])

    def words_of(self, slots: Ints) -> Ints:
        """The words of live slots; 0 for null."""
        return self._words[slots]

    def nulls_of(self, slots: Ints) -> Mask:
        """Which of the slots is that of null."""
        nulls: Mask = slots == self._null
        return nulls

    def widen(self, bits: int, by: int) -> None:
        """Insert `by` zero bits above the lowest `bits` of every word: the same keys, spelt wider."""
        low = self._words & ((1 << bits) - 1)
        self._words = ((self._words >> bits) << (bits + by)) | low
        if isinstance(self._index, DictIndex):
            self._index = DictIndex(self._entered(), self._words)
        self._reindex(self._words[:0])

    def _assign(self, words: Ints) -> Ints:
        self._n_rows += len(words)
        if isinstance(self._index, DictIndex) and is_large(len(words), self._n_rows):
            self._index = table_for(words, self._entered(), self._words, self.room.capacity)
        slots = np.empty(len(words), dtype=np.int64)
        row = self._index.assign(words, 0, self._words, self.room, slots)
        while row < len(words):
            if self.room.n_free == 0:
                self._grow()
            self._reindex(words[row:])
            row = self._index.assign(words, row, self._words, self.room, slots)
        return slots

    def _null_slot(self) -> int:
        if self._null < 0:
            if self.room.n_free == 0:
                self._grow()
                self._reindex(self._words[:0])
            self._null = self.room.take()
            self._words[self._null] = 0
        return self._null

    def _grow(self) -> None:
        self.room.grow()
        self._words = np.concatenate([self._words, np.zeros_like(self._words)])

    def _reindex(self, words: Ints) -> None:
        """Make the table anew, for the capacity of now and for the words to come; a dict needs none."""
        if not isinstance(self._index, DictIndex):
            self._index = table_for(words, self._entered(), self._words, self.room.capacity)

    def _entered(self) -> Ints:
        live = self.room.live()
        entered: Ints = live[live != self._null]
        return entered


# Slots for the values of key columns: numbers as 64-bit words, texts by dictionary, several in pairs.
#
# Each class here gives equal values one slot: null is a value of its own, NaN equals NaN, -0.0 equals 0.0.
# Types are canonical (`expr/types.py`) and not nested: the plan refuses other keys.

SPARE = 256  # values that combined keys may leave behind before they are swept


class KeyValues(Protocol):
    """The different values of one or more columns, each with a slot below `capacity`."""

    @property
    def capacity(self) -> int:
        """Slots are below it."""

    @property
    def n_live(self) -> int:
        """How many values are known."""

    @property
    def nbytes(self) -> int:
        """The memory held."""

    def assign(self, columns: Sequence[pa.Array]) -> Ints:
        """The slot of each row."""

    def free(self, slots: Ints) -> None:
        """Forget the values of these slots, each live and named once."""

    def live(self) -> Ints:
        """The slots in use."""

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """The values of live slots."""


class NumberValues:
    """Integers, dates, timestamps, bools and floats: each is a 64-bit word."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = type
        self._words = WordValues()

    @property
    def capacity(self) -> int:
        """Slots are below it."""
        return self._words.room.capacity

    @property
    def n_live(self) -> int:
        """How many values are known."""
        return self._words.room.n_live

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._words.nbytes

    def assign(self, columns: Sequence[pa.Array]) -> Ints:
        """As the protocol says."""
        (array,) = columns
        valid = valid_in(array) if array.null_count else None
        return self._words.assign(_to_words(array), valid)

    def free(self, slots: Ints) -> None:
        """As the protocol says."""
        self._words.free(slots)

    def live(self) -> Ints:
        """As the protocol says."""
        return self._words.room.live()

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """As the protocol says."""
        nulls = self._words.nulls_of(slots)
        return [_from_words(self._words.words_of(slots), nulls, self._type)]


class PairValues:
    """The combinations of two: a word holds the left slot above the right one.

    Words are kept short (the right slot takes only the bits it needs), so that combinations of few values
    stay in a near table. A value that no combination uses any more is swept later, many at a time.
    """

    def __init__(self, left: KeyValues, right: KeyValues, *, n_left: int) -> None:
        self._left, self._right, self._n_left = left, right, n_left
        self._words = WordValues()
        self._bits = MIN_SLOTS.bit_length() - 1

    @property
    def capacity(self) -> int:
        """Slots are below it."""
        return self._words.room.capacity

    @property
    def n_live(self) -> int:
        """How many combinations are known."""
        return self._words.room.n_live

    @property
    def nbytes(self) -> int:
        """The memory held, the two parts included."""
        return self._words.nbytes + self._left.nbytes + self._right.nbytes

    def assign(self, columns: Sequence[pa.Array]) -> Ints:
        """As the protocol says."""
        left = self._left.assign(columns[: self._n_left])
        right = self._right.assign(columns[self._n_left :])
        needed = (self._right.capacity - 1).bit_length()
        if needed > self._bits:
            self._words.widen(self._bits, needed - self._bits)
            self._bits = needed
        return self._words.assign((left << self._bits) | right)

    def free(self, slots: Ints) -> None:
        """As the protocol says."""
        self._words.free(slots)
        enough = 2 * self.n_live + SPARE
        if self._left.n_live > enough or self._right.n_live > enough:
            left, right = self._parts_of(self.live())
            _sweep(self._left, left)
            _sweep(self._right, right)

    def live(self) -> Ints:
        """As the protocol says."""
        return self._words.room.live()

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """As the protocol says."""
        left, right = self._parts_of(slots)
        return self._left.columns_of(left) + self._right.columns_of(right)

    def _parts_of(self, slots: Ints) -> tuple[Ints, Ints]:
        words = self._words.words_of(slots)
        return words >> self._bits, words & ((1 << self._bits) - 1)


def _sweep(values: KeyValues, used: Ints) -> None:
    """Free every slot that is not among the used ones."""
    unused = np.zeros(values.capacity, dtype=np.bool_)
    unused[values.live()] = True
    unused[used] = False
    values.free(np.flatnonzero(unused))


def _to_words(array: pa.Array) -> Ints:
    """Each value as a word, equal words for equal values; anything in place of null."""
    values = numbers_of(array)
    if kind.is_floating(array.type):
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            values = values + values.dtype.type(0)
        values[np.isnan(values)] = np.nan
        values = values.view(np.int64 if values.dtype.itemsize == 8 else np.int32)
    return values.astype(np.int64, copy=False)


def _from_words(words: Ints, nulls: npt.NDArray[np.bool_], type: pa.DataType) -> pa.Array:
    mask = nulls if nulls.any() else None
    if kind.is_boolean(type):
        return from_numpy(words.astype(np.bool_), missing=mask)
    if type.bit_width == 64:
        return from_numpy(words, missing=mask).view(type)
    stored = np.dtype(f"i{type.bit_width // 8}")
    return from_numpy(words.astype(stored), missing=mask).view(type)
