"""Rows of a reader, numbered and cut into batches.

The cut is part of a program's meaning, so it depends on row numbers and files alone, never on how a format
happened to deliver its rows. Bad rows count: repairing one moves no other row into another batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connect.conversion import ConvertedRows, concat_batches
from penstock.connect.protocol import BadRow, SourceBatch
from penstock.errors import ConnectorError
from penstock.expr.values import from_numpy
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class RowRange:
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
    def of_good(cls, rows: pa.RecordBatch, start: int) -> RowRange:
        """Returns a range without bad rows."""
        end = start + rows.num_rows
        return cls(rows, np.arange(start, end, dtype=np.int64), (), start, end)

    @classmethod
    def of_converted(cls, converted: ConvertedRows, bad: Sequence[BadRow], start: int) -> RowRange:
        """Returns the range of rows that were converted; `bad` are those that failed, in their order."""
        numbers = np.array(converted.positions, np.int64) + start
        numbered = tuple((start + at, row) for (at, _), row in zip(converted.failures, bad, strict=True))
        return cls(converted.rows, numbers, numbered, start, start + len(numbers) + len(bad))

    def split(self, n_rows: int) -> tuple[RowRange, RowRange]:
        """Returns the first `n_rows` rows, and the rest."""
        border = self.start + n_rows
        at = int(np.searchsorted(self.numbers, border))
        head_bad = tuple(pair for pair in self.bad if pair[0] < border)
        tail_bad = tuple(pair for pair in self.bad if pair[0] >= border)
        head = RowRange(self.rows.slice(0, at), self.numbers[:at], head_bad, self.start, border)
        return head, RowRange(self.rows.slice(at), self.numbers[at:], tail_bad, border, self.end)

    def shift(self, by: int) -> RowRange:
        """Returns the same rows with higher numbers."""
        bad = tuple((number + by, row) for number, row in self.bad)
        return replace(self, numbers=self.numbers + by, bad=bad, start=self.start + by, end=self.end + by)


def batch_by_rows(ranges: Iterable[RowRange], schema: pa.Schema, n_rows: int) -> Iterator[SourceBatch]:
    """Yields batches of `n_rows` rows; the last may be shorter."""
    pending: list[RowRange] = []
    n_pending = 0
    for next_range in ranges:
        rest = next_range
        while n_pending + rest.end - rest.start >= n_rows:
            head, rest = rest.split(n_rows - n_pending)
            yield to_source_batch([*pending, head], schema)
            pending, n_pending = [], 0
        if rest.end > rest.start:
            pending.append(rest)
            n_pending += rest.end - rest.start
    if pending:
        yield to_source_batch(pending, schema)


def to_source_batch(ranges: Sequence[RowRange], schema: pa.Schema) -> SourceBatch:
    """Returns the ranges as one batch."""
    numbers = [part.numbers for part in ranges] or [np.empty(0, np.int64)]
    return SourceBatch(
        rows=concat_batches([part.rows for part in ranges], schema),
        seq=from_numpy(numbers[0] if len(numbers) == 1 else np.concatenate(numbers)),
        bad=tuple(row for part in ranges for _, row in part.bad),
    )


def check_size(name: str, value: object) -> int | None:
    """Returns a `batch=` or `files=` of a user: a whole number above zero, or None."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ConnectorError(
        f"{name}={value!r} is not a number of rows or files",
        hint=f"give a whole number above zero: {name}=1000",
    )
