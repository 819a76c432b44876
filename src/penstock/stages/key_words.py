"""Slots for 64-bit words, and for null: what number keys and combined keys are made of.

Small inputs live in a dict. The first large batch, or enough rows in small ones, moves the words into a
compiled table, and a stream never moves back: the slots stay the same throughout.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.stages.key_index import DictIndex, Index, table_for
from penstock.stages.key_room import SlotRoom

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LARGE_BATCH = 4096  # rows; below, a dict is done before Numba is loaded
LONG_STREAM = 1 << 17  # rows in all


def is_large(n_rows: int, n_rows_so_far: int) -> bool:
    """Whether a batch, or the stream so far, is worth loading Numba for."""
    return n_rows >= LARGE_BATCH or n_rows_so_far >= LONG_STREAM


class WordSlots:
    """A dense slot for each different word, and one for null."""

    def __init__(self) -> None:
        self.room = SlotRoom()
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
        self.room.give_back(slots)
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
