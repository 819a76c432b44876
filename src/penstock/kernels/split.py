"""Splits strings at a separator of one byte: the words of all strings, one behind the other.

A fast path of `flat_map(word=col("line").str.split(" "))`: Arrow's own function builds a string for each
word, which takes three times as long (`python -m bench peers`, WordCount).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Octets = npt.NDArray[np.uint8]

_ZERO, _ONE = np.uint64(0), np.uint64(1)


@loop("Jr Or i J J O")
def split_strings(
    offsets: Int32s, data: Octets, separator: int, firsts: Int32s, starts: Int32s, octets: Octets
) -> None:
    """Write the words of strings; a string with k separators has k + 1, some of which may be empty.

    No branch depends on the bytes: what is written too early is written again.

    offsets    int32[n + 1]  string i has the bytes offsets[i] to offsets[i + 1] of data
    data       uint8[d]
    separator                below 128, so that it is never a part of another character
    firsts     int32[n + 1]  the number of the first word of each string, and the number w of all words
    starts     int32[w + 1]  where each word begins among the octets, and where the last ends
    octets     uint8[b]      the bytes of the words; b is at least that of the strings
    """
    n_words, n_octets, mark = _ZERO, _ZERO, np.uint8(separator)
    for i in range(firsts.shape[0] - 1):
        firsts[i] = n_words
        starts[n_words] = n_octets
        n_words += _ONE
        for place in range(np.uint64(offsets[i]), np.uint64(offsets[i + 1])):
            octet = data[place]
            is_mark = np.uint64(octet == mark)
            octets[n_octets] = octet
            starts[n_words] = n_octets
            n_words += is_mark
            n_octets += _ONE - is_mark
    firsts[firsts.shape[0] - 1] = n_words
    starts[n_words] = n_octets


@loop("Jr I I")
def spread_lists(firsts: Int32s, parents: Ints, index: Ints) -> None:
    """Write of each element which list it is of, and its index there.

    firsts   int32[n + 1]  the number of the first element of each list, and the number w of all
    parents  int64[w]      written, as is index
    """
    for i in range(firsts.shape[0] - 1):
        first = np.uint64(firsts[i])
        for element in range(first, np.uint64(firsts[i + 1])):
            parents[element] = i
            index[element] = element - first
