"""The writer of parquet files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.connect.writers.folder import FolderWriter, StagedFile, build_folder_writer
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """The parquet format, as Arrow writes it; every type of a row fits."""

    name: ClassVar[str] = "parquet"

    def check(self, schema: pa.Schema) -> None:
        """Accepts all schemas."""

    def create(self, file: Path, schema: pa.Schema) -> StagedFile:
        """Creates the file; each batch of rows makes a row group."""
        import pyarrow.parquet as pq

        writer: StagedFile = pq.ParquetWriter(file, schema)
        return writer


def parquet(path: str | PathLike[str], *, overwrite: bool = False) -> FolderWriter:
    """Write parquet files into a folder, one per batch that has rows, exactly once.

    A folder with an earlier run's output is refused, unless `overwrite=True` starts it over.
    """
    return build_folder_writer(ParquetFormat(), path, overwrite)
