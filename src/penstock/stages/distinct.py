"""How many different values: an HLL sketch (lg_k 12) as arrays, with the bytes and estimates of DataSketches.

Up to 384 different coupons (`coupons.py`) are kept as they are, and counted exactly unless two values share
one, which happens to about one in two thousand sets of 384; more become 4,096 registers, each the greatest
number of zeros seen, and the composite estimate. So a sketch is a function of the set of its values, whatever
order, cuts and merges they came in. Arrays and not the library's objects, because these take values one by
one and merge registers several times slower; sketches of few values the library merges faster.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from penstock.stages.batch import Ints

LG_K = 12
MOST_COUPONS = 384
"""With more the sketch goes over to registers, as in the library: three quarters of its largest table."""
_K = 1 << LG_K
_VALUE_BITS = 26
_SHORT = 8  # fewer coupons are a list, which has a shorter head
_LIST, _SET, _REGISTERS = 0, 1, 2
_HLL_8 = 2 << 2
_COMPACT, _EMPTY, _OUT_OF_ORDER = 8, 4, 16
_SERIAL, _FAMILY = 1, 7


class Distinct:
    """Never changes. `data` is uint32 coupons, each once and sorted, or uint8[4096] registers."""

    __slots__ = ("data",)

    def __init__(self, data: npt.NDArray[Any]) -> None:
        self.data = data

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return int(self.data.nbytes)

    @property
    def full(self) -> bool:
        """Whether it has gone over to registers."""
        return bool(self.data.dtype == np.uint8)

    @classmethod
    def added(cls, held: Sequence[Self | None], groups: Ints, values: Ints) -> list[Self]:
        """Sketches with more coupons: coupon i goes to sketch groups[i]; None is a new sketch."""
        few = [(group, each.data) for group, each in enumerate(held) if each is not None and not each.full]
        owners = np.repeat([group for group, _ in few], [len(data) for _, data in few]).astype(np.int64)
        known = np.concatenate([np.empty(0, np.uint32), *(data for _, data in few)]).astype(np.int64)
        packed = _each_once(np.concatenate([(groups << 32) | values, (owners << 32) | known]))
        bounds = np.searchsorted(packed, np.arange(len(held) + 1) << 32).tolist()
        coupons = packed.astype(np.uint32)  # the lower half
        pieces = (coupons[start:end] for start, end in pairwise(bounds))
        return [
            cls._of(piece, [each.data] if each is not None and each.full else [])
            for piece, each in zip(pieces, held, strict=True)
        ]

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """The sketch of all values of some sketches."""
        few = [part.data for part in parts if not part.full]
        coupons = _each_once(np.concatenate(few)) if few else np.empty(0, np.uint32)
        return cls._of(coupons, [part.data for part in parts if part.full])

    @classmethod
    def _of(cls, coupons: npt.NDArray[Any], parts: Sequence[npt.NDArray[Any]]) -> Self:
        if not parts and len(coupons) <= MOST_COUPONS:
            return cls(coupons.copy())
        own = np.zeros(_K, np.uint8)
        # Coupons come with rising values, and of several for one register the last is kept.
        own[coupons & (_K - 1)] = coupons >> _VALUE_BITS
        for part in parts:
            np.maximum(own, part, out=own)
        return cls(own)

    def estimate(self) -> int:
        """About how many different values."""
        import datasketches

        about: float = datasketches.hll_sketch.deserialize(self.to_bytes()).get_estimate()
        return round(about)

    def to_bytes(self) -> bytes:
        """The sketch as any DataSketches library reads it."""
        if self.full:
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
        """A sketch that was saved, or that any DataSketches library made with lg_k 12."""
        import datasketches

        union = datasketches.hll_union(LG_K)
        union.update(datasketches.hll_sketch.deserialize(data))
        told = union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact()
        assert told[3] == LG_K, f"a sketch with lg_k {told[3]} cannot be merged with one of {LG_K}"
        start = {_LIST: 8, _SET: 12, _REGISTERS: 40}[told[7] & 3]
        if start == 40:
            return cls(np.frombuffer(told, np.uint8, offset=start).copy())
        return cls(np.sort(np.frombuffer(told, np.uint32, offset=start)))


def _each_once(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sorted, each once; np.unique looks at its input for longer than that takes on few numbers."""
    ordered = np.sort(numbers)
    new = np.append(True, ordered[1:] != ordered[:-1])
    return np.asarray(ordered[new[: len(ordered)]])
