"""The forms that keys can have: words, pairs of keys, strings, and no columns at all.

`NumberKeys` are 64-bit words, `PairKeys` are words that combine two keys, and `StringKeys` stand in the same
hash table by their hashes. Equal values are one key: NaN equals NaN, -0.0 equals 0.0, and null is a key of
its own. Types are canonical (`expr/types.py`) and not nested: the plan refuses other keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.values import from_list, from_numpy, numbers_of, to_numpy
from penstock.kernels.hash_table import assign_dense, assign_strings, assign_words, write_strings
from penstock.stages.keys.slots import MIN_SLOTS, NO_INTS, KeySlots, resize
from penstock.stages.rows.batch import ColumnView, Ints

DENSE_RANGE = 1 << 16  # a dense table of this length (512 KB) is always worth having
DENSE_PER_SLOT = 4  # and beyond it, this many places per slot: no more than a hash table takes
BLOCK_ROWS = 1024  # rows whose misses are collected before they are searched for
SPARE_VALUES = 256  # values that combined keys may leave behind before they are swept


class WordKeys(KeySlots):
    """A slot for each distinct 64-bit word.

    Words of a small range stand in a dense table, at their distance from the low end (see `assign_dense`).
    """

    _dense: Ints | None = None
    _low = 0

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return super().nbytes + (0 if self._dense is None else self._dense.nbytes)

    def _assign_words(self, words: Ints) -> Ints:
        """Return the slot of each word."""
        if self._is_small(len(words)):
            return self._assign_small(words.tolist())
        words, slots = np.ascontiguousarray(words), np.empty(len(words), np.int64)
        if self._dict is not None:
            slots_of_keys, self._dict = self._key_slots(), None
            self._words = np.zeros(self.capacity, np.int64)
            self._words[slots_of_keys] = [self._keys[slot] for slot in slots_of_keys.tolist()]
            self._keys = {}
            self._build_table(words)
        row = self._assign_from(0, words, slots)
        while row < len(words):
            # No slot is free, or a word lies outside the dense table.
            if self._n_free == 0:
                self._double()
                self._words = resize(self._words, self.capacity)
            self._build_table(words[row:])
            row = self._assign_from(row, words, slots)
        return slots

    def _words_of(self, slots: Ints) -> Ints:
        """Return the words of live slots; of null anything."""
        if self._dict is None:
            return self._words[slots]
        return np.array([self._keys.get(slot, 0) for slot in slots.tolist()], np.int64)

    def _widen(self, bits: int, by: int) -> None:
        """Insert `by` zero bits above the lowest `bits` of every word: the same keys, in wider words."""
        low = (1 << bits) - 1
        if self._dict is None:
            self._words = ((self._words >> bits) << (bits + by)) | (self._words & low)
            self._build_table()
        else:
            self._keys = {slot: (key >> bits << bits + by) | (key & low) for slot, key in self._keys.items()}
            self._dict = {key: slot for slot, key in self._keys.items()}

    def _assign_from(self, row: int, words: Ints, slots: Ints) -> int:
        """Fill in the slots of the rows from `row` on; return the row it had to stop at, or all."""
        stack, n_free = self._stack, self._n_free
        if self._dense is None:
            table = (self._pairs, self._shift, self._words, stack, n_free, np.empty(BLOCK_ROWS + 1, np.int64))
            row, n_free = assign_words.compiled(words, row, *table, slots)
        else:
            table_ = (self._low, self._dense, self._words, stack, n_free)
            row, n_free = assign_dense.compiled(words, row, *table_, slots)
        self._set_free_count(n_free)
        return int(row)

    def _build_table(self, words: Ints = NO_INTS) -> None:
        """Make the table anew, for the words it has and for `words`: dense if their range allows it."""
        slots = self._key_slots()
        held = self._words[slots]
        ends = [int(end) for part in (held, words) if len(part) for end in (part.min(), part.max())]
        low, high = min(ends, default=0), max(ends, default=0)
        longest = max(DENSE_RANGE, DENSE_PER_SLOT * self.capacity)
        if high - low >= longest:
            self._dense = None
            self._build_hash_table(slots)
            return
        # Growing ranges mostly grow upwards; a table never reaches past the last int64.
        length = min(longest, 2 * (high - low) + 1024, 2**63 - low)
        self._low, self._dense, self._pairs = low, np.full(length, -1, np.int64), NO_INTS
        self._dense[held - low] = slots

    def _remove(self, slots: Ints) -> None:
        if self._dense is None:
            super()._remove(slots)
        else:
            self._dense[self._words[slots] - self._low] = -1


class NumberKeys(WordKeys):
    """Integers, dates, timestamps, bools and floats: each is a word."""

    def _look_up_valid(self, column: ColumnView) -> Ints:
        values = numbers_of(column.take())
        if values.dtype.kind == "f":
            with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
                values = values + values.dtype.type(0)
            values[np.isnan(values)] = np.nan
            values = values.view(np.int64 if values.dtype.itemsize == 8 else np.int32)
        return self._assign_words(values.astype(np.int64, copy=False))

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Implement `KeySlots.columns_of`."""
        (type_,), words, nulls = self.types, self._words_of(slots), np.asarray(slots == self._null)
        mask = nulls if nulls.any() else None
        if kind.is_boolean(type_):
            return [from_numpy(words.astype(np.bool_), missing=mask)]
        stored = words.astype(f"i{type_.bit_width // 8}", copy=False)
        return [from_numpy(stored, missing=mask).view(type_)]


