"""Text files: chunks of whole rows, whatever the file's size, and the reader of plain lines.

Reads gzip, removes byte order marks and counts line numbers. A chunk ends where a row ends. Where that is
depends on the format (a csv row may span lines), so the format brings its own rule. Times and dates in csv
and jsonl are ISO 8601.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.connect.batching import RowRange
from penstock.connect.protocol import BadRow
from penstock.connect.readers.directory_watcher import DirectoryWatcher, build_reader
from penstock.connect.readers.files import FileReader, Paths, read_error
from penstock.errors import ConnectorError, RowFailure
from penstock.frozen import dataclass

CHUNK_BYTES = 1 << 23
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SCHEMA = pa.schema([("line", pa.string())])

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
        """Returns the one column."""
        return _SCHEMA

    def find_mismatch(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Returns None: every file has lines."""
        return None

    def read(self, file: Path, schema: pa.Schema, declared: bool) -> Iterator[RowRange]:
        """Yields one row per line, blank ones too; an end of line at the end of the file begins no row."""
        start = 0
        for chunk in read_chunks(file):
            rows = _parse_rows(file, chunk, start)
            start = rows.end
            yield rows


def text(
    path: Paths, *, batch: int | None = None, files: int | None = None, follow: bool = False
) -> FileReader | DirectoryWatcher:
    """Read lines of text into the column "line": a file, a folder, a glob, or a list; `.gz` is unpacked.

    One file is one batch, unless `files=` says how many are, or `batch=` how many rows.

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once.
    """
    return build_reader(TextFormat(), path, None, batch, files, follow=follow)


def read_chunks(
    file: Path, end_of_rows: RowEnd = lambda text: text.rfind(b"\n") + 1, size: int | None = None
) -> Iterator[Chunk]:
    """Yields the file's text from its beginning, without its byte order mark; by default a row is a line."""
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


def show_bytes(raw: bytes) -> str:
    """Returns raw input as readable text: what is not UTF-8 is shown as escapes."""
    return raw.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")


def parse_time(text: str) -> datetime:
    """Parses a moment; digits beyond microseconds are cut off, which rounds it down."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise RowFailure(f"{text!r:.80} is not an ISO 8601 time such as 2026-01-31T12:00:00Z") from None


def parse_date(text: str) -> date:
    """Parses a day."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise RowFailure(f"{text!r:.80} is not an ISO 8601 date such as 2026-01-31") from None


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


def _parse_rows(file: Path, chunk: Chunk, start: int) -> RowRange:
    lines = chunk.text.removesuffix(b"\n").split(b"\n")
    good: list[str] = []
    numbers: list[int] = []
    bad: list[tuple[int, BadRow]] = []
    for at, line in enumerate(lines):
        try:
            good.append(line.removesuffix(b"\r").decode())
            numbers.append(start + at)
        except UnicodeDecodeError as problem:
            place = f"{file}:{chunk.line + at}"
            reason = f"byte {problem.start + 1} of the line is not UTF-8"
            bad.append((start + at, BadRow(show_bytes(line), reason, place)))
    rows = pa.RecordBatch.from_arrays([pa.array(good, pa.string())], schema=_SCHEMA)
    return RowRange(rows, np.array(numbers, np.int64), tuple(bad), start, start + len(lines))
