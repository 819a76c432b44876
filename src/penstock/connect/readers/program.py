"""Readers of the program's own data: tables and lists in memory, iterables, and generator functions.

pandas and Polars tables are recognised by what they offer, not imported. In pandas, NaN means missing and
becomes null; an index is read only if it has a name.

Of iterables, only a function, or an object that can be iterated again, can be read by a second run: a
one-shot iterator is used up. Rows taken from an iterator cannot be asked for again, so delivery is at most
once. A generator function yields rows, whole batches (a list of rows or a RecordBatch), and its own
watermarks. A `Watermark` ends the batch of the rows collected so far and goes with it, so it holds for what
comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from itertools import accumulate, chain, islice, pairwise
from typing import Any, ClassVar

import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect import batching
from penstock.connect.batching import RowRange, SourceRowBatch, check_size, to_source_batch
from penstock.connect.conversion import cast_batch, concat_batches, convert_rows, infer_schema
from penstock.connect.protocol import BadRow, Delivery, SourceBatch
from penstock.errors import ConnectorError, PenstockError, SchemaError
from penstock.expr.python.lower import has_exact_check
from penstock.expr.types import canonical_schema, parse_schema
from penstock.expr.values import from_python, to_plain
from penstock.frozen import Frozen

DEFAULT_BATCH = 1_000
"""Rows per batch of a lazy source: results wait for the end of a batch, so not too many."""

RowIterable = Iterable[object] | Callable[[], Iterable[object]]


class TableReader(Frozen):
    """Rows held in memory, cut into batches. A restarted program holds the same.

    starts       where the batches begin; two at the same row make an empty batch
    description  such as `table (300 rows)`
    """

    rows: pa.RecordBatch
    starts: Sequence[int]
    description: str

    bounded: ClassVar[bool] = True
    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    keeps_raw: ClassVar[bool] = False

    @property
    def schema(self) -> pa.Schema:
        """Return the table's columns."""
        return self.rows.schema

    def batches(self) -> Iterator[SourceBatch]:
        """Yield the table from its first row."""
        for start, end in pairwise(chain(self.starts, (self.rows.num_rows,))):
            yield to_source_batch([RowRange.of_good(self.rows.slice(start, end - start), start)], self.schema)

    @property
    def gives_rows(self) -> bool:
        """Return whether `rows_or_batches` yields single plain rows."""
        single = isinstance(self.starts, range) and self.starts.step == 1
        return single and all(has_exact_check(field.type) for field in self.schema)

    def rows_or_batches(self) -> Iterator[Any]:
        """Yield the same batches; where a batch is one row of simple types, a dict of plain values."""
        if not self.gives_rows:
            yield from self.batches()
            return
        names = self.schema.names
        for start in range(0, self.rows.num_rows, batching.MAX_ROWS):
            columns = [to_plain(column) for column in self.rows.slice(start, batching.MAX_ROWS).columns]
            for values in zip(*columns, strict=True):
                yield dict(zip(names, values, strict=True))

    def describe(self) -> str:
        """Return one line for explain()."""
        return self.description


def table(data: Any, *, schema: object = None, batch: int | None = None) -> TableReader:
    """Read an Arrow, pandas or Polars table, `batch` rows at a time (all at once if not given).

    With `schema=`, only its columns are read, cast where no value changes.
    """
    columns = _to_arrow(data)
    wanted = canonical_schema(columns.schema) if schema is None else parse_schema(schema)
    rows = concat_batches([cast_batch(chunk, wanted) for chunk in columns.to_batches()], wanted)
    return _build_reader(rows, batch, "table")


def rows(rows: Sequence[object], *, schema: object = None, batch: int | None = None) -> TableReader:
    """Read a list of dicts, dataclass instances or NamedTuples, `batch` rows at a time (default: all).

    Without `schema=` it is taken from all the rows. A missing key is null; an unknown one is an error.
    """
    row_list = _require_list(rows, "rows")
    columns = infer_schema(row_list) if schema is None else parse_schema(schema)
    return _build_reader(_convert_all(row_list, columns, "row {}"), batch, "rows")


def batches(batches: Sequence[Sequence[object]], *, schema: object = None) -> TableReader:
    """Read rows with the cuts made by hand: each inner list is one batch, and may be empty."""
    lists = [_require_list(rows, f"batch {n}") for n, rows in enumerate(_require_list(batches, "batches"))]
    all_rows = [row for row_list in lists for row in row_list]
    columns = infer_schema(all_rows) if schema is None else parse_schema(schema)
    converted = [_convert_all(rows, columns, f"row {{}} of batch {n}") for n, rows in enumerate(lists)]
    ends = list(accumulate(rows.num_rows for rows in converted))
    description = f"batches ({len(lists)} batches, {len(all_rows)} rows)"
    return TableReader(concat_batches(converted, columns), [0, *ends][: len(ends)], description)


def _build_reader(rows: pa.RecordBatch, batch: int | None, origin: str) -> TableReader:
    size, n_rows = check_size("batch", batch), rows.num_rows
    starts = (0,) if size is None else range(0, n_rows, size)
    return TableReader(rows, starts, f"{origin} ({n_rows} rows)")


def _to_arrow(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if type(data).__module__.startswith("pandas.") and hasattr(data, "columns"):
            named = [name for name in data.index.names if name is not None]
            return pa.Table.from_pandas(
                data.reset_index(level=named) if named else data, preserve_index=False
            )
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except (pa.ArrowException, ValueError, TypeError) as problem:
        raise SchemaError(
            f"the {type(data).__name__} cannot be read as columns",
            detail=str(problem),
            hint="give each column a name of its own and one type that rows can hold",
        ) from problem
    raise SchemaError(
        f"{type(data).__name__} is not a table",
        hint="give a pyarrow.Table or a DataFrame (collect() a LazyFrame, to_frame() a Series),"
        " or use ps.read.rows([…])",
    )


def _require_list(value: object, name: str) -> list[object]:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return list(value)
    raise SchemaError(
        f"{name} must be a list, not {type(value).__name__} {value!r:.80}",
        hint="write a list, or use ps.read.iterable(…, schema=…) to read lazily",
    )


def _convert_all(row_list: list[object], schema: pa.Schema, place: str) -> pa.RecordBatch:
    converted = convert_rows(row_list, schema)
    for position, reason in converted.failures:
        raise SchemaError(
            f"{place.format(position)} does not fit its schema: {reason}",
            detail=f"{row_list[position]!r:.200}",
            hint="mend the row, or say the types in schema=",
        )
    return converted.rows


class IterableReader:
    """Rows pulled from an iterable; rows that do not fit the schema are bad rows, kept as their repr."""

    delivery = Delivery.AT_MOST_ONCE
    keeps_raw = True
    kind = "iterable"

    def __init__(self, source: RowIterable, schema: pa.Schema, batch: int, bounded: bool) -> None:
        self._source, self.schema, self._batch, self.bounded = source, schema, batch, bounded
        self._used_up, self._converter = False, batching.RowConverter(schema)
        self.gives_rows = batch == 1  # `rows_or_batches` yields single plain rows

    def batches(self) -> Iterator[SourceBatch]:
        """Yield rows from the beginning, as they come."""
        start = 0
        for item in self.rows_or_batches():
            batch = SourceRowBatch((item,), self.schema, start) if type(item) is dict else item
            start += batch.num_rows + len(batch.bad)
            yield batch

    def rows_or_batches(self) -> Iterator[Any]:
        """Yield the same batches; where a batch is one row, and a good one, a dict of plain values."""
        if self.gives_rows:
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