class PairKeys(WordKeys):
    """The combinations of two keys: a word holds the left slot above the right one.

    Words are kept short (the right slot takes only the bits it needs), so that combinations of few values
    stay in a dense table. A value that no combination uses any more is swept later, many at a time.
    """

    def __init__(self, left: KeySlots, right: KeySlots) -> None:
        super().__init__((*left.types, *right.types))
        self._left, self._right = left, right
        self._bits = MIN_SLOTS.bit_length() - 1

    @property
    def nbytes(self) -> int:
        """Return the memory held, that of left and right included."""
        return super().nbytes + self._left.nbytes + self._right.nbytes

    def look_up(self, columns: Sequence[ColumnView]) -> Ints:
        """Implement `KeySlots.look_up`."""
        left, right = self._left.look_up(columns[:-1]), self._right.look_up(columns[-1:])
        return self._assign_words(self._combine(left, right))

    def assign_plain(self, columns: Sequence[Sequence[Any]]) -> Ints | None:
        """Implement `KeySlots.assign_plain`."""
        left, right = self._left.assign_plain(columns[:-1]), self._right.assign_plain(columns[-1:])
        if left is None or right is None:
            return None
        return super().assign_plain([self._combine(left, right).tolist()])

    def _combine(self, left: Ints, right: Ints) -> Ints:
        """Return the words of combinations of slots."""
        needed = (self._right.capacity - 1).bit_length()
        if needed > self._bits:
            self._widen(self._bits, needed - self._bits)
            self._bits = needed
        return (left << self._bits) | right

    def _hold_dict(self, holds: bool) -> None:
        for keys in (self._left, self._right):
            keys._hold_dict(holds)
        super()._hold_dict(holds)

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Implement `KeySlots.columns_of`."""
        left, right = self._split(slots)
        return self._left.columns_of(left) + self._right.columns_of(right)

    def free(self, slots: Ints) -> None:
        """Forget keys, and sweep the values of each side that none of them uses, if these are many."""
        super().free(slots)
        enough = 2 * self.n_live + SPARE_VALUES
        sides = (self._left, self._right)
        if any(side.n_live > enough for side in sides):
            for side, used in zip(sides, self._split(self.live()), strict=True):
                side.free(np.setdiff1d(side.live(), used))

    def _split(self, slots: Ints) -> tuple[Ints, Ints]:
        """Return the slots of the left and of the right values of combinations."""
        words = self._words_of(slots)
        return words >> self._bits, words & ((1 << self._bits) - 1)


class StringColumn(NamedTuple):
    """Strings or binaries as `assign_strings` reads them.

    limit  a string that ends after this byte is not read: eight bytes are, at a time
    """

    offsets: npt.NDArray[np.int32]
    data: npt.NDArray[np.uint8]
    limit: int

    @classmethod
    def of(cls, strings: pa.Array, *, copied: bool = False) -> StringColumn:
        """Read the buffers where they are; those of fewer than eight bytes are always copied.

        A copy has room at its end, so that all of its strings can be read.
        """
        _, offsets, data = strings.buffers()
        ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
        if data is not None and data.size >= 8 and not copied:
            return cls(ends, np.frombuffer(data, np.uint8), data.size - 8)
        first, last = int(ends[0]), int(ends[-1])
        octets = np.zeros(last - first + 8, np.uint8)
        if data is not None:
            octets[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        return cls(ends - np.int32(first), octets, last - first)


class StringKeys(KeySlots):
    """Strings and binaries, and decimals as their sixteen bytes.

    Small inputs: Arrow finds the distinct strings of a batch and the dict knows them all. Large ones: the
    strings of slots lie in an arena of bytes, and nothing is done in Python per string. Strings that were
    freed leave holes, which are closed when the arena is full and a third of it is holes.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        super().__init__(types)
        # Why: these bytes are equal exactly when the decimals are, as all values of a column have one scale.
        self._is_decimal = kind.is_decimal128(types[0])
        self._starts = self._arena = NO_INTS
        self._n_arena = self._n_holes = 0

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return super().nbytes + self._starts.nbytes + self._arena.nbytes

    def _look_up_valid(self, column: ColumnView) -> Ints:
        if self._is_decimal:
            column = ColumnView(column.take().view(pa.binary(16)).cast(pa.binary()), None)
        strings, selection = column
        n_rows = len(strings) if selection is None else selection.num_rows
        if self._is_small(n_rows):
            encoded = pc.dictionary_encode(column.take())
            return np.asarray(self._assign_small(encoded.dictionary.to_pylist())[to_numpy(encoded.indices)])
        if self._dict is not None:
            self._move_to_arena(strings.type)
        slots = np.empty(n_rows, np.int64)
        if n_rows:
            self._assign_selected(strings, NO_INTS if selection is None else selection.indices, slots)
        return slots

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Implement `KeySlots.columns_of`."""
        known, (type_,) = np.asarray(slots != self._null), self.types
        strings = self._strings_of(slots[known], pa.binary() if self._is_decimal else type_)
        if self._is_decimal:
            strings = pa.Array.from_buffers(type_, len(strings), [None, strings.buffers()[2]])
        if known.all():
            return [strings]
        return [pc.take(strings, from_numpy(np.cumsum(known) - 1, missing=~known))]

    def _strings_of(self, slots: Ints, type_: pa.DataType) -> pa.Array:
        """Return the strings of live slots."""
        if self._dict is not None:
            return from_list([self._keys[slot] for slot in slots.tolist()], type_)
        offsets = np.append(0, np.cumsum(self._arena[self._starts[slots]]))
        data: Ints = np.zeros(offsets[-1] // 8 + 2, np.int64)
        write_strings.compiled(np.ascontiguousarray(slots), self._starts, self._arena, offsets, data)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data.view(np.uint8))]
        return pa.Array.from_buffers(type_, len(slots), buffers)

    def _assign_selected(self, strings: pa.Array, selected: Ints, slots: Ints) -> None:
        column, row = StringColumn.of(strings), 0
        while True:
            table = (self._pairs, self._shift, self._words, self._starts, self._arena, self._n_arena)
            free = (self._stack, self._n_free)
            row, n_free, self._n_arena = assign_strings.compiled(*column, selected, row, *table, *free, slots)
            self._set_free_count(n_free)
            if row == len(slots):  # else it had to stop at this row
                return
            string = int(selected[row]) if len(selected) else row
            begin, end = column.offsets[string : string + 2].tolist()
            if end > column.limit:
                # Only a string at the very end of its buffer: the others are in place.
                rest = from_numpy(selected[row:]) if len(selected) else None
                strings = strings.slice(row) if rest is None else strings.take(rest)
                column, selected, slots, row = StringColumn.of(strings, copied=True), NO_INTS, slots[row:], 0
            elif n_free == 0:
                self._grow()
            else:
                self._extend_arena(_n_words(np.array([end - begin]))[0])

    def _move_to_arena(self, type_: pa.DataType) -> None:
        """Put the strings of the dict into an arena, with the slots they have."""
        slots = self._key_slots()
        column = StringColumn.of(self._strings_of(slots, type_), copied=True)
        self._dict, self._keys = None, {}
        self._words, self._starts = np.zeros((2, self.capacity), np.int64)
        self._arena = np.zeros(2 * int(_n_words(np.diff(column.offsets)).sum()) + 1024, np.int64)
        self._build_hash_table(NO_INTS)
        # Why: the loop gives a new string the slot on top of a stack; here, the one it has.
        table = (self._pairs, self._shift, self._words, self._starts, self._arena, 0)
        ignored = np.empty(len(slots), np.int64)
        _, _, self._n_arena = assign_strings.compiled(
            *column, NO_INTS, 0, *table, slots[::-1].copy(), len(slots), ignored
        )

    def _resize(self) -> None:
        if self._dict is None:
            self._starts = resize(self._starts, self.capacity)
            self._close_holes()
        super()._resize()

    def _extend_arena(self, n_words: int) -> None:
        """Make room in the arena for a string of `n_words`."""
        if 3 * self._n_holes >= self._n_arena:
            self._close_holes()
        self._arena = resize(self._arena, 2 * (self._n_arena + n_words))

    def _close_holes(self) -> None:
        slots = self._key_slots()
        sizes = _n_words(self._arena[self._starts[slots]])
        ends = np.cumsum(sizes)
        old = np.repeat(self._starts[slots] - (ends - sizes), sizes) + np.arange(sizes.sum())
        self._arena = self._arena[old]
        self._n_arena, self._n_holes = len(self._arena), 0
        self._starts[slots] = ends - sizes

    def _remove(self, slots: Ints) -> None:
        super()._remove(slots)
        self._n_holes += int(_n_words(self._arena[self._starts[slots]]).sum())


def _n_words(lengths: npt.NDArray[Any]) -> Ints:
    """Return the words in the arena of strings of these lengths in bytes: the length, and the bytes."""
    return np.asarray((lengths + 7) // 8 + 1, np.int64)


class SingleKey(KeySlots):
    """The key of a stream without key columns: slot 0, and no look-up."""

    def look_up(self, columns: Sequence[ColumnView]) -> Ints:
        """Return slot 0 for every row, as the slot of null."""
        array = columns[0].values
        if len(array) and self._n_free:
            self._null = self._take_slot()
        return np.zeros(len(array), np.int64)

    def assign_plain(self, columns: Sequence[Sequence[Any]]) -> None:
        """Return None: without columns there is nothing to look up."""
        return

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Return no columns."""
        return []


def build_keys(types: Sequence[pa.DataType]) -> KeySlots:
    """Return slots for key columns: one column as it is, several as pairs of pairs, from the left.

    >>> keys = build_keys([pa.string()])
    >>> keys.assign([pa.array(["a", None, "a", "b"])]).tolist()
    [0, 2, 0, 1]
    >>> keys.free(np.array([0]))
    >>> keys.assign([pa.array(["c"])]).tolist()
    [0]
    >>> keys.columns_of(np.array([2, 0]))[0].to_pylist()
    [None, 'c']
    """
    keys: KeySlots | None = None
    for type_ in types:
        assert not kind.is_nested(type_), f"the plan let a key of type {type_} pass"
        is_string = kind.is_string(type_) or kind.is_binary(type_) or kind.is_decimal128(type_)
        column = StringKeys([type_]) if is_string else NumberKeys([type_])
        keys = column if keys is None else PairKeys(keys, column)
    return SingleKey((), 1) if keys is None else keys
