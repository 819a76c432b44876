"""Text files as chunks of whole lines, whatever their size: gzip, byte order marks and line numbers.

A chunk ends where a row ends. Where that is depends on the format (a csv row may span lines), so the format
brings its own rule.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.connect.readers.files import unreadable
from penstock.errors import ConnectorError
from penstock.frozen import dataclass

CHUNK_BYTES = 1 << 23
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

RowEnd = Callable[[bytes], int]
"""Where the last whole row of some text ends; 0 when it holds none."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole rows of a file; `line` is the number of its first line, from 1."""

    text: bytes
    line: int


def last_newline(text: bytes) -> int:
    """The rule of formats with one row per line."""
    return text.rfind(b"\n") + 1


def chunks(file: Path, row_end: RowEnd = last_newline, size: int | None = None) -> Iterator[Chunk]:
    """The file's text from its beginning, without its byte order mark."""
    line = 1
    rest = b""
    for block in _blocks(file, size or CHUNK_BYTES):
        text = rest + block
        end = row_end(text)
        if end:
            yield Chunk(text[:end], line)
            line += text.count(b"\n", 0, end)
        rest = text[end:]
    if rest:
        yield Chunk(rest, line)


def as_text(raw: bytes) -> str:
    """Raw input for a person to read: what is not UTF-8 is shown as escapes."""
    return raw.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")


def _blocks(file: Path, size: int) -> Iterator[bytes]:
    try:
        with _opened(file) as stream:
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
        raise unreadable(file, problem) from problem


def _opened(file: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb")
