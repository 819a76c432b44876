"""The writer of files with one JSON object per line.

Times are ISO 8601 in UTC (`2026-01-31T12:00:00.000000Z`, also where the column has no zone, because that is
read as UTC), dates `2026-01-31`, binary is base64, decimals are strings so that no reader rounds them. JSON
has no NaN or infinity: they are the strings "NaN", "Infinity" and "-Infinity". Nulls are written as null.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.writers.folder import FolderWriter, build_folder_writer
from penstock.connect.writers.text import StagedTextFile, format_times
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class JsonlFormat:
    """JSON lines; every type of a row has a form."""

    name: ClassVar[str] = "jsonl"

    def check(self, schema: pa.Schema) -> None:
        """Accepts all schemas."""

    def create(self, file: Path, schema: pa.Schema) -> StagedTextFile:
        """Creates the file."""
        return StagedTextFile(file, b"", encode)


def jsonl(path: str | PathLike[str], *, overwrite: bool = False) -> FolderWriter:
    """Write JSON lines into a folder, one file per batch that has rows, exactly once.

    A folder with an earlier run's output is refused, unless `overwrite=True` starts it over.
    """
    return build_folder_writer(JsonlFormat(), path, overwrite)


def encode(rows: pa.RecordBatch) -> bytes:
    """Returns the rows as JSON lines."""
    names = rows.schema.names
    columns = [_json_values(array, name) for array, name in zip(rows.columns, names, strict=True)]
    write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    lines = [write(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]
    return ("\n".join(lines) + "\n").encode()


def _json_values(array: pa.Array, name: str) -> list[object]:
    """Returns a column as values that JSON has."""
    if kind.is_list(array.type):
        return _json_lists(array, name)
    if kind.is_struct(array.type):
        return _json_structs(array, name)
    if kind.is_timestamp(array.type) or kind.is_date32(array.type):
        suffix = "Z" if kind.is_timestamp(array.type) else ""
        return [None if text is None else text + suffix for text in format_times(array, name).to_pylist()]
    convert = next((convert for test, convert in _CONVERSIONS if test(array.type)), None)
    values: list[object] = array.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _json_lists(array: pa.Array, name: str) -> list[object]:
    items = _json_values(array.flatten(), name)
    lists: list[object] = []
    start = 0
    for length in array.value_lengths().to_pylist():
        lists.append(None if length is None else items[start : start + length])
        start += length or 0
    return lists


def _json_structs(array: pa.Array, name: str) -> list[object]:
    names = [field.name for field in array.type]
    columns = [
        _json_values(inner, f"{name}.{field}") for inner, field in zip(array.flatten(), names, strict=True)
    ]
    valid = array.is_valid().to_pylist()
    return [
        dict(zip(names, (column[i] for column in columns), strict=True)) if present else None
        for i, present in enumerate(valid)
    ]


def _float(value: float) -> object:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., object]], ...] = (
    (kind.is_floating, _float),
    (kind.is_binary, lambda value: b64encode(value).decode()),
    (kind.is_decimal, str),
)
