"""Many texts in a few arrays: hashes, starts and an arena of bytes, looked up by `kernels/texts.py`.

For large inputs: nothing in Python per text, and the GIL is free meanwhile. Freed texts leave holes, which
are closed when the arena is full and a third of it is holes. Assumes strings or binaries without nulls.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.slots import enter_far, remove_far
from penstock.kernels.texts import assign_texts, write_texts
from penstock.stages.key_index import entries_for
from penstock.stages.key_room import SlotRoom

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bytes:
    """The texts of an array as the kernels read them: text i from offsets[i] to offsets[i + 1]."""

    offsets: Ints
    data: Ints

    @staticmethod
    def of(texts: pa.Array) -> Bytes:
        """A copy, since the kernels read whole words, also past the end of the last text."""
        _, offsets, data = texts.buffers()
        if len(texts) == 0 or data is None:
            return Bytes(np.zeros(len(texts) + 1, dtype=np.int64), np.zeros(2, dtype=np.int64))
        ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
        first, last = int(ends[0]), int(ends[-1])
        words: Ints = np.zeros((last - first) // 8 + 2, dtype=np.int64)
        words.view(np.uint8)[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
        return Bytes(ends.astype(np.int64) - first, words)

    def n_words(self, row: int) -> int:
        """What the text of a row takes in the arena."""
        return int(_n_words(self.offsets[row + 1 : row + 2] - self.offsets[row])[0])


class ArenaTexts:
    """The texts of slots; the owner's room says which slots there are."""

    def __init__(self, texts: pa.Array, slots: Ints, capacity: int) -> None:
        """Begin with different texts, which have slots already."""
        given = Bytes.of(texts)
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

    def assign(self, texts: Bytes, row: int, room: SlotRoom, slots: Ints) -> int:
        """Fill in the slots of the texts from `row` on; return the row it had to stop at, or all.

        It stops where no slot is free, or the arena is full.
        """
        stopped, n_free = self._assign(texts, row, room.stack, room.n_free, slots)
        room.popped(n_free)
        return stopped

    def remove(self, slots: Ints) -> None:
        """Forget the texts of these slots."""
        remove_far.compiled(slots, self._hashes, self._pairs, self._shift)
        self._n_holes += int(_n_words(self._arena[self._starts[slots]]).sum())

    def resize(self, entered: Ints, capacity: int) -> None:
        """The room has another capacity now; `entered` are the slots that have a text."""
        self._hashes = _resized(self._hashes, capacity)
        self._starts = _resized(self._starts, capacity)
        self._close_holes(entered)
        self._reindex(entered)

    def make_room(self, entered: Ints, n_words: int) -> None:
        """See that a text of `n_words` fits into the arena."""
        if 3 * self._n_holes >= self._n_arena:
            self._close_holes(entered)
        self._arena = _resized(self._arena, 2 * (self._n_arena + n_words))

    def texts_of(self, slots: Ints) -> tuple[Ints, npt.NDArray[np.uint8]]:
        """(offsets, bytes) of the texts, as Arrow lays them out."""
        offsets = np.append(0, np.cumsum(self._arena[self._starts[slots]]))
        data: Ints = np.zeros(offsets[-1] // 8 + 2, dtype=np.int64)
        write_texts.compiled(np.ascontiguousarray(slots), self._starts, self._arena, offsets, data)
        return offsets, data.view(np.uint8)[: offsets[-1]]

    def _assign(self, texts: Bytes, row: int, stack: Ints, n_free: int, slots: Ints) -> tuple[int, int]:
        stopped, n_free, self._n_arena = assign_texts.compiled(
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
        self._arena = self._arena[_joined(self._starts[entered], sizes)]
        self._n_arena, self._n_holes = len(self._arena), 0
        self._starts[entered] = np.cumsum(sizes) - sizes

    def _reindex(self, entered: Ints) -> None:
        entries = entries_for(len(self._hashes))
        self._shift = 64 - (entries - 1).bit_length()
        self._pairs: Ints = np.full(2 * entries, -1, dtype=np.int64)
        enter_far.compiled(entered, self._hashes, self._pairs, self._shift)


def _n_words(lengths: Ints) -> Ints:
    """Words in the arena for texts of so many bytes: the length, and the bytes filled up."""
    return (lengths + 7) // 8 + 1


def _joined(starts: Ints, lengths: Ints) -> Ints:
    """The numbers from each start on, as many as its length says, all in one array."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _resized(array: Ints, length: int) -> Ints:
    return np.concatenate([array[:length], np.zeros(max(0, length - len(array)), dtype=np.int64)])
