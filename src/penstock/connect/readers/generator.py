"""Read what a generator function yields: rows, whole batches, and its own watermarks.

Rows are gathered into batches; a list of rows or a RecordBatch is a batch of its own. A `Watermark` ends the
batch of the rows gathered so far and goes with it, so it holds for what comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from penstock.connect.batches import RowRange, cast_batch, check_size, to_source_batch
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.iterable import DEFAULT_BATCH, IterableReader, build_batch, iterate
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
        """The time in the time column's unit."""
        if isinstance(self.time, int):
            return self.time
        as_type = pa.timestamp("us") if isinstance(self.time, datetime) else pa.date32()
        plain = from_python(self.time, as_type)
        assert isinstance(plain, int), "times and dates are ints in plain form"
        return plain


class GeneratorReader(IterableReader):
    """The batches that a generator function makes."""

    def rows_or_batches(self) -> Iterator[Any]:
        """Call the function and cut what it yields."""
        start, look = 0, self._few.look
        for given, watermark in self._groups():
            alone = watermark is None and type(given) is list and len(given) == 1
            row = look(given[0]) if alone else None
            if row:
                start += 1
                yield row
                continue
            batch = self._cut(given, start)
            start += batch.num_rows + len(batch.bad)
            yield batch if watermark is None else batch.promising(watermark.value)

    def _groups(self) -> Iterator[tuple[Any, Watermark | None]]:
        """What makes one batch, with the promise that ends it if one does."""
        held: list[object] = []
        for given in iterate(self):
            if isinstance(given, Watermark):
                yield held, given
                held = []
            elif isinstance(given, pa.RecordBatch) or _is_list(given):
                if held:
                    yield held, None
                    held = []
                yield given, None
            else:
                held.append(given)
                if len(held) == self._batch:
                    yield held, None
                    held = []
        if held:
            yield held, None

    def describe(self) -> str:
        """Such as `generator sensor`."""
        return super().describe().replace("iterable", "generator", 1)

    def _cut(self, given: object, start: int) -> SourceBatch:
        if isinstance(given, pa.RecordBatch):
            return to_source_batch([RowRange.whole(self._fitted(given), start)], self._schema)
        rows = list(given) if isinstance(given, Iterable) else []
        return build_batch(rows, self._few, self._schema, start)

    def _fitted(self, given: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return cast_batch(given, self._schema)
        except SchemaError as problem:
            raise ConnectorError(
                f"{self.describe()} yielded a RecordBatch that does not fit: {problem.fact}",
                detail=problem.detail,
                hint=f"yield the columns {', '.join(self._schema.names)}",
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


def _is_list(given: object) -> bool:
    return isinstance(given, list) or (isinstance(given, tuple) and not hasattr(given, "_fields"))
