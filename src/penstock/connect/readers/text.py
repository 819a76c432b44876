"""The readers of plain lines and of JSON lines.

In JSON lines, times and dates are ISO 8601 strings, binary is base64, decimals are strings or numbers, and
floats may also be NaN and Infinity, bare or as strings: all that `penstock.write.jsonl` writes. A missing
field is null, and a field outside the schema is ignored. Lines are parsed by Python's json: pyarrow.json
ends the whole process on a line that is just `null`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.connect import conversion
from penstock.connect.batching import RowRange
from penstock.connect.protocol import BadRow
from penstock.connect.read_claims import DEFAULT_WAIT
from penstock.connect.readers.chunks import Chunk, ParseRows, TextBasedFormat, show_bytes
from penstock.connect.readers.files import FileReader, build_file_reader
from penstock.connect.readers.input_format import schema_error
from penstock.connect.readers.paths import Paths
from penstock.errors import RowFailure, SchemaError
from penstock.expr.values import from_list
from penstock.frozen import dataclass
from penstock.timing.units import Duration

_SCHEMA = pa.schema([("line", pa.string())])
_MAX_OBJECT_BYTES = 1 << 24
"""A last line that is longer waits for its end."""
_SPECIAL = ("NaN", "Infinity", "-Infinity")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class TextFormat(TextBasedFormat):
    """Plain lines: one column, "line". A line that is not UTF-8 is a bad row.

    Blank lines are rows too; an end of line at the end of the file begins none.
    """

    name: ClassVar[str] = "text"

    def read_schema(self, file: Path) -> pa.Schema | None:
        """Return the one column."""
        return _SCHEMA

    def build_parser(self, place: str, schema: pa.Schema, declared: bool) -> ParseRows:
        """Return what makes each line a row."""

        def parse(chunk: Chunk, start: int) -> RowRange:
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
                    bad.append((start + at, BadRow(show_bytes(line), reason, chunk.locate(place, at))))
            rows = pa.RecordBatch.from_arrays([from_list(good, pa.string())], schema=_SCHEMA)
            return RowRange(rows, np.array(numbers, np.int64), tuple(bad), start, start + len(lines))

        return parse


def text(
    path: Paths,
    *,
    batch: int | None = None,
    files: int | None = None,
    follow: bool = False,
    wait: Duration = DEFAULT_WAIT,
    quiet: Duration | None = None,
) -> FileReader:
    """Read lines of text into the column "line": a file, a folder, a glob, or a list; `.gz` is unpacked.

    One file is one batch, unless `files=` says how many are, or `batch=` how many rows.

    With `follow=True` files that appear later are read too, and lines that are put behind others, also when a
    log is rotated; what is new is looked for every `wait`. A last line without its end waits for that, for
    ever, until nobody has written to the file for as long as `quiet=` says, or until `stop(drain=True)`.
    """
    return build_file_reader(TextFormat(), path, None, batch, files, follow=follow, wait=wait, quiet=quiet)


def parse_time(text: str) -> datetime:
    """Parse a moment; digits beyond microseconds are cut off, which rounds it down."""
    return _parse(text, datetime.fromisoformat, "an ISO 8601 time such as 2026-01-31T12:00:00Z")


def _parse(text: str, parse: Callable[[str], _Value], form: str) -> _Value:
    try:
        return parse(text)
    except (ValueError, InvalidOperation):
        raise RowFailure(f"{text!r:.80} is not {form}") from None


@dataclass(frozen=True, slots=True)
class JsonlFormat(TextBasedFormat):
    """JSON lines; a line that is blank is no row."""

    name: ClassVar[str] = "jsonl"

    def read_schema(self, file: Path) -> pa.Schema | None:
        """Return the schema of all values in the file's first 8 MiB; None without a row."""
        first = next(self.read_chunks(file), None)
        if first is None:
            return None
        rows = []
        for _, raw in _nonblank_lines(first):
            try:
                rows.append(_parse_object(raw))
            except RowFailure:
                continue  # reading it again will make it a bad row
        try:
            return conversion.infer_schema(rows, _SPECIAL) if rows else None
        except SchemaError as problem:
            raise schema_error(file, problem) from problem

    def end_of_whole_rows(self, file: Path, first: int, last: int) -> int:
        """Return where the last whole row ends; an object that is whole needs no end of its line."""
        end = TextBasedFormat.end_of_whole_rows(self, file, first, last)
        if last - end <= _MAX_OBJECT_BYTES:
            with file.open("rb") as stream:
                stream.seek(end)
                if holds_object(stream.read(last - end)):
                    return last
        return end

    def build_parser(self, place: str, schema: pa.Schema, declared: bool) -> ParseRows:
        """Return what parses one object per line."""

        def parse(chunk: Chunk, start: int) -> RowRange:
            lines = list(_nonblank_lines(chunk))
            converted = _convert_lines([raw for _, raw in lines], schema)
            bad = [
                BadRow(show_bytes(lines[at][1]), reason, chunk.locate(place, lines[at][0]))
                for at, reason in converted.failures
            ]
            return RowRange.of_converted(converted, bad, start)

        return parse


def jsonl(
    path: Paths,
    *,
    schema: object = None,
    batch: int | None = None,
    files: int | None = None,
    follow: bool = False,
    wait: Duration = DEFAULT_WAIT,
    quiet: Duration | None = None,
) -> FileReader:
    """Read JSON lines: a file, a folder, a glob, or a list of these; `.gz` is unpacked.

    One file is one batch, unless `files=` says how many are, or `batch=` how many rows. Lines that are not a
    row of the schema are bad rows, with their text and `file:line`.

    With `follow=True` files that appear later are read too, and lines that are put behind others, also when a
    log is rotated; what is new is looked for every `wait`. A last line without its end waits for that, for
    ever, until nobody has written to the file for as long as `quiet=` says, or until `stop(drain=True)`.
    """
    return build_file_reader(JsonlFormat(), path, schema, batch, files, follow=follow, wait=wait, quiet=quiet)


def _nonblank_lines(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with the number of lines before them."""
    for n_before, raw in enumerate(chunk.text.split(b"\n")):
        if raw.strip():
            yield n_before, raw


def holds_object(raw: bytes) -> bool:
    """Return whether a text is one whole JSON object, which no piece of one is."""
    try:
        _parse_object(raw)
    except RowFailure:
        return False
    return True


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


def _convert_lines(raw: list[bytes], schema: pa.Schema) -> conversion.ConvertedRows:
    """Convert all lines at once if their values have their columns' very types, else one by one."""
    exact = any(_holds_decimal(field.type) for field in schema)
    try:
        objects = [_parse_object(line, exact) for line in raw]
        columns = conversion.columns_if_exact(objects, schema)
        if columns is not None:
            return conversion.ConvertedRows(columns, list(range(len(raw))), [])
    except RowFailure:
        pass  # some line is bad: find it

    def convert(line: bytes, schema: pa.Schema) -> list[object]:
        fields = _parse_object(line, exact)
        return [conversion.plain_value(fields.get(field.name), field, _decode) for field in schema]

    return conversion.convert_each(raw, schema, convert)


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
