"""Three ways to find the slot of a 64-bit word, behind one interface.

A dict for small inputs, which need no Numba; and the two tables of `kernels/keys/slots.py`, near and far. All
three hand out the same slots for the same words, in order of first appearance.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expr.values import from_numpy, valid_in
from penstock.kernels.keys.slots import assign_dense, assign_hashed, insert_slots, remove_slots
from penstock.kernels.keys.strings import BEYOND, enter_texts, find_texts
from penstock.stages.keys.allocator import SlotAllocator

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

    def assign(self, words: Ints, row: int, slot_words: Ints, room: SlotAllocator, slots: Ints) -> int:
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

    def assign(self, words: Ints, row: int, slot_words: Ints, room: SlotAllocator, slots: Ints) -> int:
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

    def assign(self, words: Ints, row: int, slot_words: Ints, room: SlotAllocator, slots: Ints) -> int:
        """As the protocol says; stops at a word out of range."""
        stopped, n_free = assign_dense.compiled(
            words, row, self._low, self._table, slot_words, room.stack, room.n_free, slots
        )
        room.set_free_count(n_free)
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
        insert_slots.compiled(slots, slot_words, self._pairs, self._shift)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._pairs.nbytes + self._missed.nbytes

    def assign(self, words: Ints, row: int, slot_words: Ints, room: SlotAllocator, slots: Ints) -> int:
        """As the protocol says."""
        stopped, n_free = assign_hashed.compiled(
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
        room.set_free_count(n_free)
        return int(stopped)

    def remove(self, slots: Ints, slot_words: Ints) -> None:
        """As the protocol says."""
        remove_slots.compiled(slots, slot_words, self._pairs, self._shift)


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


# The rows of a table by a column of texts, looked up where a batch's texts lie.
#
# No text of a batch is copied: the compiled loop reads those that were picked from Arrow's own buffers. Only
# those at the very end of a buffer are, because whole words are read. Assumes strings or binaries.

Octets = npt.NDArray[np.uint8]

_NOTHING = np.empty(0, np.int64)


class Laid(NamedTuple):
    """A column's texts as the loops read them, and the byte up to which they can be read."""

    offsets: Ints
    data: Ints
    first: int
    limit: int

    @classmethod
    def of(cls, texts: pa.Array) -> Laid:
        """The buffers as they are; the offsets are copied where the last is alone in its word."""
        _, offsets, data = texts.buffers()
        even = texts.offset // 2 * 2
        n_words = (texts.offset - even + len(texts) + 2) // 2
        ends = _octets(offsets)[4 * even : 4 * even + 8 * n_words]
        octets = _octets(data)
        words = octets[: len(octets) // 8 * 8].view(np.int64)
        return cls(_words(ends), words, texts.offset - even, 8 * max(len(words) - 1, 0))

    @classmethod
    def copied(cls, texts: pa.Array) -> Laid:
        """A copy with room at its end, so that all can be read."""
        laid = cls.of(texts)
        octets = _octets(texts.buffers()[2])
        padded = np.zeros(len(octets) + 16, np.uint8)
        padded[: len(octets)] = octets
        return laid._replace(data=_words(padded), limit=len(octets))


class TextIndex:
    """The rows of a table by their texts, no two of which are alike; null matches nothing."""

    def __init__(self, texts: pa.Array) -> None:
        laid, rows = Laid.copied(texts), np.flatnonzero(valid_in(texts))
        n_pairs = 1 << max(2 * len(rows), 8).bit_length()
        self._shift = 64 - (n_pairs.bit_length() - 1)
        self._starts = np.zeros(len(texts), np.int64)
        self._arena = np.zeros(texts.nbytes // 8 + 2 * len(texts) + 1, np.int64)
        for whole in (0, 1):
            self._whole, self._pairs = whole, np.full(2 * n_pairs, -1, np.int64)
            where = (self._pairs, self._shift, self._starts, self._arena)
            if enter_texts.compiled(laid.offsets, laid.data, laid.first, rows, whole, *where):
                break

    def find(self, texts: pa.Array, places: Ints | None = None) -> Ints:
        """The table's row of each text, or -1; `places` are those that are wanted, None for all."""
        found = self._looked_up(Laid.of(texts), places, len(texts))
        left = np.flatnonzero(found == BEYOND) if len(found) else found
        if len(left):
            few = texts.take(from_numpy(left if places is None else places[left]))
            found[left] = self._looked_up(Laid.copied(few), None, len(few))
        if texts.null_count:
            valid = valid_in(texts)
            found[~(valid if places is None else valid[places])] = -1
        return found

    def _looked_up(self, laid: Laid, places: Ints | None, n_texts: int) -> Ints:
        found = np.empty(n_texts if places is None else len(places), np.int64)
        wanted = _NOTHING if places is None else places
        table = (self._whole, self._pairs, self._shift, self._starts, self._arena)
        if len(found):
            find_texts.compiled(*laid, wanted, *table, found)
        return found


def _octets(buffer: pa.Buffer | None) -> Octets:
    """The bytes of a buffer, which begin on a whole word: a copy where they do not."""
    octets = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    return octets if buffer is None or buffer.address % 8 == 0 else octets.copy()


def _words(octets: Octets) -> Ints:
    """Bytes as whole words, filled up with zeros."""
    if len(octets) % 8:
        octets = np.concatenate([octets, np.zeros(8 - len(octets) % 8, np.uint8)])
    return octets.view(np.int64)
