"""From 64-bit words to slots: the look-up that every keyed row passes through.

Two tables. *Near*: words of a small range stand at their distance from its low end; one load per row. *Far*:
any words, by open addressing with linear probing; an entry is a pair (word, slot), slot -1 marks an empty
one. Far look-ups try the first place for a block of rows without a branch, note the rows that missed, and
search on only for those: a wrongly guessed branch per displaced key would cost more than all the rest.

A new word gets the slot on top of the stack of free ones. A kernel that cannot go on (no free slot, a word
out of range) returns the row it stopped at; the caller makes room and calls again from that row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile.loops import loop

Ints = npt.NDArray[np.int64]

# 2^64 divided by the golden ratio: multiples of it spread evenly over the upper bits (Knuth, vol. 3, 6.4).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ZERO, _ONE, _HALF = np.uint64(0), np.uint64(1), np.uint64(32)

BLOCK = 128
"""Rows that a near table looks up without a branch, before it asks whether some of them are new."""


@loop()
def _home(word: np.int64, shift: int) -> np.uint64:
    """Where the search for a word begins: an even place in the pairs, below 2^(65 - shift)."""
    bits = np.uint64(word)
    return (((bits ^ (bits >> _HALF)) * _SPREAD) >> np.uint64(shift)) << _ONE


@loop("Ir i i I I I i I")
def assign_dense(
    words: Ints, row: int, low: int, table: Ints, slot_words: Ints, stack: Ints, n_free: int, slots: Ints
) -> tuple[int, int]:
    """Give each row from `row` on the slot of its word; return (row stopped at, free slots left).

    words       int64[n]
    low         the word that stands at table[0]
    table       int64[r]  slot of word low + place, -1 where the word has none; r > 0; updated in place
    slot_words  int64[m]  word of each slot; updated in place
    stack       int64[m]  free slots, each < m, the next one at n_free - 1; SlotRoom keeps them
    slots       int64[n]  written from `row` to where it stopped, and perhaps some rows further
    """
    reach = np.uint64(table.shape[0])
    for start in range(row, words.shape[0], BLOCK):
        stop = min(start + BLOCK, words.shape[0])
        # Views counted from 0: Numba must not allow for negative places.
        given, found = words[start:stop], slots[start:stop]
        missed = np.int64(0)  # below 0 once a word has no slot or is out of range
        for j in range(given.shape[0]):
            place = np.uint64(given[j] - low)  # a word below low wraps to a great one
            inside = place < reach
            slot = table[place if inside else _ZERO]
            found[j] = slot
            missed |= slot | (np.int64(inside) - 1)
        if missed >= 0:
            continue
        for i in range(start, stop):
            place = np.uint64(words[i] - low)
            if place >= reach:
                return i, n_free
            slot = table[place]
            if slot < 0:
                if n_free == 0:
                    return i, n_free
                n_free -= 1
                slot = stack[n_free]
                slot_words[slot] = words[i]
                table[place] = slot
            slots[i] = slot
    return words.shape[0], n_free


@loop("Ir i I i I I i I I")
def assign_hashed(
    words: Ints,
    row: int,
    pairs: Ints,
    shift: int,
    slot_words: Ints,
    stack: Ints,
    n_free: int,
    missed: Ints,
    slots: Ints,
) -> tuple[int, int]:
    """Give each row from `row` on the slot of its word; return (row stopped at, free slots left).

    words       int64[n]
    pairs       int64[2 p]  (word, slot) entries, p = 2^(64 - shift) > m, so the search finds an empty one
    slot_words  int64[m]    word of each slot; updated in place
    stack       int64[m]    free slots, each < m, the next one at n_free - 1; SlotRoom keeps them
    missed      int64[b]    scratch: the rows of a block of b - 1 that need a search
    slots       int64[n]    written from `row` to where it stopped; rows after it hold nothing of use
    """
    last = np.uint64(pairs.shape[0] - 1)
    block = missed.shape[0] - 1
    for start in range(row, words.shape[0], block):
        n_missed = np.uint64(0)
        for i in range(start, min(start + block, words.shape[0])):
            word = words[i]
            place = _home(word, shift)
            slot = pairs[place + _ONE]
            slots[i] = slot
            missed[n_missed] = i
            n_missed += np.uint64(pairs[place] != word) | np.uint64(slot < 0)
        for j in range(n_missed):
            i = missed[j]
            place = _home(words[i], shift)
            while pairs[place + _ONE] >= 0 and pairs[place] != words[i]:
                place = (place + _ONE + _ONE) & last
            if pairs[place + _ONE] < 0:
                if n_free == 0:
                    return i, n_free
                n_free -= 1
                slot_words[stack[n_free]] = words[i]
                pairs[place] = words[i]
                pairs[place + _ONE] = stack[n_free]
            slots[i] = pairs[place + _ONE]
    return words.shape[0], n_free


@loop("Ir I I i")
def insert_slots(slots: Ints, slot_words: Ints, pairs: Ints, shift: int) -> None:
    """Enter the words of some slots that are not in the table yet.

    slots       int64[k]    each < m, and no two with one word: they come from one SlotRoom
    slot_words  int64[m]
    pairs       int64[2 p]  p = 2^(64 - shift) > m; updated in place
    """
    last = np.uint64(pairs.shape[0] - 1)
    for i in range(slots.shape[0]):
        place = _home(slot_words[slots[i]], shift)
        while pairs[place + _ONE] >= 0:
            place = (place + _ONE + _ONE) & last
        pairs[place] = slot_words[slots[i]]
        pairs[place + _ONE] = slots[i]


@loop("Ir I I i")
def remove_slots(slots: Ints, slot_words: Ints, pairs: Ints, shift: int) -> None:
    """Take the words of some slots out, moving later entries back so that no search ends too early.

    slots       int64[k]    each < m and in the table: SlotRoom refuses to free one twice
    slot_words  int64[m]
    pairs       int64[2 p]  p = 2^(64 - shift) > m; updated in place
    """
    last = np.uint64(pairs.shape[0] - 1)
    for i in range(slots.shape[0]):
        hole = _home(slot_words[slots[i]], shift)
        while pairs[hole + _ONE] != slots[i]:
            hole = (hole + _ONE + _ONE) & last
        place = (hole + _ONE + _ONE) & last
        while pairs[place + _ONE] >= 0:
            # An entry may move into the hole unless its search begins after the hole.
            behind = (place - _home(pairs[place], shift)) & last
            if behind >= ((place - hole) & last):
                pairs[hole] = pairs[place]
                pairs[hole + _ONE] = pairs[place + _ONE]
                hole = place
            place = (place + _ONE + _ONE) & last
        pairs[hole + _ONE] = -1
