"""The reader of parquet files. A damaged file stops the run: its rows cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock.connect.batching import RowRange
from penstock.connect.conversion import cast_batch, schema_difference
from penstock.connect.read_claims import DEFAULT_WAIT
from penstock.connect.readers import files as file_readers
from penstock.connect.readers.files import FilePart, FileReader, InputFormat, Paths, read_error
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
            raise file_readers.schema_error(file, problem) from problem

    def find_mismatch(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Compare columns: declared ones must exist and are cast while reading, others must be equal."""
        if declared:
            names = _read_metadata(file).schema.to_arrow_schema().names
            missing = [name for name in schema.names if name not in names]
            return f'it has no column "{missing[0]}"; its columns are {", ".join(names)}' if missing else None
        own = self.read_schema(file)
        assert own is not None, "a parquet file always has a schema"
        extra = [name for name in own.names if name not in schema.names]
        return schema_difference(own, schema) or (f'it has one more column, "{extra[0]}"' if extra else None)

    def size(self, file: Path) -> int:
        """Return the number of rows."""
        return int(_read_metadata(file).num_rows)

    def parts(self, file: Path, most: int, *, plain: bool = False) -> list[FilePart]:
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
                for batch in opened.iter_batches(_ROWS_AT_A_TIME, row_groups=groups, columns=schema.names):
                    first, last = max(row, part.first), min(row + batch.num_rows, part.last)
                    if first < last:
                        rows = batch.slice(first - row, last - first)
                        yield RowRange.of_good(cast_batch(rows, schema), start + first)
                    row += batch.num_rows
        except SchemaError as problem:
            raise file_readers.schema_error(file, problem) from problem
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

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once; it is
    looked at every `wait`.
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
