"""The reader of what a generator function yields: rows, whole batches, and its own watermarks.

Rows are collected into batches; a list of rows or a RecordBatch is a batch of its own. A `Watermark` ends the
batch of the rows collected so far and goes with it, so it holds for what comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from penstock.connect.batching import RowRange, check_size, to_source_batch
from penstock.connect.conversion import cast_batch
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.iterable import DEFAULT_BATCH, IterableReader
from penstock.errors import ConnectorError, SchemaError
from penstock.expr.schema import parse_schema
from penstock.expr.types import from_python
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Watermark:
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

    def rows_or_batches(self) -> Iterator[Any]:
        """Calls the function and cuts what it yields; a batch of one good row is a dict of plain values."""
        start = 0
        for rows, watermark in self._collect():
            is_row = watermark is None and type(rows) is list and len(rows) == 1
            plain = self._converter.convert(rows[0]) if is_row else None
            if plain:
                start += 1
                yield plain
                continue
            batch = self._cut(rows, start)
            start += batch.num_rows + len(batch.bad)
            yield batch if watermark is None else batch.with_watermark(watermark.value)

    def _collect(self) -> Iterator[tuple[Any, Watermark | None]]:
        """Yields the rows of each batch, with the watermark that ends it if one does."""
        pending: list[object] = []
        for item in self._iterate():
            if isinstance(item, Watermark):
                yield pending, item
                pending = []
            elif isinstance(item, pa.RecordBatch) or _is_list(item):
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

    def describe(self) -> str:
        """Returns such as `generator sensor`."""
        return f"generator {self._source_name()}"

    def _cut(self, rows: object, start: int) -> SourceBatch:
        if isinstance(rows, pa.RecordBatch):
            return to_source_batch([RowRange.of_good(self._cast(rows), start)], self.schema)
        return self._build_batch(list(rows) if isinstance(rows, Iterable) else [], start)

    def _cast(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return cast_batch(rows, self.schema)
        except SchemaError as problem:
            raise ConnectorError(
                f"{self.describe()} yielded a RecordBatch that does not fit: {problem.fact}",
                detail=problem.detail,
                hint=f"yield the columns {', '.join(self.schema.names)}",
            ) from problem


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


def _is_list(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, tuple) and not hasattr(value, "_fields"))
