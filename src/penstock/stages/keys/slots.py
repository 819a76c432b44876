"""Keys to slots: any key columns to dense numbers, by which all state is laid out in arrays.

A slot belongs to one key from the batch that brings it until `free`, then to whichever key needs one next.
Slots are handed out in order of first appearance, null last in its batch, whichever table holds the keys;
nothing may depend on more than that they are dense. One replica owns a KeySlots; threads do not share it.

Keys are in a dict while inputs are small, then in compiled tables (`kernels/hash_table.py`). The first large
batch, or enough rows in small ones (`policy.SIZES`), moves them; a stream never moves back, and slots stay
the same. Here is what all forms of keys share; `build_keys` in `index.py` returns one for any key columns.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import col, hash
from penstock.expr.arrow.lower import lower_arrow
from penstock.expr.values import to_numpy, valid_in
from penstock.kernels.hash_table import insert_slots, remove_slots
from penstock.stages import policy
from penstock.stages.rows.batch import Batch, ColumnView, Ints

SPARSE_SLOTS = 4096  # tables of up to this many slots are kept sparse: displaced keys cost more than cache
MIN_SLOTS = 64  # slots to begin with; capacities are powers of two
WORTH_TRIMMING = 1024
LONG_DIGITS = 18  # decimals of up to this many digits always fit in an int64
BUCKETS = 256
NO_COLUMNS = 42  # a key without columns hashes to the seed, as a key of nulls does

NO_INTS = np.empty(0, np.int64)


class SlotAllocator:
    """Slots below `capacity`, some live, the others free.

    The free slots lie on a stack, lowest on top at first, so slots stay dense while keys come and go. Kernels
    pop from the stack themselves and report how many are left.

    capacity  grows by doubling, and falls when most keys have gone
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = self._n_free = capacity
        self._stack: Ints = np.arange(capacity - 1, -1, -1, dtype=np.int64)
        self._live = np.zeros(capacity, np.bool_)
        self._n_released = 0  # since the last trim

    @property
    def n_live(self) -> int:
        """Return the number of slots in use."""
        return self.capacity - self._n_free

    def live(self) -> Ints:
        """Return the slots in use, in order."""
        return np.flatnonzero(self._live)

    def _take_slot(self) -> int:
        """Return one free slot; there must be one."""
        self._n_free -= 1
        slot = int(self._stack[self._n_free])
        self._live[slot] = True
        return slot

    def _set_free_count(self, n_free: int) -> None:
        """Note that slots were taken off the stack, and `n_free` are left."""
        assert n_free >= 0, "a slot was taken that was not there"
        self._live[self._stack[n_free : self._n_free]] = True
        self._n_free = n_free

    def _release(self, slots: Ints) -> None:
        """Free some live slots, each named once."""
        assert self._live[slots].all(), "a slot was freed that is not in use"
        self._live[slots] = False
        after = self._n_free + len(slots)
        assert np.count_nonzero(self._live) == self.capacity - after, "a slot was freed twice at once"
        self._stack[self._n_free : after] = slots[::-1]
        self._n_free = after
        self._n_released += len(slots)

    def _double(self) -> None:
        """Make twice as many slots; the new ones are handed out after the free ones of before."""
        old = self.capacity
        self.capacity = 2 * old
        fresh = np.arange(2 * old - 1, old - 1, -1, dtype=np.int64)
        used = np.empty(old - self._n_free, dtype=np.int64)  # room for slots to come back
        self._stack = np.concatenate([fresh, self._stack[: self._n_free], used])
        self._n_free += old
        self._live = np.concatenate([self._live, np.zeros(old, dtype=np.bool_)])

    def _trim(self) -> bool:
        """Give memory back when less than a quarter is in use and nothing high; whether it did.

        Looks only after half the capacity was given back since last time, so it costs little per slot.
        """
        worth = self.capacity > WORTH_TRIMMING and self.n_live < self.capacity // 4
        if not worth or self._n_released < self.capacity // 2:
            return False
        self._n_released = 0
        live, before = self.live(), self.capacity
        highest = int(live[-1]) if len(live) else 0
        self.capacity = min(before, max(MIN_SLOTS, 1 << (2 * highest).bit_length()))
        self._live = self._live[: self.capacity].copy()
        # The lowest free slots are next, so that high ones fall empty in time.
        free = np.flatnonzero(~self._live)[::-1]
        self._n_free = len(free)
        self._stack = np.zeros(self.capacity, dtype=np.int64)
        self._stack[: self._n_free] = free
        return self.capacity < before


