"""Many texts in a few arrays: hashes, starts and an arena of bytes, looked up by `kernels/keys/strings.py`.

For large inputs: nothing in Python per text, and the GIL is free meanwhile. Freed texts leave holes, which
are closed when the arena is full and a third of it is holes. Assumes strings or binaries without nulls.
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
from penstock.expr.values import from_list, from_numpy, to_numpy, valid_in
from penstock.frozen import dataclass
from penstock.kernels.keys.slots import insert_slots, remove_slots
from penstock.kernels.keys.strings import assign_strings, write_strings
from penstock.stages.keys import columns as key_words
from penstock.stages.keys.allocator import SlotAllocator
from penstock.stages.keys.index import entries_for

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StringWords:
    """The texts of an array as the kernels read them: text i from offsets[i] to offsets[i + 1]."""

    offsets: Ints
    data: Ints

    @staticmethod
    def of(texts: pa.Array) -> StringWords:
        """A copy, since the kernels read whole words, also past the end of the last text."""
        _, offsets, data = texts.buffers()
        if len(texts) == 0 or data is None:
            return StringWords(np.zeros(len(texts) + 1, dtype=np.int64), np.zeros(2, dtype=np.int64))
        ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
        first, last = int(ends[0]), int(ends[-1])
        words: Ints = np.zeros((last - first) // 8 + 2, dtype=np.int64)
        words.view(np.uint8)[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
        return StringWords(ends.astype(np.int64) - first, words)

    def n_words(self, row: int) -> int:
        """What the text of a row takes in the arena."""
        return int(_n_words(self.offsets[row + 1 : row + 2] - self.offsets[row])[0])


class StringArena:
    """The texts of slots; the owner's room says which slots there are."""

    def __init__(self, texts: pa.Array, slots: Ints, capacity: int) -> None:
        """Begin with different texts, which have slots already."""
        given = StringWords.of(texts)
        self._hashes: Ints = np.zeros(capacity, dtype=np.int64)
        self._starts: Ints = np.zeros(capacity, dtype=np.int64)
        self._arena: Ints = np.zeros(2 * int(_n_words(np.diff(given.offsets)).sum()) + 1024, dtype=np.int64)
        self._n_arena = self._n_holes = 0
        self._reindex(slots[:0])
        # The kernel gives a new text the slot on top of a stack: here, the one it has.
        self._assign(given, 0, slots[::-1].copy(), len(slots), np.empty(len(slots), dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(each.nbytes for each in (self._hashes, self._starts, self._arena, self._pairs))

    def assign(self, texts: StringWords, row: int, room: SlotAllocator, slots: Ints) -> int:
        """Fill in the slots of the texts from `row` on; return the row it had to stop at, or all.

        It stops where no slot is free, or the arena is full.
        """
        stopped, n_free = self._assign(texts, row, room.stack, room.n_free, slots)
        room.set_free_count(n_free)
        return stopped

    def remove(self, slots: Ints) -> None:
        """Forget the texts of these slots."""
        remove_slots.compiled(slots, self._hashes, self._pairs, self._shift)
        self._n_holes += int(_n_words(self._arena[self._starts[slots]]).sum())

    def resize(self, entered: Ints, capacity: int) -> None:
        """The room has another capacity now; `entered` are the slots that have a text."""
        self._hashes = _resize(self._hashes, capacity)
        self._starts = _resize(self._starts, capacity)
        self._close_holes(entered)
        self._reindex(entered)

    def make_room(self, entered: Ints, n_words: int) -> None:
        """See that a text of `n_words` fits into the arena."""
        if 3 * self._n_holes >= self._n_arena:
            self._close_holes(entered)
        self._arena = _resize(self._arena, 2 * (self._n_arena + n_words))

    def texts_of(self, slots: Ints) -> tuple[Ints, npt.NDArray[np.uint8]]:
        """(offsets, bytes) of the texts, as Arrow lays them out."""
        offsets = np.append(0, np.cumsum(self._arena[self._starts[slots]]))
        data: Ints = np.zeros(offsets[-1] // 8 + 2, dtype=np.int64)
        write_strings.compiled(np.ascontiguousarray(slots), self._starts, self._arena, offsets, data)
        return offsets, data.view(np.uint8)[: offsets[-1]]

    def _assign(self, texts: StringWords, row: int, stack: Ints, n_free: int, slots: Ints) -> tuple[int, int]:
        stopped, n_free, self._n_arena = assign_strings.compiled(
            texts.offsets,
            texts.data,
            row,
            self._pairs,
            self._shift,
            self._hashes,
            self._starts,
            self._arena,
            self._n_arena,
            stack,
            n_free,
            slots,
        )
        return stopped, n_free

    def _close_holes(self, entered: Ints) -> None:
        sizes = _n_words(self._arena[self._starts[entered]])
        self._arena = self._arena[_expand(self._starts[entered], sizes)]
        self._n_arena, self._n_holes = len(self._arena), 0
        self._starts[entered] = np.cumsum(sizes) - sizes

    def _reindex(self, entered: Ints) -> None:
        entries = entries_for(len(self._hashes))
        self._shift = 64 - (entries - 1).bit_length()
        self._pairs: Ints = np.full(2 * entries, -1, dtype=np.int64)
        insert_slots.compiled(entered, self._hashes, self._pairs, self._shift)


def _n_words(lengths: Ints) -> Ints:
    """Words in the arena for texts of so many bytes: the length, and the bytes filled up."""
    return (lengths + 7) // 8 + 1


def _expand(starts: Ints, lengths: Ints) -> Ints:
    """The numbers from each start on, as many as its length says, all in one array."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _resize(array: Ints, length: int) -> Ints:
    return np.concatenate([array[:length], np.zeros(max(0, length - len(array)), dtype=np.int64)])


# Slots for strings, binaries and decimals.
#
# Small inputs: Arrow finds a batch's different values and a dict knows them all, so work in Python is per
# different value of a batch. The first large batch, or enough rows in small ones, moves the texts into an
# arena with a compiled table; their slots stay the same. A decimal is known by its sixteen bytes, which
# are equal exactly when the values are, as all values of a column have one scale.


class StringValues:
    """The different texts of a column, and null."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = type
        self._room = SlotAllocator()
        self._texts: StringDict | StringArena = StringDict()
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
            return self._assign(_to_strings(array))
        slots: Ints = np.empty(len(array), dtype=np.int64)
        valid = valid_in(array)
        slots[valid] = self._assign(_to_strings(array.drop_null()))
        slots[~valid] = self._null_slot()
        return slots

    def free(self, slots: Ints) -> None:
        """Forget the values of these slots, each live and named once."""
        self._room.release(slots)
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
        texts = _from_strings(self._texts.texts_of(slots[known]), self._type)
        if known.all():
            return [texts]
        places = np.cumsum(known) - 1
        return [pc.take(texts, from_numpy(places, missing=~known))]

    def _assign(self, texts: pa.Array) -> Ints:
        self._n_rows += len(texts)
        slots: Ints = np.empty(len(texts), dtype=np.int64)
        if isinstance(self._texts, StringDict):
            if not key_words.is_large(len(texts), self._n_rows):
                return self._texts.assign(texts, self._room)
            self._texts = self._texts.as_arena(texts.type, self._entered(), self._room.capacity)
        arena, given = self._texts, StringWords.of(texts)
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


class StringDict:
    """Texts in a dict."""

    def __init__(self) -> None:
        self._slots: dict[str | bytes, int] = {}
        self._values: dict[int, str | bytes] = {}
        self._text_bytes = 0

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._text_bytes + sys.getsizeof(self._slots) + sys.getsizeof(self._values)

    def assign(self, texts: pa.Array, room: SlotAllocator) -> Ints:
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

    def as_arena(self, type: pa.DataType, entered: Ints, capacity: int) -> StringArena:
        """The same texts, with the same slots, in an arena."""
        return StringArena(from_list(self.texts_of(entered), type), entered, capacity)

    def _enter(self, value: str | bytes, slot: int) -> int:
        self._slots[value], self._values[slot] = slot, value
        self._text_bytes += sys.getsizeof(value)
        return slot


def _to_strings(array: pa.Array) -> pa.Array:
    """A column without nulls as strings or binaries."""
    if kind.is_decimal128(array.type):
        return array.view(pa.binary(16)).cast(pa.binary())
    return array


def _from_strings(
    texts: list[str | bytes] | tuple[Ints, npt.NDArray[np.uint8]], type: pa.DataType
) -> pa.Array:
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
