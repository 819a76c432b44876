"""The reader of parquet files. A damaged file stops the run: its rows cannot be told apart."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock.connect.batching import RowRange
from penstock.connect.conversion import add_null_columns, cast_batch, schema_difference
from penstock.connect.read_claims import DEFAULT_WAIT
from penstock.connect.readers import files as file_readers
from penstock.connect.readers.files import FileReader
from penstock.connect.readers.input_format import FilePart, InputFormat, read_error, schema_error
from penstock.connect.readers.paths import Paths
from penstock.errors import SchemaError
from penstock.expr.types import canonical_schema
from penstock.frozen import dataclass
from penstock.timing.units import Duration

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_ROWS_AT_A_TIME = 131_072


@dataclass(frozen=True, slots=True)
class ParquetFormat(InputFormat):
    """The parquet format."""

    name: ClassVar[str] = "parquet"
    keeps_raw: ClassVar[bool] = False

    def read_schema(self, file: Path) -> pa.Schema | None:
        """Return the footer's schema in canonical types."""
        try:
            return canonical_schema(_read_metadata(file).schema.to_arrow_schema())
        except SchemaError as problem:
            raise schema_error(file, problem) from problem

    def find_mismatch(
        self, file: Path, schema: pa.Schema, declared: bool, optional: Collection[str] = ()
    ) -> str | None:
        """Compare columns: declared ones are cast while reading, those of the first file must be equal."""
        stored = _read_metadata(file).schema.to_arrow_schema()
        missing = [name for name in schema.names if name not in stored.names and name not in optional]
        if missing or declared:
            names = ", ".join(stored.names)
            return f'it has no column "{missing[0]}"; its columns are {names}' if missing else None
        known = [field for field in stored if field.name in schema.names]  # others may have any type
        try:
            return schema_difference(canonical_schema(pa.schema(known)), schema)
        except SchemaError as problem:
            raise schema_error(file, problem) from problem

    def size(self, file: Path) -> int:
        """Return the number of rows."""
        return int(_read_metadata(file).num_rows)

    def parts(
        self, file: Path, most: int, *, plain: bool = False, begin: int = 0, end: int = sys.maxsize
    ) -> list[FilePart]:
        """Cut the file between row groups; the footer tells their sizes when they are unpacked."""
        footer = _read_metadata(file)
        cuts, n_bytes, n_rows = [0], 0, 0
        for group in map(footer.row_group, range(footer.num_row_groups)):
            if group.num_rows and n_rows > cuts[-1] and n_bytes + group.total_byte_size > most:
                cuts.append(n_rows)
                n_bytes = 0
            n_bytes += group.total_byte_size
            n_rows += group.num_rows
        return [FilePart(str(file), first, last) for first, last in pairwise([*cuts, n_rows])]

    def read_part(self, part: FilePart, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Read only the columns of the schema, and the row groups that have rows of the part."""
        import pyarrow.parquet as pq

        file = Path(part.path)
        try:
            with pq.ParquetFile(file) as opened:
                groups, row = _select_groups(opened.metadata, part)
                stored = opened.schema_arrow.names
                known = pa.schema([field for field in schema if field.name in stored])
                for batch in opened.iter_batches(_ROWS_AT_A_TIME, row_groups=groups, columns=known.names):
                    first, last = max(row, part.first), min(row + batch.num_rows, part.last)
                    if first < last:
                        rows = cast_batch(batch.slice(first - row, last - first), known)
                        if len(known) < len(schema):
                            rows = add_null_columns(rows, schema)
                        yield replace(RowRange.of_good(rows, start + first), place=first)
                    row += batch.num_rows
        except SchemaError as problem:
            raise schema_error(file, problem) from problem
        except (OSError, pa.ArrowException) as problem:
            raise read_error(file, problem) from problem


def parquet(
    path: Paths,
    *,
    schema: object = None,
    batch: int | None = None,
    files: int | None = None,
    follow: bool = False,
    wait: Duration = DEFAULT_WAIT,
) -> FileReader:
    """Read parquet files: a file, a folder, a glob, or a list of these.

    One file is one batch, unless `files=` says how many are, or `batch=` how many rows. With `schema=`, only
    its columns are read.

    With `follow=True` files that appear later are read too, each whole and once; they are looked for every
    `wait`.
    """
    return file_readers.build_file_reader(
        ParquetFormat(), path, schema, batch, files, follow=follow, wait=wait
    )


def _select_groups(footer: pq.FileMetaData, part: FilePart) -> tuple[list[int], int]:
    """Return the row groups with rows of a part, and the number of the first row in them."""
    groups: list[int] = []
    first_row = row = 0
    for number in range(footer.num_row_groups):
        n_rows = footer.row_group(number).num_rows
        if n_rows and row < part.last and part.first < row + n_rows:
            first_row = first_row if groups else row
            groups.append(number)
        row += n_rows
    return groups, first_row


def _read_metadata(file: Path) -> pq.FileMetaData:
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(file)
    except (OSError, pa.ArrowException) as problem:
        raise read_error(file, problem) from problem
