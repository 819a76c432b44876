"""Hash tables from keys to slots: the look-up that every keyed row passes through.

One table serves all keys, by open addressing with linear probing. An entry is a pair (word, slot), slot -1
marks an empty one. Number keys are their own word. The word of a string is its hash, and two strings are
one key when hashes, lengths and bytes are equal; the hash alone never decides. `insert_slots` and
`remove_slots` serve both, since they never compare words.

Strings are read eight bytes at a time, where Arrow has them. The string of a slot lies in the arena, an int64
array: a word for its length in bytes, then the bytes, filled up with zeros.

A new key gets the slot on top of the stack of free ones. A loop that cannot go on (no free slot, a word out
of range, no room in the arena) returns the row it stopped at; the caller makes room and calls again from
that row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Octets = npt.NDArray[np.uint8]

# 2^64 divided by the golden ratio: multiples of it spread evenly over the upper bits (Knuth, vol. 3, 6.4).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ZERO, _ONE, _HALF = np.uint64(0), np.uint64(1), np.uint64(32)
_THREE, _SEVEN, _EIGHT, _SIXTY_THREE = np.uint64(3), np.uint64(7), np.uint64(8), np.uint64(63)

BLOCK_ROWS = 128
"""Rows that a dense table looks up without a branch, before it asks whether some of them are new."""


@loop()
def _mix(word: np.uint64) -> np.uint64:
    """Return the word with its upper half in the lower one too: a product moves bits up only."""
    return word ^ (word >> _HALF)


@loop()
def _home(word: np.int64, shift: int) -> np.uint64:
    """Return where the search for a word begins: an even place in the pairs, below 2^(65 - shift)."""
    place: np.uint64 = ((_mix(np.uint64(word)) * _SPREAD) >> np.uint64(shift)) << _ONE
    return place


@loop("Ir i i I I I i I")
def assign_dense(
    words: Ints, row: int, low: int, table: Ints, slot_words: Ints, stack: Ints, n_free: int, slots: Ints
) -> tuple[int, int]:
    """Give each row from `row` on the slot of its word; return (row stopped at, free slots left).

    A fast path for integers of a small range, which stand at their distance from its low end: one load per
    row (`python -m bench windows`, keyed by integers).

    words       int64[n]
    low         the word that stands at table[0]
    table       int64[r]  slot of word low + place, -1 where the word has none; r > 0; updated in place
    slot_words  int64[m]  word of each slot; updated in place
    stack       int64[m]  free slots, each < m, the next one at n_free - 1; SlotAllocator keeps them
    slots       int64[n]  written from `row` to where it stopped, and perhaps some rows further
    """
    reach = np.uint64(table.shape[0])
    for start in range(row, words.shape[0], BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, words.shape[0])
        # Why: views counted from 0; Numba need not allow for negative places.
        block, block_slots = words[start:stop], slots[start:stop]
        missed = np.int64(0)  # below 0 once a word has no slot or is out of range
        for j in range(block.shape[0]):
            place = np.uint64(block[j] - low)  # a word below low wraps to a great one
            inside = place < reach
            slot = table[place if inside else _ZERO]
            block_slots[j] = slot
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
def assign_words(
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
    stack       int64[m]    free slots, each < m, the next one at n_free - 1; SlotAllocator keeps them
    missed      int64[b]    scratch: the rows of a block of b - 1 that need a search
    slots       int64[n]    written from `row` to where it stopped; rows after it hold nothing of use
    """
    last = np.uint64(pairs.shape[0] - 1)
    block = missed.shape[0] - 1
    # Why: the first place is tried for a block of rows without a branch, and only rows that missed are
    # searched for. A wrongly predicted branch per displaced key would cost more than all the rest.
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
    """Insert the words of some slots that are not in the table yet.

    slots       int64[k]    each < m, and no two with one word: they come from one SlotAllocator
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
    """Remove the words of some slots, moving later entries back so that no search ends too early.

    slots       int64[k]    each < m and in the table: SlotAllocator refuses to free one twice
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
            # Invariant: a search reaches its entry without meeting a hole. So an entry moves into the hole
            # unless its own search begins after it.
            behind = (place - _home(pairs[place], shift)) & last
            if behind >= ((place - hole) & last):
                pairs[hole] = pairs[place]
                pairs[hole + _ONE] = pairs[place + _ONE]
                hole = place
            place = (place + _ONE + _ONE) & last
        pairs[hole + _ONE] = -1


@loop()
def _read(data: Octets, byte: np.uint64) -> np.uint64:
    """Return the eight bytes from `byte` on; data has as many from there on."""
    # Why: written so, LLVM makes one load of the eight (benchmark: `python -m bench runtime`, YSB, UUIDs).
    low = _one(data, byte, 0) | _one(data, byte, 1) | _one(data, byte, 2) | _one(data, byte, 3)
    high = _one(data, byte, 4) | _one(data, byte, 5) | _one(data, byte, 6) | _one(data, byte, 7)
    word: np.uint64 = low | high
    return word


@loop()
def _one(data: Octets, byte: np.uint64, place: int) -> np.uint64:
    """Return one byte of eight, where it stands in their word."""
    octet: np.uint64 = np.uint64(data[byte + np.uint64(place)]) << np.uint64(8 * place)
    return octet


