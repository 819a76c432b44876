"""Read columns that are already in memory: Arrow, pandas and Polars tables, and lists of rows made into one.

pandas and Polars are recognised by what they offer, not imported. In pandas, NaN means missing and becomes
null; an index is read only if it has a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.connect.batches import (
    RowRange,
    cast_batch,
    check_size,
    concat_batches,
    convert_rows,
    to_source_batch,
)
from penstock.connect.infer import infer_schema
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.row_batch import MAX_ROWS
from penstock.errors import SchemaError
from penstock.expr.python.row_check import has_exact_check
from penstock.expr.schema import parse_schema
from penstock.expr.types import canonical_schema
from penstock.expr.values import to_plain
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class TableReader:
    """Rows held in memory; `batch` rows at a time, or all at once."""

    rows: pa.RecordBatch
    batch: int | None
    origin: str

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self.rows.schema

    @property
    def bounded(self) -> bool:
        """A table ends."""
        return True

    @property
    def delivery(self) -> Delivery:
        """The program that is restarted holds the same table."""
        return Delivery.EXACTLY_ONCE

    @property
    def keeps_raw(self) -> bool:
        """Every row was read when the reader was made."""
        return False

    def batches(self) -> Iterator[SourceBatch]:
        """The table from its first row."""
        if self.batch is None:
            return iter([to_source_batch([RowRange.whole(self.rows, 0)], self.schema)])
        starts = range(0, self.rows.num_rows, self.batch)
        pieces = (RowRange.whole(self.rows.slice(start, self.batch), start) for start in starts)
        return (to_source_batch([piece], self.schema) for piece in pieces)

    def rows_or_batches(self) -> Iterator[Any]:
        """The same batches; a single row of types that are told at a glance is a dict of plain values."""
        singly = self.batch == 1 and all(has_exact_check(field.type) for field in self.schema)
        return self._singly() if singly else self.batches()

    def _singly(self) -> Iterator[dict[str, object]]:
        names = self.schema.names
        for start in range(0, self.rows.num_rows, MAX_ROWS):
            columns = [to_plain(column) for column in self.rows.slice(start, MAX_ROWS).columns]
            for values in zip(*columns, strict=True):
                yield dict(zip(names, values, strict=True))

    def describe(self) -> str:
        """Such as `table (300 rows)`."""
        return f"{self.origin} ({self.rows.num_rows} rows)"


def table(data: Any, *, schema: object = None, batch: int | None = None) -> TableReader:
    """Read an Arrow, pandas or Polars table, `batch` rows at a time (all at once if not given).

    With `schema=`, only its columns are read, cast where no value changes.
    """
    columns = _to_arrow(data)
    wanted = canonical_schema(columns.schema) if schema is None else parse_schema(schema)
    rows = concat_batches([cast_batch(chunk, wanted) for chunk in columns.to_batches()], wanted)
    return TableReader(rows, check_size("batch", batch), "table")


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


# Read a list of rows given in the program, and the same with explicit cuts.


@dataclass(frozen=True, slots=True)
class BatchesReader:
    """Batches cut by hand."""

    columns: pa.Schema
    cuts: tuple[pa.RecordBatch, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        return self.columns

    @property
    def bounded(self) -> bool:
        """The batches end."""
        return True

    @property
    def delivery(self) -> Delivery:
        """The program that is restarted holds the same rows."""
        return Delivery.EXACTLY_ONCE

    @property
    def keeps_raw(self) -> bool:
        """Every row was read when the reader was made."""
        return False

    def batches(self) -> Iterator[SourceBatch]:
        """One batch per list, empty ones too."""
        start = 0
        for rows in self.cuts:
            yield to_source_batch([RowRange.whole(rows, start)], self.columns)
            start += rows.num_rows

    def describe(self) -> str:
        """Such as `batches (2 batches, 5 rows)`."""
        n_rows = sum(rows.num_rows for rows in self.cuts)
        return f"batches ({len(self.cuts)} batches, {n_rows} rows)"


def rows(given: Sequence[object], *, schema: object = None, batch: int | None = None) -> TableReader:
    """Read a list of dicts, dataclass instances or NamedTuples, `batch` rows at a time (default: all).

    Without `schema=` it is taken from all the rows. A missing key is null; an unknown one is an error.
    """
    listed = _require_list(given, "rows")
    columns = infer_schema(listed) if schema is None else parse_schema(schema)
    return TableReader(_convert_all(listed, columns, "row {}"), check_size("batch", batch), "rows")


def batches(given: Sequence[Sequence[object]], *, schema: object = None) -> BatchesReader:
    """Read rows with the cuts made by hand: each inner list is one batch, and may be empty."""
    lists = [_require_list(each, f"batch {n}") for n, each in enumerate(_require_list(given, "batches"))]
    columns = (
        infer_schema([row for each in lists for row in each]) if schema is None else parse_schema(schema)
    )
    cuts = [_convert_all(each, columns, f"row {{}} of batch {n}") for n, each in enumerate(lists)]
    return BatchesReader(columns, tuple(cuts))


def _require_list(given: object, what: str) -> list[object]:
    if isinstance(given, list | tuple) and not hasattr(given, "_fields"):
        return list(given)
    raise SchemaError(
        f"{what} must be a list, not {type(given).__name__} {given!r:.80}",
        hint="write a list, or use ps.read.iterable(…, schema=…) to read lazily",
    )


def _convert_all(given: list[object], schema: pa.Schema, place: str) -> pa.RecordBatch:
    gathered = convert_rows(given, schema)
    for position, reason in gathered.failures:
        raise SchemaError(
            f"{place.format(position)} does not fit its schema: {reason}",
            detail=f"{given[position]!r:.200}",
            hint="mend the row, or say the types in schema=",
        )
    return gathered.rows