class KeySlots(SlotAllocator, ABC):
    """A slot for each key that has open state: what keys of all forms share.

    While inputs are small, `_dict` has the slot of each key and `_keys` the key of each slot. Then `_dict` is
    None, and `_words` has the word of each slot in a hash table: the key itself, or its hash. Null is in
    neither; its slot is `_null`.
    """

    def __init__(self, types: Sequence[pa.DataType], capacity: int = MIN_SLOTS) -> None:
        super().__init__(capacity)
        self.types = tuple(types)
        self._hashes: KeyBuckets | None = None
        self._known_buckets = np.empty(0, np.int16)
        self._dict: dict[Any, int] | None = {}
        self._keys: dict[int, Any] = {}
        self._n_rows = 0
        self._null = -1
        self._restores = False  # keys of saved state come, which stay in the dict
        self._words = self._pairs = NO_INTS
        self._shift = 0

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        arrays = (self._words, self._pairs, self._stack, self._live, self._known_buckets)
        in_dict = 0 if self._dict is None else sys.getsizeof(self._dict) + sys.getsizeof(self._keys)
        return sum(array.nbytes for array in arrays) + in_dict + sum(map(sys.getsizeof, self._keys.values()))

    def assign(self, columns: Sequence[pa.Array], n_rows: int | None = None) -> Ints:
        """Do what `look_up` does, for whole columns.

        `n_rows` is needed only where there are no columns to tell it.
        """
        if not columns:
            assert n_rows is not None, "without key columns the number of rows must be said"
            columns = [pa.nulls(n_rows)]
        return self.look_up([ColumnView(column, None) for column in columns])

    def assign_plain(self, columns: Sequence[Sequence[Any]]) -> Ints | None:
        """Do what `assign` does, for plain values whose equality is that of keys: no floats, no decimals.

        None where the keys must come as columns: nulls, or so many keys that the dict is not for them.
        """
        (values,) = columns
        if self._dict is None or None in values:
            return None
        if self.n_live + len(values) > policy.SIZES.restored_keys:
            return None
        return self._assign_small(list(values))

    def restore(self, columns: Sequence[pa.Array], n_rows: int) -> Ints:
        """Do what `assign` does, for keys of saved state.

        They are no rows, so they do not make the keys leave the dict, unless there are very many.
        """
        self._hold_dict(self.n_live + n_rows <= policy.SIZES.restored_keys)
        try:
            slots = self.assign(columns, n_rows)
        finally:
            self._hold_dict(False)
        if columns:
            # Why here: of columns it takes a tenth of the time that it takes of a dict.
            self._known_buckets = self._fit_buckets()
            self._known_buckets[slots] = self._hash_keys(columns, n_rows)
        return slots

    def _hold_dict(self, holds: bool) -> None:
        """Let keys that come stay in the dict, or no longer."""
        self._restores = holds

    def assign_batch(self, batch: Batch, names: Sequence[str]) -> Ints:
        """Return the slots of a batch's rows, by the columns of these names.

        Where the key stands in a shorter column, only its values there are looked up.
        """
        if not names:
            return self.assign([], batch.num_rows)
        views = [batch.view(name) for name in names]
        values, codes = views[0].values, views[0].codes
        if len(views) > 1 or codes is None:
            return self.look_up(views)
        is_used = np.zeros(len(values), np.bool_)
        is_used[codes] = True
        slots = np.zeros(len(values), np.int64)
        slots[is_used] = self.assign([values.take(pa.array(np.flatnonzero(is_used)))])
        return slots.take(codes)

    def look_up(self, columns: Sequence[ColumnView]) -> Ints:
        """Return the slot of each row; keys not seen before get a new or a freed one."""
        (column,) = columns
        if column.values.null_count == 0:
            return self._look_up_valid(column)
        array = column.take()
        slots, valid = np.empty(len(array), np.int64), valid_in(array)
        slots[valid] = self._look_up_valid(ColumnView(array.drop_null(), None))
        if not valid.all():
            if self._null < 0:
                if self._n_free == 0:
                    self._grow()
                self._null = self._take_slot()
            slots[~valid] = self._null
        return slots

    def _look_up_valid(self, column: ColumnView) -> Ints:
        """Return the slot of each row, none of which is null; only keys of one column have this."""
        raise NotImplementedError

    def free(self, slots: Ints) -> None:
        """Forget the keys of these slots, each live and named once: they have no open state any more."""
        if not len(slots):
            return
        slots = np.ascontiguousarray(slots, dtype=np.int64)
        self._release(slots)
        self._known_buckets[slots[slots < len(self._known_buckets)]] = -1
        if self._null >= 0 and (slots == self._null).any():
            slots = slots[slots != self._null]
            self._null = -1
        if self._dict is None:
            self._remove(slots)
        else:
            for slot in slots.tolist():
                del self._dict[self._keys.pop(slot)]
        if self._trim():
            self._resize()

    @abstractmethod
    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """Return the key columns of live slots, for results; NaN as one NaN, -0.0 as 0.0."""

    def buckets_of(self, slots: Ints) -> npt.NDArray[np.uint8]:
        """Return the bucket of each slot's key; keys are hashed the first time that somebody asks."""
        self._known_buckets = known = self._fit_buckets()
        unknown = slots[known[slots] < 0]
        if len(unknown):
            known[unknown] = self._hash_keys(self.columns_of(unknown), len(unknown))
        return known[slots].astype(np.uint8)

    def _fit_buckets(self) -> npt.NDArray[np.int16]:
        """Return the buckets that are known, with a place for each slot: -1 for one that is not known."""
        n_more = self.capacity - len(self._known_buckets)
        if n_more <= 0:
            return self._known_buckets[: self.capacity]
        return np.append(self._known_buckets, np.full(n_more, -1, np.int16))

    def _hash_keys(self, columns: Sequence[pa.Array], n_rows: int) -> npt.NDArray[np.uint8]:
        if self._hashes is None:
            self._hashes = KeyBuckets(self.types)
        return self._hashes.of(columns, n_rows)

    def export(self, slots: Ints) -> pa.RecordBatch:
        """Return the key columns of live slots for a snapshot; `assign` of its columns restores the keys."""
        names = [f"key_{place}" for place in range(len(self.types))]
        return pa.RecordBatch.from_arrays(self.columns_of(slots), names=names)

    def _is_small(self, n_rows: int) -> bool:
        """Count the rows of a batch, and return whether the keys stay in the dict."""
        if self._restores:
            return self._dict is not None
        self._n_rows += n_rows
        sizes = policy.SIZES
        is_small = n_rows < sizes.hash_batch_rows and self._n_rows < sizes.hash_total_rows
        return self._dict is not None and is_small

    def _assign_small(self, keys: list[Any]) -> Ints:
        """Return the slots of keys, by the dict."""
        assert self._dict is not None, "a stream never moves back into the dict"
        slots = list(map(self._dict.get, keys))
        if None in slots:
            new = [key for key, slot in zip(keys, slots, strict=True) if slot is None]
            self._add_small(list(dict.fromkeys(new)))
            slots = list(map(self._dict.get, keys))
        return np.array(slots, np.int64)

    def _add_small(self, keys: list[Any]) -> None:
        """Put keys into the dict, none of which it has."""
        while self._n_free < len(keys):
            self._grow()
        n_free = self._n_free - len(keys)
        slots = self._stack[n_free : self._n_free][::-1].tolist()
        self._set_free_count(n_free)
        assert self._dict is not None, "a stream never moves back into the dict"
        self._dict.update(zip(keys, slots, strict=True))
        self._keys.update(zip(slots, keys, strict=True))

    def _grow(self) -> None:
        self._double()
        self._resize()

    def _resize(self) -> None:
        """Follow the capacity."""
        if self._dict is None:
            self._words = resize(self._words, self.capacity)
            self._build_table()
        else:
            # Why: a dict gives memory back only when it is made anew.
            self._dict, self._keys = dict(self._dict), dict(self._keys)

    def _build_table(self) -> None:
        """Make the table anew, for the capacity of now."""
        self._build_hash_table(self._key_slots())

    def _build_hash_table(self, slots: Ints) -> None:
        """Make the hash table anew, with the keys of some slots."""
        capacity = self.capacity
        entries = capacity * (8 if capacity <= SPARSE_SLOTS else 2)  # a power of two
        self._shift = 64 - (entries - 1).bit_length()
        self._pairs = np.full(2 * entries, -1, np.int64)
        insert_slots.compiled(slots, self._words, self._pairs, self._shift)

    def _remove(self, slots: Ints) -> None:
        """Take keys out of the table."""
        remove_slots.compiled(slots, self._words, self._pairs, self._shift)

    def _key_slots(self) -> Ints:
        """Return the slots of all keys."""
        live = self.live()
        return np.asarray(live[live != self._null], np.int64)