@loop()
def _read_rest(data: Octets, byte: np.uint64, end: np.uint64) -> np.uint64:
    """Return the bytes from `byte` to `end`, fewer than eight, then zeros; data has eight from there on."""
    word: np.uint64 = _read(data, byte) & ((_ONE << ((end - byte) << _THREE)) - _ONE)
    return word


@loop()
def _hash_string(data: Octets, begin: np.uint64, end: np.uint64) -> np.uint64:
    """Return a hash of the bytes from `begin` to `end`; it stays inside a process.

    Why: the last word overlaps the one before it, so that none is filled up with zeros; and each word is
    multiplied by a factor of its own, so that no product waits for the one before it.
    """
    length, factor, byte = end - begin, _SPREAD, begin
    last = _read(data, end - _EIGHT) if length >= _EIGHT else _read_rest(data, begin, end)
    hashed: np.uint64 = length + _mix(last) * _SPREAD
    while byte + _EIGHT < end:
        factor *= _SPREAD
        hashed += _mix(_read(data, byte)) * factor
        byte += _EIGHT
    return hashed


@loop()
def _is_string(data: Octets, begin: np.uint64, end: np.uint64, arena: Ints, start: np.int64) -> bool:
    """Return whether the bytes from `begin` to `end` are the string at `start` of the arena."""
    place, byte = np.uint64(start), begin
    if np.uint64(arena[place]) != end - begin:
        return False
    while byte + _EIGHT <= end:
        place += _ONE
        if _read(data, byte) != np.uint64(arena[place]):
            return False
        byte += _EIGHT
    return byte == end or bool(_read_rest(data, byte, end) == np.uint64(arena[place + _ONE]))


@loop("Jr Or i Ir i I i I I I i I i I")
def assign_strings(
    offsets: Int32s,
    data: Octets,
    limit: int,
    selected: Ints,
    row: int,
    pairs: Ints,
    shift: int,
    slot_hashes: Ints,
    starts: Ints,
    arena: Ints,
    n_arena: int,
    stack: Ints,
    n_free: int,
    slots: Ints,
) -> tuple[int, int, int]:
    """Give each row from `row` on the slot of its string; return (row stopped at, free slots, arena used).

    It stops where a new string finds no free slot or no room in the arena, and at a string that ends after
    `limit`, since eight bytes are read at a time.

    offsets      int32[o]      string i of the column has the bytes offsets[i] to offsets[i + 1] of data
    data         uint8[d]
    limit                      a byte that has eight more after it
    selected     int64[n]      the string of each row; of length 0: row i has string i
    pairs        int64[2 p]    (hash, slot) entries, p = 2^(64 - shift) > m; updated in place
    slot_hashes  int64[m]      updated in place, as is starts
    starts       int64[m]      where in the arena a slot's string begins, in words
    arena        int64[a]      written from n_arena on
    stack        int64[m]      free slots, each < m, the next one at n_free - 1; SlotAllocator keeps them
    slots        int64[n]      written from `row` to where it stopped
    """
    last, is_selected = np.uint64(pairs.shape[0] - 1), selected.shape[0] > 0
    for i in range(row, slots.shape[0]):
        place = np.uint64(selected[i] if is_selected else i)
        begin, end = np.uint64(offsets[place]), np.uint64(offsets[place + _ONE])
        if end > np.uint64(limit):
            return i, n_free, n_arena
        hashed = _hash_string(data, begin, end)
        word = np.int64(hashed)
        entry = _home(word, shift)
        slot = pairs[entry + _ONE]
        while slot >= 0:
            if pairs[entry] == word and _is_string(data, begin, end, arena, starts[slot]):
                break
            entry = (entry + _ONE + _ONE) & last
            slot = pairs[entry + _ONE]
        if slot < 0:
            length = np.int64(end - begin)
            if n_free == 0 or n_arena + 1 + (length + 7) // 8 > arena.shape[0]:
                return i, n_free, n_arena
            n_free -= 1
            slot = stack[n_free]
            pairs[entry] = slot_hashes[slot] = word
            pairs[entry + _ONE] = slot
            starts[slot] = n_arena
            arena[n_arena] = length
            n_arena += 1
            while begin + _EIGHT <= end:
                arena[n_arena] = np.int64(_read(data, begin))
                n_arena += 1
                begin += _EIGHT
            if begin < end:
                arena[n_arena] = np.int64(_read_rest(data, begin, end))
                n_arena += 1
        slots[i] = slot
    return slots.shape[0], n_free, n_arena


@loop("Ir Ir Ir Ir I")
def write_strings(slots: Ints, starts: Ints, arena: Ints, offsets: Ints, data: Ints) -> None:
    """Write the strings of slots one after the other, as Arrow lays them out.

    slots    int64[k]      each with a string
    starts   int64[m]      where in the arena a slot's string begins, in words
    arena    int64[a]
    offsets  int64[k + 1]  string i goes to the bytes from offsets[i] on; the lengths added up, from 0
    data     int64[d]      zeros, then the bytes; one word more than the last byte needs
    """
    for i in range(slots.shape[0]):
        byte, place = np.uint64(offsets[i]), np.uint64(starts[slots[i]])
        word, bits = byte >> _THREE, (byte & _SEVEN) << _THREE
        for _ in range((arena[place] + 7) // 8):
            place += _ONE
            text = np.uint64(arena[place])
            data[word] |= np.int64(text << bits)
            word += _ONE
            data[word] |= np.int64((text >> _ONE) >> (_SIXTY_THREE - bits))
