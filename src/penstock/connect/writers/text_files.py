"""The writers of csv files and of files with one JSON object per line. What they write reads back the same.

Csv: nulls are empty; strings are quoted where they must be, and an empty one always, to tell it from null.
Times are ISO 8601, with `Z` if the column has a zone. NaN is `nan`.

JSON lines: times are ISO 8601 in UTC (`2026-01-31T12:00:00.000000Z`, also where the column has no zone,
because that is read as UTC), dates `2026-01-31`, binary is base64, decimals are strings so that no reader
rounds them. JSON has no NaN or infinity: they are the strings "NaN", "Infinity" and "-Infinity". Nulls are
written as null.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, repeat
from os import PathLike
from pathlib import Path

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.conversion import format_times
from penstock.connect.writers.folder import FolderWriter, build_folder_writer
from penstock.connect.writers.staged_files import MAX_ROWS_PER_FILE, OutputFormat
from penstock.errors import SchemaError
from penstock.expr import compute as pc

_NEEDS_QUOTES = r'[",\r\n]|^$|^\x{FEFF}'


def csv(
    path: str | PathLike[str],
    *,
    overwrite: bool = False,
    partition_by: str | Sequence[str] | None = None,
    max_rows_per_file: int | None = MAX_ROWS_PER_FILE,
) -> FolderWriter:
    """Write csv files with a header into a folder, for each batch that has rows, exactly once.

    A folder with an earlier run's output is refused, unless `overwrite=True` starts it over. The other
    options are those of `parquet`.
    """
    csv_format = OutputFormat("csv", partial(TextEncoder, encode_csv, has_header=True), check_csv_columns)
    return build_folder_writer(csv_format, path, overwrite, partition_by, max_rows_per_file)


def jsonl(
    path: str | PathLike[str],
    *,
    overwrite: bool = False,
    partition_by: str | Sequence[str] | None = None,
    max_rows_per_file: int | None = MAX_ROWS_PER_FILE,
) -> FolderWriter:
    """Write files of JSON lines into a folder, for each batch that has rows, exactly once.

    A folder with an earlier run's output is refused, unless `overwrite=True` starts it over. The other
    options are those of `parquet`.
    """
    json_format = OutputFormat("jsonl", partial(TextEncoder, encode_jsonl))
    return build_folder_writer(json_format, path, overwrite, partition_by, max_rows_per_file)


def check_csv_columns(schema: pa.Schema) -> None:
    """Raise SchemaError for lists, structs and bytes, which have no csv form."""
    for field in schema:
        if kind.is_nested(field.type) or kind.is_binary(field.type):
            raise SchemaError(
                f'csv cannot hold column "{field.name}" of type {field.type}',
                hint="write jsonl or parquet, or select the other columns",
            )


class TextEncoder:
    """Writes a text file; `encode` turns rows into whole lines. A header has the names, as csv."""

    def __init__(
        self,
        encode: Callable[[pa.RecordBatch], bytes],
        file: Path,
        schema: pa.Schema,
        *,
        has_header: bool = False,
    ) -> None:
        self._stream, self._encode = file.open("wb"), encode
        if has_header:
            self._stream.write((",".join(_quote(pa.array(schema.names)).to_pylist()) + "\n").encode())

    def write_batch(self, rows: pa.RecordBatch) -> None:
        """Append rows."""
        self._stream.write(self._encode(rows))

    def close(self) -> None:
        """Write what is buffered, and close the file."""
        self._stream.close()


def encode_csv(rows: pa.RecordBatch) -> bytes:
    """Return the rows as csv lines."""
    columns = [_csv_text(array, name) for array, name in zip(rows.columns, rows.schema.names, strict=True)]
    lines = pc.binary_join_element_wise(*columns, pa.scalar(",", pa.large_string()))
    return ("\n".join(lines.to_pylist()) + "\n").encode()


def _csv_text(array: pa.Array, name: str) -> pa.Array:
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


def encode_jsonl(rows: pa.RecordBatch) -> bytes:
    """Return the rows as JSON lines."""
    names = rows.schema.names
    columns = [_json_values(array, name) for array, name in zip(rows.columns, names, strict=True)]
    write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    lines = [write(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]
    return ("\n".join(lines) + "\n").encode()


def _json_values(array: pa.Array, name: str) -> list[object]:
    """Return a column as values that JSON has."""
    if kind.is_list(array.type):
        items = iter(_json_values(array.flatten(), name))
        lengths = array.value_lengths().to_pylist()
        return [None if length is None else list(islice(items, length)) for length in lengths]
    if kind.is_struct(array.type):
        names = [field.name for field in array.type]
        parts = zip(array.flatten(), names, strict=True)
        columns = [_json_values(inner, f"{name}.{field}") for inner, field in parts]
        rows = zip(*columns, strict=True) if columns else repeat((), len(array))
        return [
            dict(zip(names, row, strict=True)) if present else None
            for row, present in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    if kind.is_timestamp(array.type) or kind.is_date32(array.type):
        suffix = "Z" if kind.is_timestamp(array.type) else ""
        return [None if text is None else text + suffix for text in format_times(array, name).to_pylist()]
    convert = next((convert for test, convert in _CONVERSIONS if test(array.type)), None)
    values: list[object] = array.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _json_float(value: float) -> object:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., object]], ...] = (
    (kind.is_floating, _json_float),
    (kind.is_binary, lambda value: b64encode(value).decode()),
    (kind.is_decimal, str),
)
