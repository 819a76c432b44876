"""The reader of rows from a Python iterable, or from a function that returns one.

Only a function, or an object that can be iterated again, can be read by a second run: a one-shot iterator is
used up. Rows taken from an iterator cannot be asked for again, so delivery is at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect.batching import RowRange, check_size, to_source_batch
from penstock.connect.conversion import convert_rows
from penstock.connect.protocol import BadRow, Delivery, SourceBatch
from penstock.connect.row_batch import MAX_ROWS, RowBatch, RowConverter
from penstock.errors import ConnectorError, PenstockError
from penstock.expr.schema import parse_schema

DEFAULT_BATCH = 1_000
"""Rows per batch of a lazy source: results wait for the end of a batch, so not too many."""

Source = Iterable[object] | Callable[[], Iterable[object]]


class IterableReader:
    """Rows pulled from an iterable; rows that do not fit the schema are bad rows, kept as their repr."""

    delivery = Delivery.AT_MOST_ONCE
    keeps_raw = True

    def __init__(self, source: Source, schema: pa.Schema, batch: int, bounded: bool) -> None:
        self._source, self.schema, self._batch, self.bounded = source, schema, batch, bounded
        self._used_up, self._converter = False, RowConverter(schema)

    def batches(self) -> Iterator[SourceBatch]:
        """Yields rows from the beginning, as they come."""
        start = 0
        for item in self.rows_or_batches():
            batch = RowBatch((item,), self.schema, start) if type(item) is dict else item
            start += batch.num_rows + len(batch.bad)
            yield batch

    @property
    def gives_rows(self) -> bool:
        """Whether `rows_or_batches` gives single plain rows."""
        return self._batch == 1

    def rows_or_batches(self) -> Iterator[Any]:
        """Yields the same batches; where a batch is one row, and a good one, a dict of plain values."""
        if self._batch == 1:
            convert = self._converter.convert
            for n, row in enumerate(self._iterate()):
                yield convert(row) or self._build_batch([row], n)
            return
        start, iterator = 0, self._iterate()
        while rows := list(islice(iterator, self._batch)):
            yield self._build_batch(rows, start)
            start += len(rows)

    def describe(self) -> str:
        """Returns such as `iterable read_sensor`."""
        return f"iterable {self._source_name()}"

    def _iterate(self) -> Iterator[object]:
        """Yields the rows of a new run; an error of the user's code names it, and the rows before it."""
        n_rows = 0
        try:
            for row in self._open():
                yield row
                n_rows += 1
        except PenstockError:
            raise
        except Exception as problem:
            raise ConnectorError(
                f"{self.describe()} raised {type(problem).__name__} after {n_rows} rows: {problem}",
                where=find_definition(self._source) if callable(self._source) else None,
                hint="mend the function, or catch the exception in it",
            ) from problem

    def _open(self) -> Iterable[object]:
        if callable(self._source):
            return self._source()
        if isinstance(self._source, Iterator):
            if self._used_up:
                raise ConnectorError(
                    f"{self._source_name()} was used up by an earlier run",
                    detail="an iterator gives its rows once",
                    hint="give a function that makes a new one: ps.read.iterable(lambda: …, schema=…)",
                )
            self._used_up = True
        return self._source

    def _build_batch(self, rows: list[object], start: int) -> SourceBatch:
        """Returns a batch of plain rows where there are few and all are good, else of columns."""
        plain = self._converter.batch(rows, start) if len(rows) <= MAX_ROWS else None
        if plain is not None:
            return plain
        converted = convert_rows(rows, self.schema)
        bad = [
            BadRow(f"{rows[at]!r:.1000}", reason, f"row {start + at}") for at, reason in converted.failures
        ]
        return to_source_batch([RowRange.of_converted(converted, bad, start)], self.schema)

    def _source_name(self) -> str:
        return name_of(self._source) if callable(self._source) else type(self._source).__name__


def iterable(
    source: Source, *, schema: object, batch: int | None = None, bounded: bool = True
) -> IterableReader:
    """Read rows lazily, `batch` at a time (default 1,000).

    A function that returns a new iterable can be read by every run, a one-shot iterator only by the first.
    `bounded=False` says that it never ends.
    """
    if not callable(source) and not isinstance(source, Iterable):
        raise ConnectorError(
            f"{type(source).__name__} {source!r:.80} cannot be iterated",
            hint="give an iterable of rows, or a function that returns one",
        )
    return IterableReader(source, parse_schema(schema), check_size("batch", batch) or DEFAULT_BATCH, bounded)
