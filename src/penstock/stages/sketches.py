"""Approximate aggregates: sketches with the bytes and the estimates of DataSketches.

`HllSketch` (lg_k 12) counts distinct values. A value is hashed to a *coupon*: 26 bits of a hash say where,
6 bits how many zeros it begins with. Up to 384 different coupons are kept as they are, and counted exactly
unless two values share one, which happens to about one in two thousand sets of 384; more become 4,096
registers, each the greatest number of zeros seen, and the composite estimate. So a sketch is a function of
the set of its values, whatever order, batches and merges they came in.

Why arrays and not the library's objects: these take values one by one and merge registers several times
slower. The hash is MurmurHash3 (x64, 128 bits, seed 9001), as DataSketches takes it, so that sketches built
elsewhere can be merged with ours. One thing differs: an empty string is a value, where the library skips it.

`KllSketch` (k 200) answers quantiles of numbers. NaN is greater than every number, and the library's sketch
does not take it, so NaNs are counted beside it. Up to 200 values are kept as they are; with more, the rank of
an answer is off by more than about 1.3 % in one case of a hundred.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.values import numbers_of
from penstock.stages.rows.batch import Ints

LG_K = 12
MAX_COUPONS = 384
"""With more a sketch changes to registers, as in the library: three quarters of its largest table."""
_K = 1 << LG_K
_VALUE_BITS = 26
_SHORT = 8  # fewer coupons are a list, which has a shorter head
_LIST, _SET, _REGISTERS = 0, 1, 2
_HLL_8 = 2 << 2
_COMPACT, _EMPTY, _OUT_OF_ORDER = 8, 4, 16
_SERIAL, _FAMILY = 1, 7
KLL_K = 200
_NANS = struct.Struct("<q")


def _library() -> Any:
    """Load the library with the first sketch: most programs have none."""
    import datasketches

    return datasketches


class HllSketch:
    """An immutable sketch: `data` is uint32 coupons, each once and sorted, or uint8[4096] registers."""

    __slots__ = ("data",)

    def __init__(self, data: npt.NDArray[Any] | None = None) -> None:
        self.data = np.empty(0, np.uint32) if data is None else data

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return int(self.data.nbytes)

    @property
    def is_dense(self) -> bool:
        """Return whether it has changed to registers."""
        return bool(self.data.dtype == np.uint8)

    @classmethod
    def update(cls, held: Sequence[Self | None], groups: Ints, values: Ints) -> list[Self]:
        """Return sketches with more coupons: coupon i goes to sketch groups[i]; None is a new sketch."""
        sparse = [(group, s.data) for group, s in enumerate(held) if s is not None and not s.is_dense]
        owners = np.repeat([group for group, _ in sparse], [len(data) for _, data in sparse])
        owners = owners.astype(np.int64)
        known = np.concatenate([np.empty(0, np.uint32), *(data for _, data in sparse)]).astype(np.int64)
        packed = _sort_unique(np.concatenate([(groups << 32) | values, (owners << 32) | known]))
        bounds = np.searchsorted(packed, np.arange(len(held) + 1) << 32).tolist()
        coupons = packed.astype(np.uint32)  # the lower half
        pieces = (coupons[start:end] for start, end in pairwise(bounds))
        return [
            cls._build(piece, [sketch.data] if sketch is not None and sketch.is_dense else [])
            for piece, sketch in zip(pieces, held, strict=True)
        ]

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Return the sketch of all values of some sketches."""
        sparse = [part.data for part in parts if not part.is_dense]
        coupons = _sort_unique(np.concatenate(sparse)) if sparse else np.empty(0, np.uint32)
        return cls._build(coupons, [part.data for part in parts if part.is_dense])

    @classmethod
    def _build(cls, coupons: npt.NDArray[Any], registers: Sequence[npt.NDArray[Any]]) -> Self:
        """Return the sketch of sorted coupons and of other sketches' registers."""
        if not registers and len(coupons) <= MAX_COUPONS:
            return cls(coupons.copy())
        own = np.zeros(_K, np.uint8)
        # Invariant: coupons are sorted by the number of zeros, so the last for a register is the greatest.
        own[coupons & (_K - 1)] = coupons >> _VALUE_BITS
        for other in registers:
            np.maximum(own, other, out=own)
        return cls(own)

    def estimate(self) -> int:
        """Return about how many different values there are."""
        about: float = _library().hll_sketch.deserialize(self.to_bytes()).get_estimate()
        return round(about)

    def to_bytes(self) -> bytes:
        """Return the sketch as any DataSketches library reads it."""
        if self.is_dense:
            return self._registers_to_bytes()
        n = len(self.data)
        if n < _SHORT:
            flags = _COMPACT | (0 if n else _EMPTY)
            return bytes([2, _SERIAL, _FAMILY, LG_K, 3, flags, n, _LIST | _HLL_8]) + self.data.tobytes()
        lg_table = max(5, ((4 * n - 1) // 3).bit_length())
        head = bytes([3, _SERIAL, _FAMILY, LG_K, lg_table, _COMPACT, 0, _SET | _HLL_8])
        return head + struct.pack("<I", n) + self.data.tobytes()

    def _registers_to_bytes(self) -> bytes:
        flags = _COMPACT | _OUT_OF_ORDER  # which says: take the composite estimate
        head = bytes([10, _SERIAL, _FAMILY, LG_K, 0, flags, 0, _REGISTERS | _HLL_8])
        counts = np.bincount(self.data, minlength=64)
        powers = np.ldexp(counts.astype(np.float64), -np.arange(64))
        sums = float(powers[:32].sum()), float(powers[32:].sum())  # exact: sums of powers of two
        return head + struct.pack("<dddII", 0.0, *sums, int(counts[0]), 0) + self.data.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a sketch that was saved, or that any DataSketches library built with lg_k 12."""
        datasketches = _library()
        union = datasketches.hll_union(LG_K)
        union.update(datasketches.hll_sketch.deserialize(data))
        data = union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact()
        assert data[3] == LG_K, f"a sketch with lg_k {data[3]} cannot be merged with one of {LG_K}"
        start = {_LIST: 8, _SET: 12, _REGISTERS: 40}[data[7] & 3]
        if start == 40:
            return cls(np.frombuffer(data, np.uint8, offset=start).copy())
        return cls(np.sort(np.frombuffer(data, np.uint32, offset=start)))


class KllSketch:
    """A sketch of numbers, changed in place as values are added."""

    __slots__ = ("n_nan", "sketch")

    def __init__(self, sketch: Any = None, n_nan: int = 0) -> None:
        self.sketch = _library().kll_doubles_sketch(KLL_K) if sketch is None else sketch
        self.n_nan = n_nan

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return 8 * int(self.sketch.num_retained) + 8

    @classmethod
    def update(cls, held: Sequence[Self | None], groups: Ints, values: npt.NDArray[Any]) -> list[Self]:
        """Return sketches with more values: value i goes to sketch groups[i], sorted; None is a new one."""
        sketches = [cls() if sketch is None else sketch for sketch in held]
        heads = np.flatnonzero(np.append(True, groups[1:] != groups[:-1])[: len(groups)])
        bounds = [*heads.tolist(), len(groups)]
        floats = np.asarray(values, np.float64) + 0.0  # -0.0 becomes 0.0
        for group, start, end in zip(groups[heads].tolist(), bounds, bounds[1:], strict=False):
            sketches[group]._add(floats[start:end])
        return sketches

    def _add(self, values: npt.NDArray[np.float64]) -> None:
        missing = np.isnan(values)
        n_nan = int(np.count_nonzero(missing))
        self.n_nan += n_nan
        self.sketch.update(values[~missing] if n_nan else values)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Return a new sketch of all values of some sketches."""
        whole = cls(n_nan=sum(part.n_nan for part in parts))
        for part in parts:
            whole.sketch.merge(part.sketch)
        return whole

    def quantile(self, q: float) -> float | None:
        """Return the least value that about the share q of the values do not exceed; None of no values."""
        n = int(self.sketch.n)
        if n + self.n_nan == 0:
            return None
        # The share as it was typed: Fraction(0.1) itself is a little more than a tenth.
        rank = max(1, math.ceil(Fraction(repr(float(q))) * (n + self.n_nan)))
        if rank > n:
            return math.nan
        if rank in (1, n):
            return float(self.sketch.get_min_value() if rank == 1 else self.sketch.get_max_value())
        # Between two ranks, so that rounding cannot reach the next one.
        return float(self.sketch.get_quantile((rank - 0.5) / n, True))

    def to_bytes(self) -> bytes:
        """Return the number of NaNs, and the sketch as any DataSketches library reads it."""
        return _NANS.pack(self.n_nan) + bytes(self.sketch.serialize())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a sketch that was saved."""
        return cls(_library().kll_doubles_sketch.deserialize(data[_NANS.size :]), *_NANS.unpack_from(data))


def _sort_unique(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers sorted, each once; for few numbers faster than np.unique."""
    ordered = np.sort(numbers)
    new = np.append(True, ordered[1:] != ordered[:-1])
    return np.asarray(ordered[new[: len(ordered)]])


Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

SEED = 9001
CHUNK = 1 << 14
"""Rows that are hashed at a time, so that intermediate arrays stay in the cache."""
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_BLOCK = 16

assert sys.byteorder == "little", "hashes are of little-endian bytes, here taken as they are"


def hash_coupons(array: pa.Array) -> Ints:
    """Return the coupon of each value, below 2^32; that of null means nothing.

    NaN equals NaN whatever its bits, and -0.0 equals 0.0.
    """
    type_ = array.type
    if kind.is_string(type_) or kind.is_binary(type_):
        encoded = array.dictionary_encode()
        places = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        coupons = _hash_bytes(*_string_buffers(encoded.dictionary))
        return coupons[places] if len(coupons) else np.zeros(len(array), np.int64)
    if kind.is_decimal(type_):
        width = type_.bit_width // 8
        data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width :]
        return _hash_bytes(data, np.arange(len(array) + 1, dtype=np.int64) * width)
    return _hash_words(_to_words(array))


def _to_words(array: pa.Array) -> Words:
    """Return numbers as the 64 bits that are hashed."""
    values = numbers_of(array)
    if not kind.is_floating(array.type):
        return np.ascontiguousarray(values, np.int64).view(np.uint64)
    floats = values.astype(np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint64)


def _string_buffers(values: pa.Array) -> tuple[Bytes, Ints]:
    """Return the bytes of all values one after the other, and where each begins and the last ends."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds.astype(np.int64)


def _hash_words(words: Words) -> Ints:
    """Return the coupons of values of 8 bytes."""
    coupons = np.empty(len(words), np.int64)
    for start in range(0, len(words), CHUNK):
        part = words[start : start + CHUNK]
        seed = np.full(len(part), SEED, np.uint64)
        coupons[start : start + CHUNK] = _to_coupons(*_finalize(seed ^ _mix_low(part), seed, np.uint64(8)))
    return coupons


def _hash_bytes(data: Bytes, bounds: Ints) -> Ints:
    """Return the coupons of values of any length: value i is data[bounds[i] : bounds[i + 1]]."""
    padded = np.concatenate([data, np.zeros(_BLOCK, np.uint8)])
    # Every 8 bytes in a row as a word, wherever they begin.
    words = np.ndarray((len(padded) - 7,), np.uint64, padded, strides=(1,))
    coupons = np.empty(len(bounds) - 1, np.int64)
    for start in range(0, len(coupons), CHUNK):
        coupons[start : start + CHUNK] = _hash_strings(words, bounds[start : start + CHUNK + 1])
    return coupons


def _hash_strings(words: Words, bounds: Ints) -> Ints:
    starts, lengths = bounds[:-1], np.diff(bounds)
    low, high = np.full(len(lengths), SEED, np.uint64), np.full(len(lengths), SEED, np.uint64)
    for done in range(0, int(lengths.max()) // _BLOCK * _BLOCK, _BLOCK):
        long = np.flatnonzero(lengths >= done + _BLOCK)
        at = starts[long] + done
        low[long], high[long] = _mix_block(low[long], high[long], words[at], words[at + 8])
    rest = lengths % _BLOCK
    at = bounds[1:] - rest
    first, second = _first_bytes(words[at], rest), _first_bytes(words[at + 8], rest - 8)
    # A word of no bytes is zero, and mixes to zero.
    return _to_coupons(*_finalize(low ^ _mix_low(first), high ^ _mix_high(second), lengths.view(np.uint64)))


def _first_bytes(words: Words, lengths: Ints) -> Words:
    """Return the first bytes of each word, from none to 8 of them."""
    n_gone = 8 - np.clip(lengths, 0, 8)
    # In two steps: a shift by all 64 bits is not defined.
    shifted = (words << (n_gone * 4).view(np.uint64)) << (n_gone * 4).view(np.uint64)
    return (shifted >> (n_gone * 4).view(np.uint64)) >> (n_gone * 4).view(np.uint64)


def _mix_block(low: Words, high: Words, first: Words, second: Words) -> tuple[Words, Words]:
    """Return the two halves of the hash after one whole block."""
    low = (_rotate_left(low ^ _mix_low(first), 27) + high) * np.uint64(5) + np.uint64(0x52DCE729)
    high = (_rotate_left(high ^ _mix_high(second), 31) + low) * np.uint64(5) + np.uint64(0x38495AB5)
    return low, high


def _mix_low(words: Words) -> Words:
    return _rotate_left(words * _C1, 31) * _C2


def _mix_high(words: Words) -> Words:
    return _rotate_left(words * _C2, 33) * _C1


def _finalize(low: Words, high: Words, length: Any) -> tuple[Words, Words]:
    low, high = low ^ length, high ^ length
    low = low + high
    high = high + low
    low, high = _avalanche(low), _avalanche(high)
    low = low + high
    return low, high + low


def _avalanche(words: Words) -> Words:
    shift = np.uint64(33)
    words = (words ^ (words >> shift)) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> shift)) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> shift)


def _rotate_left(words: Words, by: int) -> Words:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _to_coupons(low: Words, high: Words) -> Ints:
    """Join 26 bits of the lower half and one more than the leading zeros of the upper half, at most 63."""
    # Without neighbours of set bits no number is rounded up to the next power of two.
    _, bits = np.frexp((high & ~(high >> np.uint64(1))).astype(np.float64))
    zeros = np.minimum(64 - bits.astype(np.int64), 62)
    return ((zeros + 1) << 26) | (low & np.uint64((1 << 26) - 1)).view(np.int64)
