"""Slots for strings, binaries and decimals.

Small inputs: Arrow finds a batch's different values and a dict knows them all, so work in Python is per
different value of a batch. The first large batch, or enough rows in small ones, moves the texts into an arena
with a compiled table; their slots stay the same. A decimal is known by its sixteen bytes, which are equal
exactly when the values are, as all values of a column have one scale.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import compute as pc
from penstock.expr.arrays import from_list, from_numpy, to_numpy, valid_in
from penstock.stages import key_words
from penstock.stages.key_arena import ArenaTexts, Bytes
from penstock.stages.key_room import SlotRoom

Ints = npt.NDArray[np.int64]


class TextValues:
    """The different texts of a column, and null."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = type
        self._room = SlotRoom()
        self._texts: DictTexts | ArenaTexts = DictTexts()
        self._null = -1  # its slot, which has no text
        self._n_rows = 0

    @property
    def capacity(self) -> int:
        """Slots are below it."""
        return self._room.capacity

    @property
    def n_live(self) -> int:
        """How many values are known."""
        return self._room.n_live

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._texts.nbytes + self._room.nbytes

    def assign(self, columns: Sequence[pa.Array]) -> Ints:
        """The slot of each row."""
        (array,) = columns
        if array.null_count == 0:
            return self._assign(_as_texts(array))
        slots: Ints = np.empty(len(array), dtype=np.int64)
        valid = valid_in(array)
        slots[valid] = self._assign(_as_texts(array.drop_null()))
        slots[~valid] = self._null_slot()
        return slots

    def free(self, slots: Ints) -> None:
        """Forget the values of these slots, each live and named once."""
        self._room.give_back(slots)
        if self._null >= 0 and (slots == self._null).any():
            slots = slots[slots != self._null]
            self._null = -1
        self._texts.remove(slots)
        if self._room.trim():
            self._texts.resize(self._entered(), self._room.capacity)

    def live(self) -> Ints:
        """The slots in use."""
        return self._room.live()

    def columns_of(self, slots: Ints) -> list[pa.Array]:
        """The values of live slots."""
        known = slots != self._null
        texts = _from_texts(self._texts.texts_of(slots[known]), self._type)
        if known.all():
            return [texts]
        places = np.cumsum(known) - 1
        return [pc.take(texts, from_numpy(places, missing=~known))]

    def _assign(self, texts: pa.Array) -> Ints:
        self._n_rows += len(texts)
        slots: Ints = np.empty(len(texts), dtype=np.int64)
        if isinstance(self._texts, DictTexts):
            if not key_words.is_large(len(texts), self._n_rows):
                return self._texts.assign(texts, self._room)
            self._texts = self._texts.as_arena(texts.type, self._entered(), self._room.capacity)
        arena, given = self._texts, Bytes.of(texts)
        row = arena.assign(given, 0, self._room, slots)
        while row < len(texts):
            if self._room.n_free == 0:
                self._grow()
            arena.make_room(self._entered(), given.n_words(row))
            row = arena.assign(given, row, self._room, slots)
        return slots

    def _null_slot(self) -> int:
        if self._null < 0:
            if self._room.n_free == 0:
                self._grow()
            self._null = self._room.take()
        return self._null

    def _grow(self) -> None:
        entered = self._entered()
        self._room.grow()
        self._texts.resize(entered, self._room.capacity)

    def _entered(self) -> Ints:
        live = self._room.live()
        entered: Ints = live[live != self._null]
        return entered


class DictTexts:
    """Texts in a dict."""

    def __init__(self) -> None:
        self._slots: dict[str | bytes, int] = {}
        self._values: dict[int, str | bytes] = {}
        self._text_bytes = 0

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._text_bytes + sys.getsizeof(self._slots) + sys.getsizeof(self._values)

    def assign(self, texts: pa.Array, room: SlotRoom) -> Ints:
        """The slot of each text, new ones from the room."""
        encoded = pc.dictionary_encode(texts)
        values = encoded.dictionary.to_pylist()
        found = np.fromiter(map(self._slots.get, values, repeat(-1)), dtype=np.int64, count=len(values))
        for place in np.flatnonzero(found < 0).tolist():
            if room.n_free == 0:
                room.grow()
            found[place] = self._enter(values[place], room.take())
        slots: Ints = found[to_numpy(encoded.indices)]
        return slots

    def remove(self, slots: Ints) -> None:
        """Forget the texts of these slots."""
        for slot in slots.tolist():
            value = self._values.pop(slot)
            del self._slots[value]
            self._text_bytes -= sys.getsizeof(value)

    def resize(self, entered: Ints, capacity: int) -> None:
        """The room has another capacity: a dict must be made anew to give memory back."""
        self._slots, self._values = dict(self._slots), dict(self._values)

    def texts_of(self, slots: Ints) -> list[str | bytes]:
        """The texts."""
        return [self._values[slot] for slot in slots.tolist()]

    def as_arena(self, type: pa.DataType, entered: Ints, capacity: int) -> ArenaTexts:
        """The same texts, with the same slots, in an arena."""
        return ArenaTexts(from_list(self.texts_of(entered), type), entered, capacity)

    def _enter(self, value: str | bytes, slot: int) -> int:
        self._slots[value], self._values[slot] = slot, value
        self._text_bytes += sys.getsizeof(value)
        return slot


def _as_texts(array: pa.Array) -> pa.Array:
    """A column without nulls as strings or binaries."""
    if kind.is_decimal128(array.type):
        return array.view(pa.binary(16)).cast(pa.binary())
    return array


def _from_texts(texts: list[str | bytes] | tuple[Ints, npt.NDArray[np.uint8]], type: pa.DataType) -> pa.Array:
    if kind.is_decimal128(type):
        data = b"".join(texts) if isinstance(texts, list) else texts[1]  # type: ignore[arg-type]  # all are bytes
        buffer = pa.py_buffer(data)
        return pa.Array.from_buffers(type, buffer.size // 16, [None, buffer])
    if isinstance(texts, list):
        return from_list(texts, type)
    offsets, data = texts
    return pa.Array.from_buffers(
        type, len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )
