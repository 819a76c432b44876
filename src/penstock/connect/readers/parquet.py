"""The reader of parquet files. A damaged file stops the run: its rows cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.connect.batching import RowRange
from penstock.connect.conversion import cast_batch, schema_difference
from penstock.connect.readers.files import FileReader, Paths, build_file_reader, read_error, schema_error
from penstock.errors import SchemaError
from penstock.expr.types import canonical_schema
from penstock.frozen import dataclass

_ROWS_AT_A_TIME = 131_072


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """The parquet format."""

    name: ClassVar[str] = "parquet"
    keeps_raw: ClassVar[bool] = False

    def read_schema(self, file: Path) -> pa.Schema | None:
        """Return the footer's schema in canonical types."""
        try:
            return canonical_schema(_read_footer(file))
        except SchemaError as problem:
            raise schema_error(file, problem) from problem

    def find_mismatch(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Compare columns: declared ones must exist and are cast while reading, others must be equal."""
        if declared:
            names = _read_footer(file).names
            missing = [name for name in schema.names if name not in names]
            return f'it has no column "{missing[0]}"; its columns are {", ".join(names)}' if missing else None
        own = self.read_schema(file)
        assert own is not None, "a parquet file always has a schema"
        extra = [name for name in own.names if name not in schema.names]
        return schema_difference(own, schema) or (f'it has one more column, "{extra[0]}"' if extra else None)

    def read(self, file: Path, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Read only the columns of the schema from disk."""
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(_ROWS_AT_A_TIME, columns=schema.names):
                    yield RowRange.of_good(cast_batch(batch, schema), start)
                    start += batch.num_rows
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
) -> FileReader:
    """Read parquet files: a file, a folder, a glob, or a list of these.

    One file is one batch, unless `files=` says how many are, or `batch=` how many rows. With `schema=`, only
    its columns are read.

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once.
    """
    return build_file_reader(ParquetFormat(), path, schema, batch, files, follow=follow)


def _read_footer(file: Path) -> pa.Schema:
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(file)
    except (OSError, pa.ArrowException) as problem:
        raise read_error(file, problem) from problem
