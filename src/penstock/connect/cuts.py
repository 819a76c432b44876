"""How a read is cut into batches: by rows or by files.

The cut is part of a program's meaning, so it depends on row numbers and files alone, never on how a format
happened to deliver its rows. Bad rows count: mending one moves no other row into another batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connect.columns import joined
from penstock.connect.protocol import BadRow, SourceBatch
from penstock.errors import ConnectorError
from penstock.expr.arrays import from_numpy
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of a read.

    rows     those that could be read
    numbers  int64[n] their numbers, rising, all >= start and < end
    bad      the others, with their numbers
    start    number of the first row
    end      number after the last row
    """

    rows: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    bad: tuple[tuple[int, BadRow], ...]
    start: int
    end: int

    @classmethod
    def whole(cls, rows: pa.RecordBatch, start: int) -> Piece:
        """Rows without a bad one."""
        end = start + rows.num_rows
        return cls(rows, np.arange(start, end, dtype=np.int64), (), start, end)

    def split(self, n_rows: int) -> tuple[Piece, Piece]:
        """The first `n_rows` rows, and the rest."""
        border = self.start + n_rows
        at = int(np.searchsorted(self.numbers, border))
        head_bad = tuple(pair for pair in self.bad if pair[0] < border)
        tail_bad = tuple(pair for pair in self.bad if pair[0] >= border)
        head = Piece(self.rows.slice(0, at), self.numbers[:at], head_bad, self.start, border)
        return head, Piece(self.rows.slice(at), self.numbers[at:], tail_bad, border, self.end)


def by_rows(pieces: Iterable[Piece], schema: pa.Schema, n_rows: int) -> Iterator[SourceBatch]:
    """Batches of `n_rows` rows; the last may be shorter."""
    held: list[Piece] = []
    n_held = 0
    for arrived in pieces:
        piece = arrived
        while n_held + piece.end - piece.start >= n_rows:
            head, piece = piece.split(n_rows - n_held)
            yield together([*held, head], schema)
            held, n_held = [], 0
        if piece.end > piece.start:
            held.append(piece)
            n_held += piece.end - piece.start
    if held:
        yield together(held, schema)


def by_files(pieces: Iterable[Piece | None], schema: pa.Schema, n_files: int) -> Iterator[SourceBatch]:
    """Batches of `n_files` files, whose ends are None; a file without rows still counts."""
    held: list[Piece] = []
    n_ended = 0
    for piece in pieces:
        if piece is not None:
            held.append(piece)
            continue
        n_ended += 1
        if n_ended == n_files:
            yield together(held, schema)
            held, n_ended = [], 0
    if n_ended:
        yield together(held, schema)


def together(pieces: list[Piece], schema: pa.Schema) -> SourceBatch:
    """The pieces as one batch."""
    numbers = [piece.numbers for piece in pieces] or [np.empty(0, np.int64)]
    whole = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
    return SourceBatch(
        rows=joined([piece.rows for piece in pieces], schema),
        seq=from_numpy(whole),
        bad=tuple(bad for piece in pieces for _, bad in piece.bad),
    )


def checked_size(name: str, value: object) -> int | None:
    """A `batch=` or `files=` that a user gave: a whole number above zero, or None."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ConnectorError(
        f"{name}={value!r} is not a number of rows or files",
        hint=f"give a whole number above zero: {name}=1000",
    )
