"""A busy operator: it keeps a core busy for a while for every row, and lets a share of the rows pass.

The work is a hash over a buffer, during which Python's lock is free, so that threads can work side by side.
How long a byte takes is measured once per process.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

_BUFFER = bytes(1 << 20)
PRIME = 1_009


@cache
def bytes_per_us() -> float:
    """Return the number of bytes a core hashes in a microsecond: the best of several tries."""
    took = []
    for _ in range(5):
        begun = time.perf_counter_ns()
        _hash(1 << 22)
        took.append(time.perf_counter_ns() - begun)
    return (1 << 22) * 1_000 / min(took)


def _hash(n_bytes: int) -> None:
    left = n_bytes
    while left > 0:
        hashlib.blake2b(memoryview(_BUFFER)[:left])
        left -= len(_BUFFER)


@dataclass(frozen=True, slots=True)
class Busy:
    """The predicate of a filter over batches: `cost_us` for each row, and a share of the rows passes.

    Which rows pass follows from their numbers, and from `place`, so that operators in a row do not all let
    the same ones pass.
    """

    cost_us: float
    selectivity: float = 1.0
    place: int = 0

    def __call__(self, rows: pa.RecordBatch) -> Any:
        """Work, then say which rows pass."""
        _hash(int(self.cost_us * bytes_per_us() * rows.num_rows))
        return pa.array(self.passes(rows.column("id").to_numpy()))

    def passes(self, numbers: Any) -> Any:
        """Return whether rows pass, by their numbers: an array for an array."""
        # Multiples modulo a prime: another order of the rows for every place.
        return numbers * (101 + 37 * self.place) % PRIME < self.selectivity * PRIME
