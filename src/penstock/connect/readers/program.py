"""Readers of the program's own data in memory: tables, and lists of rows.

pandas and Polars tables are recognised by what they offer, not imported. In pandas, NaN means missing and
becomes null; an index is read only if it has a name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, ClassVar

import pyarrow as pa

from penstock.connect import batching
from penstock.connect.batching import NumberedBatch, check_size
from penstock.connect.conversion import cast_batch, concat_batches, convert_rows, infer_schema
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.errors import SchemaError
from penstock.expr.python.lower import has_exact_check
from penstock.expr.types import canonical_schema, parse_schema
from penstock.expr.values import to_plain
from penstock.frozen import Frozen


class TableReader(Frozen):
    """Rows held in memory, cut into batches. A restarted program holds the same.

    Rows stay where they are: only a batch that begins in one chunk and ends in another is copied.

    chunks       the rows, in order
    schema       the columns of the table
    starts       where the batches begin; two at the same row make an empty batch
    description  such as `table (300 rows)`
    begins       the number of rows before each chunk, and that of all
    """

    chunks: tuple[pa.RecordBatch, ...]
    schema: pa.Schema
    starts: Sequence[int]
    description: str
    begins: tuple[int, ...]

    bounded: ClassVar[bool] = True
    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    keeps_raw: ClassVar[bool] = False

    def batches(self, position: int | None = None) -> Iterator[SourceBatch]:
        """Yield the table from its first row, or behind so many batches."""
        for start, end in pairwise(chain(self.starts[position or 0 :], (self.begins[-1],))):
            yield NumberedBatch(self._slice(start, end), start)

    def _slice(self, start: int, end: int) -> pa.RecordBatch:
        number, pieces = bisect_right(self.begins, start) - 1, list[pa.RecordBatch]()
        while start < min(end, self.begins[-1]):
            begin, chunk_end = self.begins[number : number + 2]
            n_rows = min(end, chunk_end) - start
            pieces.append(self.chunks[number].slice(start - begin, n_rows))
            start, number = start + n_rows, number + 1
        return concat_batches(pieces, self.schema)

    def rows_before(self, n_batches: int) -> int | None:
        """Return the number of rows in the first batches; None if there are not so many."""
        if n_batches >= len(self.starts):
            return self.begins[-1] if n_batches == len(self.starts) else None
        return self.starts[n_batches]

    @property
    def gives_rows(self) -> bool:
        """Return whether `rows_or_batches` yields single plain rows."""
        single = isinstance(self.starts, range) and self.starts.step == 1
        return single and all(has_exact_check(one.type) for one in self.schema)

    def rows_or_batches(self, position: int | None = None) -> Iterator[Any]:
        """Yield the same batches; where a batch is one row of simple types, a dict of plain values."""
        if not self.gives_rows:
            yield from self.batches(position)
            return
        names = self.schema.names
        for start in range(position or 0, self.begins[-1], batching.MAX_ROWS):
            columns = [to_plain(column) for column in self._slice(start, start + batching.MAX_ROWS).columns]
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
    return _build_reader(
        [cast_batch(chunk, wanted) for chunk in columns.to_batches()], wanted, batch, "table"
    )


def rows(rows: Sequence[object], *, schema: object = None, batch: int | None = None) -> TableReader:
    """Read a list of dicts, dataclass instances or NamedTuples, `batch` rows at a time (default: all).

    Without `schema=` it is taken from all the rows. A missing key is null; an unknown one is an error.
    """
    row_list = _require_list(rows, "rows")
    columns = infer_schema(row_list) if schema is None else parse_schema(schema)
    return _build_reader([_convert_all(row_list, columns, "row {}")], columns, batch, "rows")


def batches(batches: Sequence[Sequence[object]], *, schema: object = None) -> TableReader:
    """Read rows with the cuts made by hand: each inner list is one batch, and may be empty."""
    lists = [_require_list(rows, f"batch {n}") for n, rows in enumerate(_require_list(batches, "batches"))]
    all_rows = [row for row_list in lists for row in row_list]
    columns = infer_schema(all_rows) if schema is None else parse_schema(schema)
    converted = [_convert_all(rows, columns, f"row {{}} of batch {n}") for n, rows in enumerate(lists)]
    ends = list(accumulate(rows.num_rows for rows in converted))
    description = f"batches ({len(lists)} batches, {len(all_rows)} rows)"
    chunks = (concat_batches(converted, columns),)
    return TableReader(chunks, columns, [0, *ends][: len(ends)], description, (0, len(all_rows)))


def _build_reader(
    chunks: Sequence[pa.RecordBatch], schema: pa.Schema, batch: int | None, origin: str
) -> TableReader:
    size, begins = check_size("batch", batch), tuple(accumulate((len(chunk) for chunk in chunks), initial=0))
    starts = (0,) if size is None else range(0, begins[-1], size)
    return TableReader(tuple(chunks), schema, starts, f"{origin} ({begins[-1]} rows)", begins)


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