def resize(array: Ints, length: int) -> Ints:
    """Return the first `length` numbers, filled up with zeros."""
    return np.concatenate([array[:length], np.zeros(max(0, length - len(array)), np.int64)])


class KeyBuckets:
    """Key columns of certain types to buckets: the fixed grain by which state is saved, moved and shared out.

    There are 256 for ever, whatever the number of replicas or partitions, so a snapshot made by three
    replicas can be taken up by five. The hash is XXH64 over the key columns, as `expr/nodes/numbers.py`
    defines it. In the JVM the bucket is `pmod(xxhash64(columns...), 256)`: the remainder of a power of two,
    taken upwards, is the lowest eight bits, also of a negative hash.

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


def buckets_of(hashed: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the buckets of many hashes.

    >>> buckets_of(np.array([-1, 256, 42])).tolist()
    [255, 0, 42]
    """
    return (hashed & (BUCKETS - 1)).astype(np.uint8)


def _hash_type(type: pa.DataType) -> pa.DataType:
    if kind.is_decimal128(type):
        return pa.int64() if type.precision <= LONG_DIGITS else pa.binary()
    return type


def _hash_form(array: pa.Array) -> pa.Array:
    if not kind.is_decimal128(array.type):
        return array
    forms: list[int | bytes | None] = []
    for stored in array.view(pa.binary(16)).to_pylist():
        if stored is None:
            forms.append(None)
            continue
        value = int.from_bytes(stored, "little", signed=True)
        n_bits = (value if value >= 0 else ~value).bit_length() + 1  # and one for the sign
        is_long = array.type.precision <= LONG_DIGITS
        forms.append(value if is_long else value.to_bytes((n_bits + 7) // 8, "big", signed=True))
    return pa.array(forms, _hash_type(array.type))
