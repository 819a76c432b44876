"""Three ways to find the slot of a 64-bit word, behind one interface.

A dict for small inputs, which need no Numba; and the two tables of `kernels/slots.py`, near and far. All
three hand out the same slots for the same words, in order of first appearance.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.kernels.slots import assign_far, assign_near, enter_far, remove_far
from penstock.stages.key_room import SlotRoom

Ints = npt.NDArray[np.int64]

NEAR_REACH = 1 << 16  # a near table of this length (512 KB) is always worth having
NEAR_PER_SLOT = 4  # and beyond it, this many places per slot: no more than a far table takes
SPARSE_TO = 4096  # far tables up to so many slots are kept sparse: displaced words cost more than cache
BLOCK = 1024  # rows whose misses are noted before they are searched for


class Index(Protocol):
    """Words to slots. Slot words and room are the owner's; an index only adds to them."""

    @property
    def nbytes(self) -> int:
        """The memory held."""

    def assign(self, words: Ints, row: int, slot_words: Ints, room: SlotRoom, slots: Ints) -> int:
        """Fill in the slots of the rows from `row` on; return the row it had to stop at, or all."""

    def remove(self, slots: Ints, slot_words: Ints) -> None:
        """Forget the words of these slots."""


class DictIndex:
    """A dict from word to slot: for inputs too small to be worth loading Numba."""

    def __init__(self, slots: Ints, slot_words: Ints) -> None:
        self._slots: dict[int, int] = dict(zip(slot_words[slots].tolist(), slots.tolist(), strict=True))

    @property
    def nbytes(self) -> int:
        """The memory held: the dict and its integers."""
        return self._slots.__sizeof__() + 64 * len(self._slots)

    def assign(self, words: Ints, row: int, slot_words: Ints, room: SlotRoom, slots: Ints) -> int:
        """As the protocol says."""
        known = self._slots
        for i, word in enumerate(words[row:].tolist(), row):
            slot = known.get(word)
            if slot is None:
                if room.n_free == 0:
                    return i
                slot = known[word] = room.take()
                slot_words[slot] = word
            slots[i] = slot
        return len(words)

    def remove(self, slots: Ints, slot_words: Ints) -> None:
        """As the protocol says."""
        for word in slot_words[slots].tolist():
            del self._slots[word]


class NearIndex:
    """Words of a small range, each at its distance from the low end."""

    def __init__(self, low: int, reach: int, slots: Ints, slot_words: Ints) -> None:
        self._low = low
        self._table = np.full(reach, -1, dtype=np.int64)
        self._table[slot_words[slots] - low] = slots

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._table.nbytes

    def assign(self, words: Ints, row: int, slot_words: Ints, room: SlotRoom, slots: Ints) -> int:
        """As the protocol says; stops at a word out of range."""
        stopped, n_free = assign_near.compiled(
            words, row, self._low, self._table, slot_words, room.stack, room.n_free, slots
        )
        room.popped(n_free)
        return int(stopped)

    def remove(self, slots: Ints, slot_words: Ints) -> None:
        """As the protocol says."""
        self._table[slot_words[slots] - self._low] = -1


class FarIndex:
    """Any words, in a hash table with several entries per slot."""

    def __init__(self, capacity: int, slots: Ints, slot_words: Ints) -> None:
        entries = entries_for(capacity)
        self._shift = 64 - (entries - 1).bit_length()
        self._pairs = np.full(2 * entries, -1, dtype=np.int64)
        self._missed = np.empty(BLOCK + 1, dtype=np.int64)
        enter_far.compiled(slots, slot_words, self._pairs, self._shift)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._pairs.nbytes + self._missed.nbytes

    def assign(self, words: Ints, row: int, slot_words: Ints, room: SlotRoom, slots: Ints) -> int:
        """As the protocol says."""
        stopped, n_free = assign_far.compiled(
            words,
            row,
            self._pairs,
            self._shift,
            slot_words,
            room.stack,
            room.n_free,
            self._missed,
            slots,
        )
        room.popped(n_free)
        return int(stopped)

    def remove(self, slots: Ints, slot_words: Ints) -> None:
        """As the protocol says."""
        remove_far.compiled(slots, slot_words, self._pairs, self._shift)


def entries_for(capacity: int) -> int:
    """How many entries a far table of so many slots has: a power of two, at least twice as many."""
    return capacity * (8 if capacity <= SPARSE_TO else 2)


def table_for(words: Ints, slots: Ints, slot_words: Ints, capacity: int) -> NearIndex | FarIndex:
    """A table that holds the words of `slots` and can take in `words`: near if their range allows it."""
    held = slot_words[slots]
    ends = [int(end) for part in (held, words) if len(part) for end in (part.min(), part.max())]
    low, high = min(ends, default=0), max(ends, default=0)
    most = max(NEAR_REACH, NEAR_PER_SLOT * capacity)
    if high - low >= most:
        return FarIndex(capacity, slots, slot_words)
    # Growing ranges mostly grow upwards; a table never reaches past the last int64.
    reach = min(most, 2 * (high - low) + 1024, 2**63 - low)
    return NearIndex(low, reach, slots, slot_words)
