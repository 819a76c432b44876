"""Distinct keys and their slots: a dict while inputs are small, then the compiled tables of `kernels/keys`.

The first large batch, or enough rows in small ones (`policy.SIZES`), moves the keys from the dict into a
table; a stream never moves back. Slots stay the same throughout, and are handed out in order of first
appearance.

`WordIndex` is for 64-bit words, `StringIndex` for strings, which stand in the same hash table by their
hashes. Null is no key: it has a slot of its own that is in no table.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expr import compute as pc
from penstock.expr.values import from_list, from_numpy, to_numpy
from penstock.kernels.keys.hash_table import (
    assign_dense,
    assign_strings,
    assign_words,
    insert_slots,
    remove_slots,
    write_strings,
)
from penstock.stages import policy
from penstock.stages.keys.allocator import SlotAllocator
from penstock.stages.rows.batch import ColumnView

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DENSE_RANGE = 1 << 16  # a dense table of this length (512 KB) is always worth having
DENSE_PER_SLOT = 4  # and beyond it, this many places per slot: no more than a hash table takes
SPARSE_SLOTS = 4096  # tables of up to this many slots are kept sparse: displaced keys cost more than cache
BLOCK_ROWS = 1024  # rows whose misses are collected before they are searched for

_NO_INTS = np.empty(0, np.int64)


class HashIndex:
    """What the indexes of words and of strings share: a dict, a hash table, and the slot of null.

    While there is no table, `_dict` has the slot of each key and `_keys` the key of each slot; then `_dict`
    is None, and `_words` has the word of each slot: the key itself, or its hash.
    """

    def __init__(self) -> None:
        self.allocator = SlotAllocator()
        self._dict: dict[Any, int] | None = {}
        self._keys: dict[int, Any] = {}
        self._n_rows = 0
        self._null = -1
        self._words = self._pairs = _NO_INTS
        self._shift = 0

    def null_slot(self) -> int:
        """Return the slot of null; the first caller is given a new one."""
        if self._null < 0:
            if self.allocator.n_free == 0:
                self._grow()
            self._null = self.allocator.take()
        return self._null

    def nulls_of(self, slots: Ints) -> Mask:
        """Return which of the slots is that of null."""
        return np.asarray(slots == self._null, np.bool_)

    def free(self, slots: Ints) -> None:
        """Forget the keys of these slots, each live and named once."""
        self.allocator.release(slots)
        if self._null >= 0 and (slots == self._null).any():
            slots = slots[slots != self._null]
            self._null = -1
        if self._dict is None:
            self._remove(slots)
        else:
            for slot in slots.tolist():
                del self._dict[self._keys.pop(slot)]
        if self.allocator.trim():
            self._resize()

    def _is_small(self, n_rows: int) -> bool:
        """Count the rows of a batch, and return whether the keys stay in the dict."""
        self._n_rows += n_rows
        sizes = policy.SIZES
        is_small = n_rows < sizes.hash_batch_rows and self._n_rows < sizes.hash_total_rows
        return self._dict is not None and is_small

    def _assign_small(self, keys: list[Any]) -> Ints:
        """Return the slots of keys, by the dict."""
        assert self._dict is not None, "a stream never moves back into the dict"
        slots = []
        for key in keys:
            slot = self._dict.get(key)
            if slot is None:
                if self.allocator.n_free == 0:
                    self._grow()
                slot = self._dict[key] = self.allocator.take()
                self._keys[slot] = key
            slots.append(slot)
        return np.array(slots, np.int64)

    def _grow(self) -> None:
        self.allocator.grow()
        self._resize()

    def _resize(self) -> None:
        """Follow the capacity of the allocator."""
        if self._dict is None:
            self._words = resize(self._words, self.allocator.capacity)
            self._build_table()
        else:
            # Why: a dict gives memory back only when it is made anew.
            self._dict, self._keys = dict(self._dict), dict(self._keys)

    def _build_table(self) -> None:
        """Make the table anew, for the capacity of now."""
        self._build_hash_table(self._key_slots())

    def _build_hash_table(self, slots: Ints) -> None:
        """Make the hash table anew, with the keys of some slots."""
        capacity = self.allocator.capacity
        entries = capacity * (8 if capacity <= SPARSE_SLOTS else 2)  # a power of two
        self._shift = 64 - (entries - 1).bit_length()
        self._pairs = np.full(2 * entries, -1, np.int64)
        insert_slots.compiled(slots, self._words, self._pairs, self._shift)

    def _remove(self, slots: Ints) -> None:
        """Take keys out of the table."""
        remove_slots.compiled(slots, self._words, self._pairs, self._shift)

    def _key_slots(self) -> Ints:
        """Return the slots of all keys."""
        live = self.allocator.live()
        return np.asarray(live[live != self._null], np.int64)


class WordIndex(HashIndex):
    """A slot for each distinct 64-bit word.

    Words of a small range stand in a dense table, at their distance from the low end (see `assign_dense`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._dense: Ints | None = None
        self._low = 0
        self._missed = np.empty(BLOCK_ROWS + 1, np.int64)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        table = self._pairs if self._dense is None else self._dense
        in_dict = 0 if self._dict is None else sys.getsizeof(self._dict) + 64 * len(self._dict)
        return self._words.nbytes + table.nbytes + in_dict + self.allocator.nbytes

    def assign(self, words: Ints) -> Ints:
        """Return the slot of each word."""
        if self._is_small(len(words)):
            return self._assign_small(words.tolist())
        words, slots = np.ascontiguousarray(words), np.empty(len(words), np.int64)
        if self._dict is not None:
            slots_of_keys, self._dict = self._key_slots(), None
            self._words = np.zeros(self.allocator.capacity, np.int64)
            self._words[slots_of_keys] = [self._keys[slot] for slot in slots_of_keys.tolist()]
            self._keys = {}
            self._choose_table(words)
        row = self._assign_from(0, words, slots)
        while row < len(words):
            # No slot is free, or a word lies outside the dense table.
            if self.allocator.n_free == 0:
                self.allocator.grow()
                self._words = resize(self._words, self.allocator.capacity)
            self._choose_table(words[row:])
            row = self._assign_from(row, words, slots)
        return slots

    def words_of(self, slots: Ints) -> Ints:
        """Return the words of live slots; of null anything."""
        if self._dict is None:
            return self._words[slots]
        return np.array([self._keys.get(slot, 0) for slot in slots.tolist()], np.int64)

    def widen(self, bits: int, by: int) -> None:
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
        stack, n_free = self.allocator.stack, self.allocator.n_free
        if self._dense is None:
            table = (self._pairs, self._shift, self._words, stack, n_free, self._missed)
            row, n_free = assign_words.compiled(words, row, *table, slots)
        else:
            table_ = (self._low, self._dense, self._words, stack, n_free)
            row, n_free = assign_dense.compiled(words, row, *table_, slots)
        self.allocator.set_free_count(n_free)
        return int(row)

    def _build_table(self) -> None:
        self._choose_table(_NO_INTS)

    def _choose_table(self, words: Ints) -> None:
        """Make the table anew, for the words it has and for `words`: dense if their range allows it."""
        slots = self._key_slots()
        held = self._words[slots]
        ends = [int(end) for part in (held, words) if len(part) for end in (part.min(), part.max())]
        low, high = min(ends, default=0), max(ends, default=0)
        longest = max(DENSE_RANGE, DENSE_PER_SLOT * self.allocator.capacity)
        if high - low >= longest:
            self._dense = None
            self._build_hash_table(slots)
            return
        # Growing ranges mostly grow upwards; a table never reaches past the last int64.
        length = min(longest, 2 * (high - low) + 1024, 2**63 - low)
        self._low, self._dense, self._pairs = low, np.full(length, -1, np.int64), _NO_INTS
        self._dense[held - low] = slots

    def _remove(self, slots: Ints) -> None:
        if self._dense is None:
            super()._remove(slots)
        else:
            self._dense[self._words[slots] - self._low] = -1


class StringColumn(NamedTuple):
    """Strings or binaries as `assign_strings` reads them.

    limit  a string that ends after this byte is not read: whole words are
    """

    offsets: npt.NDArray[np.int32]
    data: Ints
    limit: int

    @classmethod
    def of(cls, strings: pa.Array) -> StringColumn:
        """Read the buffers where they are; the data is copied if it does not begin on a whole word."""
        _, offsets, data = strings.buffers()
        ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
        octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        whole = octets[: len(octets) // 8 * 8]
        words = whole.copy() if data is not None and data.address % 8 else whole
        return cls(ends, words.view(np.int64), 8 * max(len(words) // 8 - 1, 0))

    @classmethod
    def copy(cls, strings: pa.Array) -> StringColumn:
        """Copy the strings, with room at their end so that all can be read."""
        _, offsets, data = strings.buffers()
        ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
        first, last = int(ends[0]), int(ends[-1])
        words: Ints = np.zeros((last - first) // 8 + 2, np.int64)
        if data is not None:
            words.view(np.uint8)[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        return cls(ends - np.int32(first), words, last - first)


class StringIndex(HashIndex):
    """A slot for each distinct string, or binary.

    Small inputs: Arrow finds the distinct strings of a batch and the dict knows them all. Large ones: the
    strings of slots lie in an arena of bytes, and nothing is done in Python per string. Strings that were
    freed leave holes, which are closed when the arena is full and a third of it is holes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._starts = self._arena = _NO_INTS
        self._n_arena = self._n_holes = 0

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        strings = sum(map(sys.getsizeof, self._keys.values())) + sys.getsizeof(self._keys)
        in_dict = 0 if self._dict is None else sys.getsizeof(self._dict) + strings
        arrays = (self._words, self._pairs, self._starts, self._arena)
        return sum(array.nbytes for array in arrays) + in_dict + self.allocator.nbytes

    def assign(self, column: ColumnView) -> Ints:
        """Return the slot of each selected string; none of them is null."""
        strings, selection = column
        n_rows = len(strings) if selection is None else selection.num_rows
        if self._is_small(n_rows):
            encoded = pc.dictionary_encode(column.take())
            return np.asarray(self._assign_small(encoded.dictionary.to_pylist())[to_numpy(encoded.indices)])
        if self._dict is not None:
            self._move_to_arena(strings.type)
        slots = np.empty(n_rows, np.int64)
        if n_rows:
            self._assign_selected(strings, _NO_INTS if selection is None else selection.indices, slots)
        return slots

    def strings_of(self, slots: Ints, type_: pa.DataType) -> pa.Array:
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
            row, n_free = self._assign_from(row, column, selected, slots)
            self.allocator.set_free_count(n_free)
            if row == len(slots):
                return
            string = int(selected[row]) if len(selected) else row
            begin, end = column.offsets[string : string + 2].tolist()
            if end > column.limit:
                # Only a string at the very end of its buffer: the others are in place.
                rest = from_numpy(selected[row:]) if len(selected) else None
                strings = strings.slice(row) if rest is None else strings.take(rest)
                column, selected, slots, row = StringColumn.copy(strings), _NO_INTS, slots[row:], 0
            elif n_free == 0:
                self._grow()
            else:
                self._extend_arena(_n_words(np.array([end - begin]))[0])

    def _assign_from(self, row: int, column: StringColumn, selected: Ints, slots: Ints) -> tuple[int, int]:
        """Fill in slots from `row` on; return the row it had to stop at, and the number of free slots."""
        table = (self._pairs, self._shift, self._words, self._starts, self._arena, self._n_arena)
        free = (self.allocator.stack, self.allocator.n_free)
        row, n_free, self._n_arena = assign_strings.compiled(*column, selected, row, *table, *free, slots)
        return row, n_free

    def _move_to_arena(self, type_: pa.DataType) -> None:
        """Put the strings of the dict into an arena, with the slots they have."""
        slots = self._key_slots()
        column = StringColumn.copy(self.strings_of(slots, type_))
        self._dict, self._keys = None, {}
        self._words, self._starts = np.zeros((2, self.allocator.capacity), np.int64)
        self._arena = np.zeros(2 * int(_n_words(np.diff(column.offsets)).sum()) + 1024, np.int64)
        self._build_hash_table(_NO_INTS)
        # Why: the loop gives a new string the slot on top of a stack; here, the one it has.
        table = (self._pairs, self._shift, self._words, self._starts, self._arena, 0)
        ignored = np.empty(len(slots), np.int64)
        _, _, self._n_arena = assign_strings.compiled(
            *column, _NO_INTS, 0, *table, slots[::-1].copy(), len(slots), ignored
        )

    def _resize(self) -> None:
        if self._dict is None:
            self._starts = resize(self._starts, self.allocator.capacity)
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


def resize(array: Ints, length: int) -> Ints:
    """Return the first `length` numbers, filled up with zeros."""
    return np.concatenate([array[:length], np.zeros(max(0, length - len(array)), np.int64)])


def _n_words(lengths: npt.NDArray[Any]) -> Ints:
    """Return the words in the arena of strings of these lengths in bytes: the length, and the bytes."""
    return np.asarray((lengths + 7) // 8 + 1, np.int64)
