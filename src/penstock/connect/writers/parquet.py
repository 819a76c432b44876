"""The writer of parquet files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.connect.writers.folder import FolderWriter, build_folder_writer
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """The parquet format, as Arrow writes it; every type of a row fits."""

    name: ClassVar[str] = "parquet"

    def check(self, schema: pa.Schema) -> None:
        """Accepts all schemas."""

    def create(self, file: Path, schema: pa.Schema) -> StagedParquetFile:
        """Creates the file."""
        return StagedParquetFile(file, schema)


class StagedParquetFile:
    """A parquet file being written; each call of `add` makes a row group."""

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(file, schema)

    def add(self, rows: pa.RecordBatch) -> None:
        """Appends rows."""
        self._writer.write_batch(rows)

    def finish(self) -> None:
        """Writes the footer."""
        self._writer.close()


def parquet(path: str | PathLike[str], *, overwrite: bool = False) -> FolderWriter:
    """Write parquet files into a folder, one per batch that has rows, exactly once.

    A folder with an earlier run's output is refused, unless `overwrite=True` starts it over.
    """
    return build_folder_writer(ParquetFormat(), path, overwrite)
