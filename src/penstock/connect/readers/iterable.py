"""Read rows lazily from a Python iterable, or from a callable that makes one.

Only a callable, or something that can be iterated again, can be read by a second run: a one-shot iterator is
used up. Nothing here survives a crash by itself, so delivery is at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect.batches import RowRange, check_size, convert_rows, to_source_batch
from penstock.connect.protocol import BadRow, Delivery, SourceBatch
from penstock.connect.row_batch import MAX_ROWS, RowBatch, RowConverter
from penstock.errors import ConnectorError, PenstockError
from penstock.expr.schema import parse_schema

DEFAULT_BATCH = 1_000
"""Rows per batch of a lazy source: results wait for the end of a batch, so not too many."""


class IterableReader:
    """Rows pulled from an iterable; rows that do not fit the schema are bad rows of their batch."""

    def __init__(
        self,
        source: Iterable[object] | Callable[[], Iterable[object]],
        schema: pa.Schema,
        batch: int,
        bounded: bool,
    ) -> None:
        self._source, self._schema, self._batch, self._bounded = source, schema, batch, bounded
        self._used_up, self._few = False, RowConverter(schema)

    @property
    def schema(self) -> pa.Schema:
        """As declared."""
        return self._schema

    @property
    def bounded(self) -> bool:
        """As declared."""
        return self._bounded

    @property
    def delivery(self) -> Delivery:
        """Rows taken from an iterator cannot be asked for again."""
        return Delivery.AT_MOST_ONCE

    @property
    def keeps_raw(self) -> bool:
        """A row that does not fit is kept as its repr."""
        return True

    def batches(self) -> Iterator[SourceBatch]:
        """Rows from the beginning, as they come."""
        start = 0
        for each in self.rows_or_batches():
            batch = RowBatch((each,), self._schema, start) if type(each) is dict else each
            start += batch.num_rows + len(batch.bad)
            yield batch

    def rows_or_batches(self) -> Iterator[Any]:
        """The same batches; one that is a single plain row, with which nothing is wrong, is that dict."""
        return self._singly() if self._batch == 1 else self._several()

    def _several(self) -> Iterator[SourceBatch]:
        start = 0
        for taken in self._taken():
            yield build_batch(taken, self._few, self._schema, start)
            start += len(taken)

    def _taken(self) -> Iterator[list[object]]:
        """The rows of each batch; as `fresh`, without a generator more for every row."""
        n_given, taken = 0, list[object]()
        try:
            given = iter(self.take())
            while True:
                taken = []
                taken.extend(islice(given, self._batch))  # what came before a failure is there then
                if not taken:
                    return
                yield taken
                n_given += len(taken)
        except PenstockError:
            raise
        except Exception as problem:
            raise source_error(self, problem, n_given + len(taken)) from problem

    def _singly(self) -> Iterator[Any]:
        """Row after row, in the same way."""
        n_given, look = 0, self._few.look
        try:
            for row in self.take():
                yield look(row) or to_source_batch(
                    [convert_range([row], self._schema, n_given)], self._schema
                )
                n_given += 1
        except PenstockError:
            raise
        except Exception as problem:
            raise source_error(self, problem, n_given) from problem

    def describe(self) -> str:
        """Such as `iterable read_sensor`."""
        return f"iterable {source_name(self._source)}"

    def take(self) -> Iterable[object]:
        """The rows of a new run; a one-shot iterator gives them once."""
        if callable(self._source):
            return self._source()
        if isinstance(self._source, Iterator):
            if self._used_up:
                raise ConnectorError(
                    f"{source_name(self._source)} was used up by an earlier run",
                    detail="an iterator gives its rows once",
                    hint="give a function that makes a new one: ps.read.iterable(lambda: …, schema=…)",
                )
            self._used_up = True
        return self._source


def iterable(
    source: Iterable[object] | Callable[[], Iterable[object]],
    *,
    schema: object,
    batch: int | None = None,
    bounded: bool = True,
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


def iterate(reader: IterableReader) -> Iterator[object]:
    """The rows of a new run; what goes wrong in the user's code names it, and how far it came."""
    n_given = 0
    try:
        for each in reader.take():
            yield each
            n_given += 1
    except PenstockError:
        raise
    except Exception as problem:
        raise source_error(reader, problem, n_given) from problem


def source_error(reader: IterableReader, problem: Exception, n_given: int) -> ConnectorError:
    """The user's code raised something, after so many rows."""
    return ConnectorError(
        f"{reader.describe()} raised {type(problem).__name__} after {n_given} rows: {problem}",
        where=find_definition(reader._source) if callable(reader._source) else None,
        hint="mend the function, or catch the exception in it",
    )


def build_batch(given: list[object], few: RowConverter, schema: pa.Schema, start: int) -> SourceBatch:
    """A batch of rows: few of them as they are, if nothing is wrong with them, many as columns."""
    plain = few.batch(given, start) if len(given) <= MAX_ROWS else None
    return to_source_batch([convert_range(given, schema, start)], schema) if plain is None else plain


def convert_range(given: list[object], schema: pa.Schema, start: int) -> RowRange:
    """Rows as they were given, from row number `start` on; those that do not fit are bad."""
    gathered = convert_rows(given, schema)
    bad = tuple(
        (start + at, BadRow(f"{given[at]!r:.1000}", reason, f"row {start + at}"))
        for at, reason in gathered.failures
    )
    numbers = np.array(gathered.positions, np.int64) + start
    return RowRange(gathered.rows, numbers, bad, start, start + len(given))


def source_name(source: object) -> str:
    """The source by name, or by type."""
    return name_of(source) if callable(source) else type(source).__name__
