"""The rows of a table by a column of texts, looked up where a batch's texts lie.

No text of a batch is copied: the compiled loop reads those that were picked from Arrow's own buffers. Only
those at the very end of a buffer are, because whole words are read. Assumes strings or binaries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expr.arrays import from_numpy, valid_in
from penstock.kernels.text_index import BEYOND, enter_texts, find_texts

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

_NOTHING = np.empty(0, np.int64)


class Laid(NamedTuple):
    """A column's texts as the loops read them, and the byte up to which they can be read."""

    offsets: Ints
    data: Ints
    first: int
    limit: int

    @classmethod
    def of(cls, texts: pa.Array) -> Laid:
        """The buffers as they are; the offsets are copied where the last is alone in its word."""
        _, offsets, data = texts.buffers()
        even = texts.offset // 2 * 2
        n_words = (texts.offset - even + len(texts) + 2) // 2
        ends = _octets(offsets)[4 * even : 4 * even + 8 * n_words]
        octets = _octets(data)
        words = octets[: len(octets) // 8 * 8].view(np.int64)
        return cls(_words(ends), words, texts.offset - even, 8 * max(len(words) - 1, 0))

    @classmethod
    def copied(cls, texts: pa.Array) -> Laid:
        """A copy with room at its end, so that all can be read."""
        laid = cls.of(texts)
        octets = _octets(texts.buffers()[2])
        padded = np.zeros(len(octets) + 16, np.uint8)
        padded[: len(octets)] = octets
        return laid._replace(data=_words(padded), limit=len(octets))


class TextIndex:
    """The rows of a table by their texts, no two of which are alike; null matches nothing."""

    def __init__(self, texts: pa.Array) -> None:
        laid, rows = Laid.copied(texts), np.flatnonzero(valid_in(texts))
        n_pairs = 1 << max(2 * len(rows), 8).bit_length()
        self._shift = 64 - (n_pairs.bit_length() - 1)
        self._starts = np.zeros(len(texts), np.int64)
        self._arena = np.zeros(texts.nbytes // 8 + 2 * len(texts) + 1, np.int64)
        for whole in (0, 1):
            self._whole, self._pairs = whole, np.full(2 * n_pairs, -1, np.int64)
            where = (self._pairs, self._shift, self._starts, self._arena)
            if enter_texts.compiled(laid.offsets, laid.data, laid.first, rows, whole, *where):
                break

    def find(self, texts: pa.Array, places: Ints | None = None) -> Ints:
        """The table's row of each text, or -1; `places` are those that are wanted, None for all."""
        found = self._looked_up(Laid.of(texts), places, len(texts))
        left = np.flatnonzero(found == BEYOND) if len(found) else found
        if len(left):
            few = texts.take(from_numpy(left if places is None else places[left]))
            found[left] = self._looked_up(Laid.copied(few), None, len(few))
        if texts.null_count:
            valid = valid_in(texts)
            found[~(valid if places is None else valid[places])] = -1
        return found

    def _looked_up(self, laid: Laid, places: Ints | None, n_texts: int) -> Ints:
        found = np.empty(n_texts if places is None else len(places), np.int64)
        wanted = _NOTHING if places is None else places
        table = (self._whole, self._pairs, self._shift, self._starts, self._arena)
        if len(found):
            find_texts.compiled(*laid, wanted, *table, found)
        return found


def _octets(buffer: pa.Buffer | None) -> Octets:
    """The bytes of a buffer, which begin on a whole word: a copy where they do not."""
    octets = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    return octets if buffer is None or buffer.address % 8 == 0 else octets.copy()


def _words(octets: Octets) -> Ints:
    """Bytes as whole words, filled up with zeros."""
    if len(octets) % 8:
        octets = np.concatenate([octets, np.zeros(8 - len(octets) % 8, np.uint8)])
    return octets.view(np.int64)
