"""Keys to slots: any key columns to dense numbers, by which all state is laid out in arrays.

A slot belongs to one key from the batch that brings it until `free`, then to whichever key needs one next.
Slots are handed out in order of first appearance, null last in its batch, whichever table holds the keys;
nothing may depend on more than that they are dense. One replica owns a KeySlots; threads do not share it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import col, hash
from penstock.expr.arrow.lower import lower_arrow
from penstock.expr.values import to_numpy
from penstock.stages.keys.values import build_values
from penstock.stages.rows.batch import Batch, ColumnView
from penstock.timing.bucket import NO_COLUMNS, buckets_of

Ints = npt.NDArray[np.int64]


class KeySlots:
    """A slot for each key that has open state; no columns means one key for all rows.

    >>> keys = KeySlots([pa.string()])
    >>> keys.assign([pa.array(["a", None, "a", "b"])]).tolist()
    [0, 2, 0, 1]
    >>> keys.free(np.array([0]))
    >>> keys.assign([pa.array(["c"])]).tolist()
    [0]
    >>> keys.columns_of(np.array([2, 0]))[0].to_pylist()
    [None, 'c']
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._hashes: KeyBuckets | None = None
        self._names = [f"key_{place}" for place in range(len(types))]
        self._values = build_values(types)

    @property
    def n_live(self) -> int:
        """Return the number of keys have a slot."""
        return self._values.allocator.n_live

    @property
    def capacity(self) -> int:
        """Slots are below it; it grows by doubling, and falls when most keys have gone."""
        return self._values.allocator.capacity

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._values.nbytes

    def assign(self, columns: Sequence[pa.Array], n_rows: int | None = None) -> Ints:
        """Return the slot of each row; keys not seen before get a new or a freed one.

        `n_rows` is needed only where there are no columns to tell it.
        """
        if not columns:
            assert n_rows is not None, "without key columns the number of rows must be said"
            columns = [pa.nulls(n_rows)]
        return self._values.assign([ColumnView(column, None) for column in columns])

    def assign_batch(self, batch: Batch, names: Sequence[str]) -> Ints:
        """Return the slots of a batch's rows, by the columns of these names.

        Where the key stands in a shorter column, only its values there are looked up.
        """
        if not names:
            return self.assign([], batch.num_rows)
        column = batch.dictionary_column(names[0]) if len(names) == 1 else None
        if column is None:
            return self._values.assign([batch.column_view(name) for name in names])
        is_used = np.zeros(len(column.values), np.bool_)
        is_used[column.codes] = True
        slots = np.zeros(len(column.values), np.int64)
        slots[is_used] = self.assign([column.values.take(pa.array(np.flatnonzero(is_used)))])
        return slots.take(column.codes)

    def free(self, slots: Ints) -> None:
        """Forget the keys of these slots, each live and named once: they have no open state any more."""
        if len(slots):
            self._values.free(np.ascontiguousarray(slots, dtype=np.int64))

    def live(self) -> Ints:
        """Return the slots in use, in order."""
        return self._values.allocator.live()

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Return the key columns of live slots, for results; NaN as one NaN, -0.0 as 0.0."""
        return self._values.columns_of(slots)

    def buckets_of(self, slots: Ints) -> npt.NDArray[np.uint8]:
        """Return the bucket of each slot's key (`timing/bucket.py`)."""
        if self._hashes is None:
            self._hashes = KeyBuckets(self._types)
        return self._hashes.of(self.columns_of(slots), len(slots))

    def export(self, slots: Ints) -> pa.RecordBatch:
        """Return the key columns of live slots for a snapshot; `assign` of its columns restores the keys."""
        return pa.RecordBatch.from_arrays(self.columns_of(slots), names=self._names)


LONG_DIGITS = 18  # decimals of up to this many digits always fit in an int64


class KeyBuckets:
    """Key columns of certain types to buckets, equal to `pmod(xxhash64(columns...), 256)` in the JVM.

    Decimals are hashed as Spark does it: by the unscaled value, as eight bytes up to 18 digits, beyond that
    as the fewest bytes in two's complement, greatest first.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        fields = [pa.field(str(place), _hash_type(type)) for place, type in enumerate(types)]
        self._schema = pa.schema(fields)
        names = self._schema.names
        self._hash = lower_arrow(hash(*map(col, names)), self._schema) if names else None

    def of(self, columns: Sequence[pa.Array], n_rows: int) -> npt.NDArray[np.uint8]:
        """Return the bucket of each of `n_rows` keys."""
        if self._hash is None:
            return np.full(n_rows, NO_COLUMNS, dtype=np.uint8)
        forms = [_hash_form(column) for column in columns]
        hashed = self._hash(pa.RecordBatch.from_arrays(forms, schema=self._schema))
        return buckets_of(to_numpy(hashed.values))


def _hash_type(type: pa.DataType) -> pa.DataType:
    if kind.is_decimal128(type):
        return pa.int64() if type.precision <= LONG_DIGITS else pa.binary()
    return type


def _hash_form(array: pa.Array) -> pa.Array:
    if not kind.is_decimal128(array.type):
        return array
    parts = [
        None if text is None else _decode_decimal(text) for text in array.view(pa.binary(16)).to_pylist()
    ]
    if array.type.precision <= LONG_DIGITS:
        return pa.array(parts, pa.int64())
    return pa.array([None if value is None else _fewest_bytes(value) for value in parts], pa.binary())


def _decode_decimal(stored: bytes) -> int:
    return int.from_bytes(stored, "little", signed=True)


def _fewest_bytes(value: int) -> bytes:
    n_bits = (value if value >= 0 else ~value).bit_length() + 1  # and one for the sign
    return value.to_bytes((n_bits + 7) // 8, "big", signed=True)
