"""The writer of csv files.

Nulls are empty; strings are quoted where they must be, and an empty one always, to tell it from null. Times
are ISO 8601, with `Z` if the column has a zone. NaN is `nan`. What is written reads back the same.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.writers.folder import FolderWriter, build_folder_writer
from penstock.connect.writers.text import StagedTextFile, format_times
from penstock.errors import SchemaError
from penstock.expr import compute as pc
from penstock.frozen import dataclass

_NEEDS_QUOTES = r'[",\r\n]|^$|^\x{FEFF}'


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma-separated values with a header line."""

    name: ClassVar[str] = "csv"

    def check(self, schema: pa.Schema) -> None:
        """Raises SchemaError for lists, structs and bytes, which have no csv form."""
        for field in schema:
            if kind.is_nested(field.type) or kind.is_binary(field.type):
                raise SchemaError(
                    f'csv cannot hold column "{field.name}" of type {field.type}',
                    hint="write jsonl or parquet, or select the other columns",
                )

    def create(self, file: Path, schema: pa.Schema) -> StagedTextFile:
        """Creates the file with its header."""
        header = ",".join(_quote(pa.array(schema.names)).to_pylist())
        return StagedTextFile(file, f"{header}\n".encode(), encode)


def csv(path: str | PathLike[str], *, overwrite: bool = False) -> FolderWriter:
    """Write csv files with a header into a folder, one per batch that has rows, exactly once.

    A folder with an earlier run's output is refused, unless `overwrite=True` starts it over.
    """
    return build_folder_writer(CsvFormat(), path, overwrite)


def encode(rows: pa.RecordBatch) -> bytes:
    """Returns the rows as csv lines."""
    columns = [_to_text(array, name) for array, name in zip(rows.columns, rows.schema.names, strict=True)]
    lines = pc.binary_join_element_wise(*columns, pa.scalar(",", pa.large_string()))
    return ("\n".join(lines.to_pylist()) + "\n").encode()


def _to_text(array: pa.Array, name: str) -> pa.Array:
    if kind.is_string(array.type):
        text = _quote(array)
    elif kind.is_timestamp(array.type):
        text = format_times(array, name)
        text = pc.binary_join_element_wise(text, "Z", "") if array.type.tz else text
    elif kind.is_date32(array.type):
        text = format_times(array, name)
    else:
        text = array.cast(pa.string())
    return pc.fill_null(text, "").cast(pa.large_string())


def _quote(array: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(array, '"', '""')
    return pc.if_else(
        pc.match_substring_regex(array, _NEEDS_QUOTES),
        pc.binary_join_element_wise('"', doubled, '"', ""),
        array,
    )
