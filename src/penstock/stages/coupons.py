"""Values as the coupons of an HLL sketch: 26 bits of a hash say where, 6 bits how many zeros it begins with.

The hash is MurmurHash3 (x64, 128 bits, seed 9001), as DataSketches takes it, so that sketches made elsewhere
can be merged with ours. The library takes values one at a time; here a column is hashed at once, and of text
each different value only. One thing differs: an empty string is a value, where the library skips it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.arrow.evaluated import numbers
from penstock.stages.batch import Ints

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

SEED = 9001
CHUNK = 1 << 14
"""Rows that are hashed at a time, so that what is between stays in the cache."""
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_BLOCK = 16

assert sys.byteorder == "little", "hashes are of little-endian bytes, here taken as they are"


def coupons_of(array: pa.Array) -> Ints:
    """The coupon of each value, below 2^32; that of null means nothing.

    NaN equals NaN whatever its bits, and -0.0 equals 0.0.
    """
    type_ = array.type
    if kind.is_string(type_) or kind.is_binary(type_):
        encoded = array.dictionary_encode()
        places = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        found = _of_bytes(*_texts(encoded.dictionary))
        return found[places] if len(found) else np.zeros(len(array), np.int64)
    if kind.is_decimal(type_):
        width = type_.bit_width // 8
        data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width :]
        return _of_bytes(data, np.arange(len(array) + 1, dtype=np.int64) * width)
    return _of_words(_words(array))


def _words(array: pa.Array) -> Words:
    """Numbers as the 64 bits that are hashed."""
    values = numbers(array)
    if not kind.is_floating(array.type):
        return np.ascontiguousarray(values, np.int64).view(np.uint64)
    floats = values.astype(np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint64)


def _texts(values: pa.Array) -> tuple[Bytes, Ints]:
    """The bytes of all values one after the other, and where each begins and the last ends."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds.astype(np.int64)


def _of_words(words: Words) -> Ints:
    """The coupons of values of 8 bytes."""
    found = np.empty(len(words), np.int64)
    for start in range(0, len(words), CHUNK):
        part = words[start : start + CHUNK]
        seed = np.full(len(part), SEED, np.uint64)
        found[start : start + CHUNK] = _coupons(*_finished(seed ^ _mixed_low(part), seed, np.uint64(8)))
    return found


def _of_bytes(data: Bytes, bounds: Ints) -> Ints:
    """The coupons of values of any length: value i is data[bounds[i] : bounds[i + 1]]."""
    padded = np.concatenate([data, np.zeros(_BLOCK, np.uint8)])
    # Every 8 bytes in a row as a word, wherever they begin.
    words = np.ndarray((len(padded) - 7,), np.uint64, padded, strides=(1,))
    found = np.empty(len(bounds) - 1, np.int64)
    for start in range(0, len(found), CHUNK):
        found[start : start + CHUNK] = _of_texts(words, bounds[start : start + CHUNK + 1])
    return found


def _of_texts(words: Words, bounds: Ints) -> Ints:
    starts, lengths = bounds[:-1], np.diff(bounds)
    low, high = np.full(len(lengths), SEED, np.uint64), np.full(len(lengths), SEED, np.uint64)
    for done in range(0, int(lengths.max()) // _BLOCK * _BLOCK, _BLOCK):
        some = np.flatnonzero(lengths >= done + _BLOCK)
        at = starts[some] + done
        low[some], high[some] = _stirred(low[some], high[some], words[at], words[at + 8])
    rest = lengths % _BLOCK
    at = bounds[1:] - rest
    first, second = _cut(words[at], rest), _cut(words[at + 8], rest - 8)
    # A word of no bytes is zero, and mixes to zero.
    return _coupons(*_finished(low ^ _mixed_low(first), high ^ _mixed_high(second), lengths.view(np.uint64)))


def _cut(words: Words, lengths: Ints) -> Words:
    """The first bytes of each word, as many as said, from none to 8."""
    n_gone = 8 - np.clip(lengths, 0, 8)
    # In two steps: a shift by all 64 bits is not defined.
    kept = (words << (n_gone * 4).view(np.uint64)) << (n_gone * 4).view(np.uint64)
    return (kept >> (n_gone * 4).view(np.uint64)) >> (n_gone * 4).view(np.uint64)


def _stirred(low: Words, high: Words, first: Words, second: Words) -> tuple[Words, Words]:
    """The two halves of the hash after one whole block."""
    low = (_turned(low ^ _mixed_low(first), 27) + high) * np.uint64(5) + np.uint64(0x52DCE729)
    high = (_turned(high ^ _mixed_high(second), 31) + low) * np.uint64(5) + np.uint64(0x38495AB5)
    return low, high


def _mixed_low(words: Words) -> Words:
    return _turned(words * _C1, 31) * _C2


def _mixed_high(words: Words) -> Words:
    return _turned(words * _C2, 33) * _C1


def _finished(low: Words, high: Words, length: Any) -> tuple[Words, Words]:
    low, high = low ^ length, high ^ length
    low = low + high
    high = high + low
    low, high = _avalanched(low), _avalanched(high)
    low = low + high
    return low, high + low


def _avalanched(words: Words) -> Words:
    shift = np.uint64(33)
    words = (words ^ (words >> shift)) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> shift)) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> shift)


def _turned(words: Words, by: int) -> Words:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _coupons(low: Words, high: Words) -> Ints:
    """26 bits of the lower half, and one more than the zeros that the upper half begins with, at most 63."""
    # Without neighbours of set bits no number is rounded up to the next power of two.
    _, bits = np.frexp((high & ~(high >> np.uint64(1))).astype(np.float64))
    zeros = np.minimum(64 - bits.astype(np.int64), 62)
    return ((zeros + 1) << 26) | (low & np.uint64((1 << 26) - 1)).view(np.int64)
