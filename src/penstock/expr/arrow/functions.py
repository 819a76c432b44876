"""The hash on arrays: XXH64 written out in NumPy for four and eight bytes, the library for text.

XXH64 is defined by its specification (xxhash.com); for inputs below 32 bytes it is one round per eight or
four bytes, starting from the seed, and a final mix. Text is hashed once per distinct (seed, text).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind
import xxhash

from penstock.expr.arrow.columnar_value import from_numbers
from penstock.expr.nodes.functions import SEED, Hash
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.values import numbers_of, valid_in

Words = npt.NDArray[np.uint64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def _hash(node: Hash, out: Instruction) -> Function:
    def hash_columns(*arrays: pa.Array) -> pa.Array:
        state = np.full(len(arrays[0]), SEED, dtype=np.uint64)
        for array in arrays:
            valid = valid_in(array)
            state = np.where(valid, _hash_column(state, array), state)
        return from_numbers(state.view(np.int64), out.type, []).values

    return hash_columns


def _hash_column(seeds: Words, array: pa.Array) -> Words:
    if kind.is_string(array.type) or kind.is_binary(array.type):
        return _hash_texts(seeds, array)
    values = numbers_of(array)
    if kind.is_floating(array.type):
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            values = np.where(np.isnan(values), np.nan, values + values.dtype.type(0))  # one NaN, one zero
    if values.dtype.itemsize == 8:
        return _hash_eight_bytes(seeds, values.view(np.uint64))
    if values.dtype != np.float32:
        values = values.astype(np.int32)  # small integers and bool, with their sign
    return _hash_four_bytes(seeds, values.view(np.uint32).astype(np.uint64))


def _hash_eight_bytes(seeds: Words, values: Words) -> Words:
    with np.errstate(over="ignore"):
        state = seeds + _P5 + np.uint64(8)
        state ^= _rotate(values * _P2, 31) * _P1
        return _mix(_rotate(state, 27) * _P1 + _P4)


def _hash_four_bytes(seeds: Words, values: Words) -> Words:
    with np.errstate(over="ignore"):
        state = seeds + _P5 + np.uint64(4)
        state ^= values * _P1
        return _mix(_rotate(state, 23) * _P2 + _P3)


def _rotate(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mix(state: Words) -> Words:
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


def _hash_texts(seeds: Words, array: pa.Array) -> Words:
    encoded = array.dictionary_encode()
    texts = [text.encode() if isinstance(text, str) else text for text in encoded.dictionary.to_pylist()]
    if not texts:
        return seeds
    codes = numbers_of(encoded.indices).astype(np.int64)
    if (seeds == seeds[0]).all():  # nothing was hashed before, so sorting the seeds is needless
        return np.array([xxhash.xxh64_intdigest(text, int(seeds[0])) for text in texts], dtype=np.uint64)[
            codes
        ]
    different, seed_codes = np.unique(seeds, return_inverse=True)
    pairs, places = np.unique(seed_codes * len(texts) + codes, return_inverse=True)
    digests = [
        xxhash.xxh64_intdigest(texts[p % len(texts)], int(different[p // len(texts)])) for p in pairs.tolist()
    ]
    return np.array(digests, dtype=np.uint64)[places]


RULES: Rules = {Hash: _hash}
