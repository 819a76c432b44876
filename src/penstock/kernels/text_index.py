"""A table of texts that never changes, and rows looked up in it straight from Arrow's buffers.

Texts are read eight bytes at a time, wherever they begin: `data` holds their bytes as whole words, and with
the last of a text the word after it is read. Offsets have 32 bits, two to a word. A text of the table lies in
the arena: a word for its length in bytes, then the bytes, filled up with zeros.

A text is found by a hash of its length and of its first and last eight bytes, where these tell the table's
texts apart, else of all its bytes (`whole`). Length and bytes are compared in any case.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]

BEYOND = -2
"""In place of a row: the text ends too near to the end of the data."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ZERO, _ONE, _TWO, _THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_FIVE, _SEVEN, _EIGHT = np.uint64(5), np.uint64(7), np.uint64(8)
_HALF, _SIXTY_THREE, _LOW = np.uint64(32), np.uint64(63), np.uint64(0xFFFFFFFF)


@loop()
def _half(word: np.int64, place: np.uint64) -> np.uint64:
    """The offset at a place, from the word that it is in."""
    return (np.uint64(word) >> ((place & _ONE) << _FIVE)) & _LOW


@loop()
def _eight(low: np.int64, high: np.int64, byte: np.uint64, end: np.uint64) -> np.uint64:
    """The eight bytes from `byte` on, which two words hold between them; zeros from `end` on."""
    bits = (byte & _SEVEN) << _THREE
    # Shifted in two steps: by 64 at once would be undefined for bytes that are a whole word.
    both = (np.uint64(low) >> bits) | ((np.uint64(high) << (_SIXTY_THREE - bits)) << _ONE)
    beyond = byte + _EIGHT - min(end, byte + _EIGHT)
    return both & (~_ZERO >> (beyond << _THREE))


@loop()
def _mixed(hashed: np.uint64, word: np.uint64) -> np.uint64:
    """The hash with a word more; it stays inside a process."""
    mixed = (hashed ^ word) * _SPREAD
    return mixed ^ (mixed >> _HALF)


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
        begin = _half(offsets[place >> _ONE], place)
        end = _half(offsets[(place + _ONE) >> _ONE], place + _ONE)
        starts[rows[i]] = n_arena
        arena[n_arena] = np.int64(end - begin)
        n_arena += 1
        n_words = (end - begin + _SEVEN) >> _THREE
        hashed = (end - begin) * _SPREAD
        for number in range(n_words):
            byte = begin + np.uint64(number) * _EIGHT
            word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _ONE], byte, end)
            arena[n_arena] = np.int64(word)
            n_arena += 1
            if whole or number == 0:
                hashed = _mixed(hashed, word)
        if n_words and not whole:
            byte = max(begin + _EIGHT, end) - _EIGHT
            word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _ONE], byte, end)
            hashed = _mixed(hashed, word)
        place = ((hashed * _SPREAD) >> np.uint64(shift)) << _ONE
        while pairs[place + _ONE] >= 0:
            if pairs[place] == np.int64(hashed) and not whole:
                return False  # others may share it too, and each would be tried against all before it
            place = (place + _TWO) & last
        pairs[place] = np.int64(hashed)
        pairs[place + _ONE] = rows[i]
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
        begin = _half(offsets[place >> _ONE], place)
        end = _half(offsets[(place + _ONE) >> _ONE], place + _ONE)
        if end > most:
            found[i] = BEYOND
            n_left += 1
            continue
        hashed = (end - begin) * _SPREAD
        if end > begin:
            byte = begin
            word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _ONE], byte, end)
            hashed = _mixed(hashed, word)
            if not whole:
                byte = max(begin + _EIGHT, end) - _EIGHT
                word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _ONE], byte, end)
                hashed = _mixed(hashed, word)
            else:
                byte += _EIGHT
                while byte < end:
                    word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _ONE], byte, end)
                    hashed = _mixed(hashed, word)
                    byte += _EIGHT
        place = ((hashed * _SPREAD) >> np.uint64(shift)) << _ONE
        row = pairs[place + _ONE]
        while row >= 0:
            if pairs[place] == np.int64(hashed):
                at, byte = np.uint64(starts[row]), begin
                same = np.uint64(arena[at]) == end - begin
                while same and byte < end:
                    at += _ONE
                    word = _eight(data[byte >> _THREE], data[(byte >> _THREE) + _ONE], byte, end)
                    same = word == np.uint64(arena[at])
                    byte += _EIGHT
                if same:
                    break
            place = (place + _TWO) & last
            row = pairs[place + _ONE]
        found[i] = row
    return n_left
