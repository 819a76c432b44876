"""Text files: chunks of whole rows, whatever the file's size; the readers of plain and of JSON lines.

Reads gzip, removes byte order marks and counts line numbers. A chunk ends where a row ends. Where that is
depends on the format (a csv row may span lines), so the format brings its own rule.

In JSON lines, times and dates are ISO 8601 strings, binary is base64, decimals are strings or numbers, and
floats may also be NaN and Infinity, bare or as strings: all that `penstock.write.jsonl` writes. A missing
field is null. A field outside a declared schema is ignored; outside a schema taken from the first file it
makes a bad row, because leaving it out was not asked for. Lines are parsed by Python's json: pyarrow.json
ends the whole process on a line that is just `null`.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.batching import RowRange
from penstock.connect.conversion import (
    ConvertedRows,
    columns_if_exact,
    convert_each,
    infer_schema,
    plain_value,
)
from penstock.connect.protocol import BadRow
from penstock.connect.readers.files import FileReader, Paths, build_file_reader, read_error, schema_error
from penstock.errors import ConnectorError, RowFailure, SchemaError, nearest_first
from penstock.frozen import dataclass

CHUNK_BYTES = 1 << 23
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SCHEMA = pa.schema([("line", pa.string())])
_SPECIAL = ("NaN", "Infinity", "-Infinity")
_Value = TypeVar("_Value")

RowEnd = Callable[[bytes], int]
"""Returns where the last whole row of a text ends; 0 when it holds none."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole rows of a file; `line` is the number of its first line, from 1."""

    text: bytes
    line: int


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Plain lines: one column, "line". A line that is not UTF-8 is a bad row."""

    name: ClassVar[str] = "text"
    keeps_raw: ClassVar[bool] = True

    def read_schema(self, file: Path) -> pa.Schema | None:
        """Return the one column."""
        return _SCHEMA

    def find_mismatch(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Return None: every file has lines."""
        return None

    def read(self, file: Path, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Yield one row per line, blank ones too; an end of line at the end of the file begins no row."""
        return number_rows(read_chunks(file), partial(_parse_lines, place=str(file)), start)


def text(
    path: Paths, *, batch: int | None = None, files: int | None = None, follow: bool = False
) -> FileReader:
    """Read lines of text into the column "line": a file, a folder, a glob, or a list; `.gz` is unpacked.

    One file is one batch, unless `files=` says how many are, or `batch=` how many rows.

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once.
    """
    return build_file_reader(TextFormat(), path, None, batch, files, follow=follow)


def read_chunks(
    file: Path, end_of_rows: RowEnd = lambda text: text.rfind(b"\n") + 1, size: int | None = None
) -> Iterator[Chunk]:
    """Yield the file's text from its beginning, without its byte order mark; by default a row is a line."""
    line = 1
    rest = b""
    for block in _read_blocks(file, size or CHUNK_BYTES):
        text = rest + block
        end = end_of_rows(text)
        if end:
            yield Chunk(text[:end], line)
            line += text.count(b"\n", 0, end)
        rest = text[end:]
    if rest:
        yield Chunk(rest, line)


def number_rows(
    chunks: Iterable[Chunk], parse: Callable[[Chunk, int], RowRange], start: int
) -> Iterator[RowRange]:
    """Yield the rows of each chunk; `parse` is given the number of its first row."""
    for chunk in chunks:
        rows = parse(chunk, start)
        yield rows
        start = rows.end


def show_bytes(raw: bytes) -> str:
    """Return raw input as readable text: what is not UTF-8 is shown as escapes."""
    return raw.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")


def parse_time(text: str) -> datetime:
    """Parse a moment; digits beyond microseconds are cut off, which rounds it down."""
    return _parse(text, datetime.fromisoformat, "an ISO 8601 time such as 2026-01-31T12:00:00Z")


def _parse(text: str, parse: Callable[[str], _Value], form: str) -> _Value:
    try:
        return parse(text)
    except (ValueError, InvalidOperation):
        raise RowFailure(f"{text!r:.80} is not {form}") from None


def _read_blocks(file: Path, size: int) -> Iterator[bytes]:
    try:
        with _open(file) as stream:
            first = stream.read(size)
            if first.startswith(_UTF16_MARKS):
                raise ConnectorError(
                    f'"{file}" is UTF-16, and text is read as UTF-8',
                    hint=f"convert it first: iconv -f UTF-16 -t UTF-8 {file.name}",
                )
            yield first.removeprefix(_UTF8_MARK)
            while block := stream.read(size):
                yield block
    except (OSError, EOFError, zlib.error) as problem:
        raise read_error(file, problem) from problem


def _open(file: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb")


def _parse_lines(chunk: Chunk, start: int, place: str) -> RowRange:
    lines = chunk.text.removesuffix(b"\n").split(b"\n")
    good: list[str] = []
    numbers: list[int] = []
    bad: list[tuple[int, BadRow]] = []
    for at, line in enumerate(lines):
        try:
            good.append(line.removesuffix(b"\r").decode())
            numbers.append(start + at)
        except UnicodeDecodeError as problem:
            reason = f"byte {problem.start + 1} of the line is not UTF-8"
            bad.append((start + at, BadRow(show_bytes(line), reason, f"{place}:{chunk.line + at}")))
    rows = pa.RecordBatch.from_arrays([pa.array(good, pa.string())], schema=_SCHEMA)
    return RowRange(rows, np.array(numbers, np.int64), tuple(bad), start, start + len(lines))


@dataclass(frozen=True, slots=True)
class JsonlFormat:
    """JSON lines."""

    name: ClassVar[str] = "jsonl"
    keeps_raw: ClassVar[bool] = True

    def read_schema(self, file: Path) -> pa.Schema | None:
        """Return the schema of all values in the file's first 8 MiB; None without a row."""
        first = next(read_chunks(file), None)
        if first is None:
            return None
        rows = []
        for _, raw in _nonblank_lines(first):
            try:
                rows.append(_parse_object(raw))
            except RowFailure:
                continue  # reading it again will make it a bad row
        try:
            return infer_schema(rows) if rows else None
        except SchemaError as problem:
            raise schema_error(file, problem) from problem

    def find_mismatch(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Return None: fields are checked row by row."""
        return None

    def read(self, file: Path, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Yield one row per line that is not blank."""
        parse = partial(parse_json_rows, place=str(file), schema=schema, declared=declared)
        return number_rows(read_chunks(file), parse, start)


def jsonl(
    path: Paths,
    *,
    schema: object = None,
    batch: int | None = None,
    files: int | None = None,
    follow: bool = False,
) -> FileReader:
    """Read JSON lines: a file, a folder, a glob, or a list of these; `.gz` is unpacked.

    One file is one batch, unless `files=` says how many are, or `batch=` how many rows. Lines that are not a
    row of the schema are bad rows, with their text and `file:line`.

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once.
    """
    return build_file_reader(JsonlFormat(), path, schema, batch, files, follow=follow)


def parse_json_rows(chunk: Chunk, start: int, place: str, schema: pa.Schema, declared: bool) -> RowRange:
    """Return the rows of whole lines, from row number `start` on; `place` is where the lines are from."""
    lines = list(_nonblank_lines(chunk))
    converted = _convert_lines([raw for _, raw in lines], schema, declared)
    bad = [
        BadRow(show_bytes(lines[at][1]), reason, f"{place}:{lines[at][0]}")
        for at, reason in converted.failures
    ]
    return RowRange.of_converted(converted, bad, start)


def _nonblank_lines(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers."""
    for number, raw in enumerate(chunk.text.split(b"\n"), start=chunk.line):
        if raw.strip():
            yield number, raw


def _parse_object(raw: bytes, exact: bool = False) -> dict[str, object]:
    try:
        parsed = json.loads(raw.decode(), parse_float=Decimal if exact else None)
    except UnicodeDecodeError as problem:
        raise RowFailure(f"byte {problem.start + 1} of the line is not UTF-8") from None
    except (ValueError, RecursionError) as problem:
        raise RowFailure(f"malformed JSON: {problem}") from None
    if not isinstance(parsed, dict):
        raise RowFailure(f"it is {show_bytes(raw):.80}, not a JSON object")
    return parsed


def _convert_lines(raw: list[bytes], schema: pa.Schema, declared: bool) -> ConvertedRows:
    """Convert all lines at once if their values have their columns' very types, else one by one."""
    exact = any(_holds_decimal(field.type) for field in schema)
    try:
        objects = [_parse_object(line, exact) for line in raw]
        if declared or set().union(*objects) <= set(schema.names):
            columns = columns_if_exact(objects, schema)
            if columns is not None:
                return ConvertedRows(columns, list(range(len(raw))), [])
    except RowFailure:
        pass  # some line is bad: find it
    return convert_each(
        raw, schema, lambda line, schema: _plain_values(_parse_object(line, exact), schema, declared)
    )


def _plain_values(fields: dict[str, object], schema: pa.Schema, declared: bool) -> list[object]:
    if not declared:
        for name in fields:
            if name not in schema.names:
                known = ", ".join(nearest_first(name, schema.names))
                raise RowFailure(f"field {name!r} is not in the first file's schema; its columns are {known}")
    return [plain_value(fields.get(field.name), field, _decode) for field in schema]


def _decode(value: object, type: pa.DataType) -> object:
    """Return a JSON value as the Python value that the type takes; one without a rule stays unchanged."""
    if isinstance(value, str):
        for test, decode in _FROM_TEXT:
            if test(type):
                return decode(value)
    if isinstance(value, Decimal) and kind.is_floating(type):
        return float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and kind.is_decimal(type):
        return _decimal(str(value))
    if kind.is_list(type) and isinstance(value, list):
        return [_decode(item, type.value_type) for item in value]
    if kind.is_struct(type) and isinstance(value, dict):
        return {field.name: _decode(value.get(field.name), field.type) for field in type}
    return value


def _decimal(text: str) -> Decimal:
    return _parse(text, Decimal, "a decimal number")


def _float(text: str) -> float:
    if text not in _SPECIAL:
        raise RowFailure(f"{text!r:.80} is a string, not a number")
    return float(text)


_FROM_TEXT: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], object]], ...] = (
    (kind.is_timestamp, parse_time),
    (
        kind.is_date32,
        lambda text: _parse(text, date.fromisoformat, "an ISO 8601 date such as 2026-01-31"),
    ),
    (kind.is_binary, lambda text: _parse(text, partial(b64decode, validate=True), "base64")),
    (kind.is_decimal, _decimal),
    (kind.is_floating, _float),
)


def _holds_decimal(type: pa.DataType) -> bool:
    if kind.is_list(type):
        return _holds_decimal(type.value_type)
    if kind.is_struct(type):
        return any(_holds_decimal(field.type) for field in type)
    return bool(kind.is_decimal(type))
