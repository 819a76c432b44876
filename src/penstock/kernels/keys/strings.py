"""From texts to slots: the far table of `kernels/keys/slots.py`, with a text's hash for its word.

Texts are read eight bytes at a time, from int64 arrays that hold their bytes one after the other. A slot's
text lies in the arena: a word for its length in bytes, then the bytes, filled up with zeros. Two texts are
one key when their hashes, lengths and bytes are equal; the hash alone never decides. `enter_far` and
`remove_far` serve here too, since they never compare words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile.loops import loop

Ints = npt.NDArray[np.int64]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ZERO, _ONE, _HALF = np.uint64(0), np.uint64(1), np.uint64(32)
_SEVEN, _EIGHT, _SIXTY_THREE = np.uint64(7), np.uint64(8), np.uint64(63)


@loop()
def _read(data: Ints, byte: np.uint64, end: np.uint64) -> np.uint64:
    """The eight bytes from `byte` on, zeros from `end` on; data has a word after the last byte."""
    word, bits = byte >> np.uint64(3), (byte & _SEVEN) << np.uint64(3)
    # Shifted in two steps: by 64 at once would be undefined for a text that begins on a whole word.
    both = (np.uint64(data[word]) >> bits) | ((np.uint64(data[word + _ONE]) << (_SIXTY_THREE - bits)) << _ONE)
    beyond = byte + _EIGHT - min(end, byte + _EIGHT)
    return both & (~_ZERO >> (beyond << np.uint64(3)))


@loop()
def _hash_bytes(data: Ints, begin: np.uint64, end: np.uint64) -> np.uint64:
    """A hash of the bytes from `begin` to `end`; stays inside a process, so it need not equal another."""
    hashed = (end - begin) * _SPREAD
    for byte in range(begin, end, _EIGHT):
        hashed = (hashed ^ _read(data, np.uint64(byte), end)) * _SPREAD
        hashed ^= hashed >> _HALF
    return hashed


@loop()
def _equals(data: Ints, begin: np.uint64, end: np.uint64, arena: Ints, start: np.int64) -> bool:
    """Whether the bytes from `begin` to `end` are the text at `start` of the arena."""
    place = np.uint64(start)
    if np.uint64(arena[place]) != end - begin:
        return False
    for byte in range(begin, end, _EIGHT):
        place += _ONE
        if _read(data, np.uint64(byte), end) != np.uint64(arena[place]):
            return False
    return True


@loop("Ir Ir i I i I I I i I i I")
def assign_strings(
    offsets: Ints,
    data: Ints,
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
    """Give each row from `row` on the slot of its text; return (row stopped at, free slots, arena used).

    It stops where a new text finds no free slot, or no room in the arena.

    offsets      int64[n + 1]  row i has the bytes offsets[i] to offsets[i + 1] of data; ascending
    data         int64[d]      bytes, eight to a word; one word more than the last byte needs
    pairs        int64[2 p]    (hash, slot) entries, p = 2^(64 - shift) > m; updated in place
    slot_hashes  int64[m]      updated in place, as is starts
    starts       int64[m]      where in the arena a slot's text begins, in words
    arena        int64[a]      written from n_arena on
    stack        int64[m]      free slots, each < m, the next one at n_free - 1; SlotRoom keeps them
    slots        int64[n]      written from `row` to where it stopped
    """
    last = np.uint64(pairs.shape[0] - 1)
    for i in range(row, slots.shape[0]):
        begin, end = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        length = offsets[i + 1] - offsets[i]
        hashed = _hash_bytes(data, begin, end)
        word = np.int64(hashed)
        place = (((hashed ^ (hashed >> _HALF)) * _SPREAD) >> np.uint64(shift)) << _ONE
        slot = pairs[place + _ONE]
        while slot >= 0:
            if pairs[place] == word and _equals(data, begin, end, arena, starts[slot]):
                break
            place = (place + _ONE + _ONE) & last
            slot = pairs[place + _ONE]
        if slot < 0:
            if n_free == 0 or n_arena + 1 + (length + 7) // 8 > arena.shape[0]:
                return i, n_free, n_arena
            n_free -= 1
            slot = stack[n_free]
            pairs[place] = slot_hashes[slot] = word
            pairs[place + _ONE] = slot
            starts[slot] = n_arena
            arena[n_arena] = length
            n_arena += 1
            for byte in range(begin, end, _EIGHT):
                arena[n_arena] = np.int64(_read(data, np.uint64(byte), end))
                n_arena += 1
        slots[i] = slot
    return slots.shape[0], n_free, n_arena


@loop("Ir Ir Ir Ir I")
def write_strings(slots: Ints, starts: Ints, arena: Ints, offsets: Ints, data: Ints) -> None:
    """Write the texts of slots one after the other, as Arrow lays them out.

    slots    int64[k]      each with a text
    starts   int64[m]      where in the arena a slot's text begins, in words
    arena    int64[a]
    offsets  int64[k + 1]  text i goes to the bytes from offsets[i] on; the lengths added up, from 0
    data     int64[d]      zeros, then the bytes; one word more than the last byte needs
    """
    for i in range(slots.shape[0]):
        byte, place = np.uint64(offsets[i]), np.uint64(starts[slots[i]])
        word, bits = byte >> np.uint64(3), (byte & _SEVEN) << np.uint64(3)
        for _ in range((arena[place] + 7) // 8):
            place += _ONE
            text = np.uint64(arena[place])
            data[word] |= np.int64(text << bits)
            word += _ONE
            data[word] |= np.int64((text >> _ONE) >> (_SIXTY_THREE - bits))


# A table of texts that never changes, and rows looked up in it straight from Arrow's buffers.
#
# Texts are read eight bytes at a time, wherever they begin: `data` holds their bytes as whole words, and
# with the last of a text the word after it is read. Offsets have 32 bits, two to a word. A text of the
# table lies in the arena: a word for its length in bytes, then the bytes, filled up with zeros.
#
# A text is found by a hash of its length and of its first and last eight bytes, where these tell the
# table's texts apart, else of all its bytes (`whole`). Length and bytes are compared in any case.

BEYOND = -2
"""In place of a row: the text ends too near to the end of the data."""

_TEXT_INDEX_ZERO, _TEXT_INDEX_ONE, _TWO, _THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_FIVE, _TEXT_INDEX_SEVEN, _TEXT_INDEX_EIGHT = np.uint64(5), np.uint64(7), np.uint64(8)
_TEXT_INDEX_HALF, _TEXT_INDEX_SIXTY_THREE, _LOW = np.uint64(32), np.uint64(63), np.uint64(0xFFFFFFFF)


@loop()
def _half(word: np.int64, place: np.uint64) -> np.uint64:
    """The offset at a place, from the word that it is in."""
    return (np.uint64(word) >> ((place & _TEXT_INDEX_ONE) << _FIVE)) & _LOW


@loop()
def _eight(low: np.int64, high: np.int64, byte: np.uint64, end: np.uint64) -> np.uint64:
    """The eight bytes from `byte` on, which two words hold between them; zeros from `end` on."""
    bits = (byte & _TEXT_INDEX_SEVEN) << _THREE
    # Shifted in two steps: by 64 at once would be undefined for bytes that are a whole word.
    both = (np.uint64(low) >> bits) | (
        (np.uint64(high) << (_TEXT_INDEX_SIXTY_THREE - bits)) << _TEXT_INDEX_ONE
    )
    beyond = byte + _TEXT_INDEX_EIGHT - min(end, byte + _TEXT_INDEX_EIGHT)
    return both & (~_TEXT_INDEX_ZERO >> (beyond << _THREE))


@loop()
def _mixed(hashed: np.uint64, word: np.uint64) -> np.uint64:
    """The hash with a word more; it stays inside a process."""
    mixed = (hashed ^ word) * _SPREAD
    return mixed ^ (mixed >> _TEXT_INDEX_HALF)


@loop("Ir Ir i Ir i I i I I")
def enter_texts(
    offsets: Ints,
    data: Ints,
    first: int,
    rows: Ints,
    whole: int,
    pairs: Ints,
    shift: int,
    starts: Ints,
    arena: Ints,
) -> bool:
    """Enter the texts of a table's rows, no two alike; false if two of them share a hash that is not whole.

    offsets  int64[o]    of the table's column; text i begins at offset first + i
    data     int64[d]    its bytes, and a word more
    rows     int64[k]    the rows to enter
    pairs    int64[2 p]  -1, then (hash, row) entries, p = 2^(64 - shift) > k
    starts   int64[n]    written: where in the arena a row's text begins, in words
    arena    int64[a]    written: for each text one word and those of its bytes
    """
    last = np.uint64(pairs.shape[0] - 1)
    n_arena = 0
    for i in range(rows.shape[0]):
        place = np.uint64(first + rows[i])
        begin = _half(offsets[place >> _TEXT_INDEX_ONE], place)
        end = _half(offsets[(place + _TEXT_INDEX_ONE) >> _TEXT_INDEX_ONE], place + _TEXT_INDEX_ONE)
        starts[rows[i]] = n_arena
        arena[n_arena] = np.int64(end - begin)
        n_arena += 1
        n_words = (end - begin + _TEXT_INDEX_SEVEN) >> _THREE
        hashed = (end - begin) * _SPREAD
        for number in range(n_words):
            byte = begin + np.uint64(number) * _TEXT_INDEX_EIGHT
            word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _TEXT_INDEX_ONE], byte, end)
            arena[n_arena] = np.int64(word)
            n_arena += 1
            if whole or number == 0:
                hashed = _mixed(hashed, word)
        if n_words and not whole:
            byte = max(begin + _TEXT_INDEX_EIGHT, end) - _TEXT_INDEX_EIGHT
            word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _TEXT_INDEX_ONE], byte, end)
            hashed = _mixed(hashed, word)
        place = ((hashed * _SPREAD) >> np.uint64(shift)) << _TEXT_INDEX_ONE
        while pairs[place + _TEXT_INDEX_ONE] >= 0:
            if pairs[place] == np.int64(hashed) and not whole:
                return False  # others may share it too, and each would be tried against all before it
            place = (place + _TWO) & last
        pairs[place] = np.int64(hashed)
        pairs[place + _TEXT_INDEX_ONE] = rows[i]
    return True


@loop("Ir Ir i i Ir i Ir i Ir Ir I")
def find_texts(
    offsets: Ints,
    data: Ints,
    first: int,
    limit: int,
    places: Ints,
    whole: int,
    pairs: Ints,
    shift: int,
    starts: Ints,
    arena: Ints,
    found: Ints,
) -> int:
    """Find the table's row of every text, -1 for none; return how many were left because they end too late.

    offsets  int64[o]    of the column that is looked up; text i begins at offset first + i
    data     int64[d]    its bytes
    limit                a text that ends after so many bytes is left: BEYOND
    places   int64[n]    which texts of the column; of length 0 for the first n
    pairs    int64[2 p]  as `enter_texts` left them, as are whole, shift, starts and arena
    found    int64[n]    written
    """
    last, most = np.uint64(pairs.shape[0] - 1), np.uint64(limit)
    picked, n_left = places.shape[0] > 0, 0
    for i in range(found.shape[0]):
        place = np.uint64(first + (places[i] if picked else i))
        begin = _half(offsets[place >> _TEXT_INDEX_ONE], place)
        end = _half(offsets[(place + _TEXT_INDEX_ONE) >> _TEXT_INDEX_ONE], place + _TEXT_INDEX_ONE)
        if end > most:
            found[i] = BEYOND
            n_left += 1
            continue
        hashed = (end - begin) * _SPREAD
        if end > begin:
            byte = begin
            word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _TEXT_INDEX_ONE], byte, end)
            hashed = _mixed(hashed, word)
            if not whole:
                byte = max(begin + _TEXT_INDEX_EIGHT, end) - _TEXT_INDEX_EIGHT
                word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _TEXT_INDEX_ONE], byte, end)
                hashed = _mixed(hashed, word)
            else:
                byte += _TEXT_INDEX_EIGHT
                while byte < end:
                    word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _TEXT_INDEX_ONE], byte, end)
                    hashed = _mixed(hashed, word)
                    byte += _TEXT_INDEX_EIGHT
        place = ((hashed * _SPREAD) >> np.uint64(shift)) << _TEXT_INDEX_ONE
        row = pairs[place + _TEXT_INDEX_ONE]
        while row >= 0:
            if pairs[place] == np.int64(hashed):
                at, byte = np.uint64(starts[row]), begin
                same = np.uint64(arena[at]) == end - begin
                while same and byte < end:
                    at += _TEXT_INDEX_ONE
                    word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _TEXT_INDEX_ONE], byte, end)
                    same = word == np.uint64(arena[at])
                    byte += _TEXT_INDEX_EIGHT
                if same:
                    break
            place = (place + _TWO) & last
            row = pairs[place + _TEXT_INDEX_ONE]
        found[i] = row
    return n_left
