"""Approximate quantiles: KLL sketches (k 200) of numbers, and the number of NaNs beside them.

NaN is greater than every number, and the library's sketch does not take it. Up to 200 values are kept as
they are; with more, the rank of an answer is off by more than about 1.3 % in one case of a hundred.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from penstock.stages.rows.batch import Ints

K = 200
_NANS = struct.Struct("<q")


def _sketches() -> Any:
    """Load the library with the first sketch: most sessions have none."""
    import datasketches

    return datasketches


class KllSketch:
    """A sketch of numbers, changed in place as values are added."""

    __slots__ = ("n_nan", "sketch")

    def __init__(self, sketch: Any = None, n_nan: int = 0) -> None:
        self.sketch = _sketches().kll_doubles_sketch(K) if sketch is None else sketch
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
        return cls(_sketches().kll_doubles_sketch.deserialize(data[_NANS.size :]), *_NANS.unpack_from(data))
