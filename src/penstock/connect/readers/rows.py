"""Read a list of rows given in the program, and the same with explicit cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.connect.columns import gather_rows
from penstock.connect.cuts import Piece, checked_size, together
from penstock.connect.infer import infer_schema
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers.table import TableReader
from penstock.errors import SchemaError
from penstock.expr.declared import declared_schema
from penstock.frozen import dataclass


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
            yield together([Piece.whole(rows, start)], self.columns)
            start += rows.num_rows

    def describe(self) -> str:
        """Such as `batches (2 batches, 5 rows)`."""
        n_rows = sum(rows.num_rows for rows in self.cuts)
        return f"batches ({len(self.cuts)} batches, {n_rows} rows)"


def rows(given: Sequence[object], *, schema: object = None, batch: int | None = None) -> TableReader:
    """Read a list of dicts, dataclass instances or NamedTuples, `batch` rows at a time (default: all).

    Without `schema=` it is taken from all the rows. A missing key is null; an unknown one is an error.
    """
    listed = _listed(given, "rows")
    columns = infer_schema(listed) if schema is None else declared_schema(schema)
    return TableReader(_checked(listed, columns, "row {}"), checked_size("batch", batch), "rows")


def batches(given: Sequence[Sequence[object]], *, schema: object = None) -> BatchesReader:
    """Read rows with the cuts made by hand: each inner list is one batch, and may be empty."""
    lists = [_listed(each, f"batch {n}") for n, each in enumerate(_listed(given, "batches"))]
    columns = (
        infer_schema([row for each in lists for row in each]) if schema is None else declared_schema(schema)
    )
    cuts = [_checked(each, columns, f"row {{}} of batch {n}") for n, each in enumerate(lists)]
    return BatchesReader(columns, tuple(cuts))


def _listed(given: object, what: str) -> list[object]:
    if isinstance(given, list | tuple) and not hasattr(given, "_fields"):
        return list(given)
    raise SchemaError(
        f"{what} must be a list, not {type(given).__name__} {given!r:.80}",
        hint="write a list, or use ps.read.iterable(…, schema=…) to read lazily",
    )


def _checked(given: list[object], schema: pa.Schema, place: str) -> pa.RecordBatch:
    gathered = gather_rows(given, schema)
    for position, reason in gathered.failures:
        raise SchemaError(
            f"{place.format(position)} does not fit its schema: {reason}",
            detail=f"{given[position]!r:.200}",
            hint="mend the row, or say the types in schema=",
        )
    return gathered.rows
