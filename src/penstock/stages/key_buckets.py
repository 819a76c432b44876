"""The buckets of keys, from their columns: the hash of `expr`, the arithmetic of `timing`.

Decimals are hashed as Spark does it: by the unscaled value, as eight bytes up to 18 digits, beyond that as
the fewest bytes in two's complement, greatest first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import col, hash
from penstock.expr.arrays import to_numpy
from penstock.expr.arrow.lower import lower_arrow
from penstock.timing.bucket import NO_COLUMNS, buckets_of

LONG_DIGITS = 18  # so many always fit in an int64


class KeyBuckets:
    """Key columns of given types to buckets, equal to `pmod(xxhash64(columns...), 256)` in the JVM."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        fields = [pa.field(str(place), _hashed_as(type)) for place, type in enumerate(types)]
        self._schema = pa.schema(fields)
        names = self._schema.names
        self._hash = lower_arrow(hash(*map(col, names)), self._schema) if names else None

    def of(self, columns: Sequence[pa.Array], n_rows: int) -> npt.NDArray[np.uint8]:
        """The bucket of each of `n_rows` keys."""
        if self._hash is None:
            return np.full(n_rows, NO_COLUMNS, dtype=np.uint8)
        forms = [_hash_form(column) for column in columns]
        hashed = self._hash(pa.RecordBatch.from_arrays(forms, schema=self._schema))
        return buckets_of(to_numpy(hashed.values))


def _hashed_as(type: pa.DataType) -> pa.DataType:
    if kind.is_decimal128(type):
        return pa.int64() if type.precision <= LONG_DIGITS else pa.binary()
    return type


def _hash_form(array: pa.Array) -> pa.Array:
    if not kind.is_decimal128(array.type):
        return array
    parts = [None if text is None else _unscaled(text) for text in array.view(pa.binary(16)).to_pylist()]
    if array.type.precision <= LONG_DIGITS:
        return pa.array(parts, pa.int64())
    return pa.array([None if value is None else _fewest_bytes(value) for value in parts], pa.binary())


def _unscaled(stored: bytes) -> int:
    return int.from_bytes(stored, "little", signed=True)


def _fewest_bytes(value: int) -> bytes:
    n_bits = (value if value >= 0 else ~value).bit_length() + 1  # and one for the sign
    return value.to_bytes((n_bits + 7) // 8, "big", signed=True)
