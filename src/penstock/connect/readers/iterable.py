"""Readers of rows from a Python iterable, from a function that returns one, or from a generator function.

Only a function, or an object that can be iterated again, can be read by a second run: a one-shot iterator is
used up. Rows taken from an iterator cannot be asked for again, so delivery is at most once.

A generator function yields rows, whole batches (a list of rows or a RecordBatch), and its own watermarks. A
`Watermark` ends the batch of the rows collected so far and goes with it, so it holds for what comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect import batching
from penstock.connect.batching import RowRange, SourceRowBatch, check_size, to_source_batch
from penstock.connect.conversion import cast_batch, convert_rows
from penstock.connect.protocol import BadRow, Delivery, SourceBatch
from penstock.errors import ConnectorError, PenstockError, SchemaError
from penstock.expr.types import parse_schema
from penstock.expr.values import from_python
from penstock.frozen import Frozen

DEFAULT_BATCH = 1_000
"""Rows per batch of a lazy source: results wait for the end of a batch, so not too many."""

RowIterable = Iterable[object] | Callable[[], Iterable[object]]


class IterableReader:
    """Rows pulled from an iterable; rows that do not fit the schema are bad rows, kept as their repr."""

    delivery = Delivery.AT_MOST_ONCE
    keeps_raw = True
    kind = "iterable"

    def __init__(self, source: RowIterable, schema: pa.Schema, batch: int, bounded: bool) -> None:
        self._source, self.schema, self._batch, self.bounded = source, schema, batch, bounded
        self._used_up, self._converter = False, batching.RowConverter(schema)

    def batches(self) -> Iterator[SourceBatch]:
        """Yield rows from the beginning, as they come."""
        start = 0
        for item in self.rows_or_batches():
            batch = SourceRowBatch((item,), self.schema, start) if type(item) is dict else item
            start += batch.num_rows + len(batch.bad)
            yield batch

    @property
    def gives_rows(self) -> bool:
        """Return whether `rows_or_batches` yields single plain rows."""
        return self._batch == 1

    def rows_or_batches(self) -> Iterator[Any]:
        """Yield the same batches; where a batch is one row, and a good one, a dict of plain values."""
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
        """Return such as `iterable read_sensor`."""
        return f"{self.kind} {self._source_name()}"

    def _iterate(self) -> Iterator[object]:
        """Yield the rows of a new run; an error of the user's code names it, and the rows before it."""
        n_rows, source = 0, self._source
        try:
            if isinstance(source, Iterator) and not callable(source):
                if self._used_up:
                    raise ConnectorError(
                        f"{self._source_name()} was used up by an earlier run",
                        detail="an iterator gives its rows once",
                        hint="give a function that makes a new one: ps.read.iterable(lambda: …, schema=…)",
                    )
                self._used_up = True
            for row in source() if callable(source) else source:
                yield row
                n_rows += 1
        except PenstockError:
            raise
        except Exception as problem:
            raise ConnectorError(
                f"{self.describe()} raised {type(problem).__name__} after {n_rows} rows: {problem}",
                where=find_definition(source) if callable(source) else None,
                hint="mend the function, or catch the exception in it",
            ) from problem

    def _build_batch(self, rows: list[object], start: int) -> SourceBatch:
        """Return a batch of plain rows where there are few and all are good, else of columns."""
        plain = self._converter.batch(rows, start) if len(rows) <= batching.MAX_ROWS else None
        if plain is not None:
            return plain
        converted = convert_rows(rows, self.schema)
        bad = [
            BadRow(f"{rows[at]!r:.1000}", reason, f"row {start + at}") for at, reason in converted.failures
        ]
        return to_source_batch([RowRange.of_converted(converted, bad, start)], self.schema)

    def _source_name(self) -> str:
        return name_of(self._source) if callable(self._source) else type(self._source).__name__


class Watermark(Frozen):
    """A source's own promise: no more rows with a time before this.

    A datetime where the time column is a timestamp, a date where it is a date, an int in its unit where it
    is int64.
    """

    time: int | datetime | date

    def __post_init__(self) -> None:
        if isinstance(self.time, bool) or not isinstance(self.time, int | date):
            raise ConnectorError(
                f"Watermark({self.time!r}) is not a time",
                hint="give a datetime, a date, or an int in the column's unit",
            )

    @property
    def value(self) -> int:
        """Return the time in the time column's unit."""
        if isinstance(self.time, int):
            return self.time
        as_type = pa.timestamp("us") if isinstance(self.time, datetime) else pa.date32()
        plain = from_python(self.time, as_type)
        assert isinstance(plain, int), "times and dates are ints in plain form"
        return plain


class GeneratorReader(IterableReader):
    """The batches that a generator function yields."""

    kind = "generator"

    def rows_or_batches(self) -> Iterator[Any]:
        """Call the function and cut what it yields; a batch of one good row is a dict of plain values."""
        start = 0
        for rows, watermark in self._collect():
            is_row = watermark is None and type(rows) is list and len(rows) == 1
            plain = self._converter.convert(rows[0]) if is_row else None
            if plain:
                start += 1
                yield plain
                continue
            if not isinstance(rows, pa.RecordBatch):
                batch = self._build_batch(list(rows), start)
            else:
                try:
                    good = RowRange.of_good(cast_batch(rows, self.schema), start)
                except SchemaError as problem:
                    raise ConnectorError(
                        f"{self.describe()} yielded a RecordBatch that does not fit: {problem.fact}",
                        detail=problem.detail,
                        hint=f"yield the columns {', '.join(self.schema.names)}",
                    ) from problem
                batch = to_source_batch([good], self.schema)
            start += batch.num_rows + len(batch.bad)
            yield batch if watermark is None else batch.with_watermark(watermark.value)

    def _collect(self) -> Iterator[tuple[Any, Watermark | None]]:
        """Yield the rows of each batch, with the watermark that ends it if one does."""
        pending: list[object] = []
        for item in self._iterate():
            if isinstance(item, Watermark):
                yield pending, item
                pending = []
            elif isinstance(item, pa.RecordBatch | list | tuple) and not hasattr(item, "_fields"):
                if pending:
                    yield pending, None
                    pending = []
                yield item, None
            else:
                pending.append(item)
                if len(pending) == self._batch:
                    yield pending, None
                    pending = []
        if pending:
            yield pending, None


def iterable(
    source: RowIterable, *, schema: object, batch: int | None = None, bounded: bool = True
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


def generator(
    function: Callable[[], Iterable[object]],
    *,
    schema: object,
    batch: int | None = None,
    bounded: bool = True,
) -> GeneratorReader:
    """Read what a generator function yields: rows, lists of rows, RecordBatches and `Watermark(t)`.

    Single rows are cut every `batch` rows (default 1,000); a list or a RecordBatch is a batch of its own.
    """
    if not callable(function):
        raise ConnectorError(
            f"{type(function).__name__} {function!r:.80} is not a generator function",
            hint="give the function itself, without calling it: ps.read.generator(sensor, schema=…)",
        )
    return GeneratorReader(
        function, parse_schema(schema), check_size("batch", batch) or DEFAULT_BATCH, bounded
    )
