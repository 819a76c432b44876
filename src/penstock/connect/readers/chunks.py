"""Text files in chunks of whole rows, whatever their size, from their beginning or from any byte on.

Reads gzip, removes byte order marks and counts lines. A chunk ends where a row ends. Where that is depends on
the format (a csv row may span lines), so the format brings its own rule.

A file may be cut between any two bytes: a row belongs to the part in which its first byte lies. So a part is
read from the first row that begins in it up to the first that begins after it; the byte before a cut tells
whether a row begins right there. A byte order mark belongs to the first row.

How many lines come before a part is not known. They are counted when somebody asks where a row is, which
happens for bad rows only.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.connect.batching import RowRange
from penstock.connect.readers.input_format import FilePart, InputFormat, read_error
from penstock.errors import ConnectorError
from penstock.frozen import Frozen

CHUNK_BYTES = 1 << 23
_SEARCH_BYTES = 1 << 16
"""Read at a time to find where a row ends: most rows are much shorter than a chunk."""
_GZIP_RATIO = 1100
"""More than a byte of gzip can unpack to, which is 1,032."""
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

ParseRows = Callable[["Chunk", int], RowRange]
"""Returns the rows of a chunk, given the number of its first row."""
_Stream = gzip.GzipFile | io.BufferedReader


class Chunk(Frozen):
    """Whole rows of a text.

    line           the number of its first line, where the first line that was read has 1
    first          the place of its first byte in its file
    count_skipped  returns how many lines come before the first one that was read
    """

    text: bytes
    line: int
    first: int = 0
    count_skipped: Callable[[], int] = lambda: 0

    def locate(self, place: str, n_lines: int) -> str:
        """Return `place:line` of a row after `n_lines` lines of the chunk."""
        return f"{place}:{self.count_skipped() + self.line + n_lines}"


class TextBasedFormat(InputFormat):
    """What formats of text share: a row has at least one byte, and files are cut between any two bytes.

    row_end     the pattern of the end of a row, where no quoted value spans lines
    has_quotes  whether a quoted value may span lines, so that only a row without quotes ends with its line
    """

    __slots__ = ()
    has_quotes: ClassVar[bool] = False
    row_end: ClassVar[re.Pattern[bytes]] = re.compile(rb"\n")

    @abstractmethod
    def build_parser(self, place: str, schema: pa.Schema, declared: bool) -> ParseRows:
        """Return what parses the rows of chunks from a place."""

    def end_of_rows(self, text: bytes) -> int:
        """Return where the last whole row of a text ends; 0 when it holds none."""
        return text.rfind(b"\n") + 1

    def size(self, file: Path) -> int:
        """Return the number of bytes; of gzip, a number that its text does not exceed."""
        try:
            n_bytes = file.stat().st_size
        except OSError as problem:
            raise read_error(file, problem) from problem
        return n_bytes * _GZIP_RATIO if is_gzip(file) else n_bytes

    def grows(self, file: Path) -> bool:
        """Return whether rows may be put behind those of the file: not if it is packed."""
        return not is_gzip(file)

    def end_of_whole_rows(self, file: Path, first: int, last: int) -> int:
        """Return where the last whole row ends, before which there is no other look at the text."""
        with _open(file) as stream:
            end = last
            while end > first:
                begin = max(first, end - _SEARCH_BYTES)
                stream.seek(begin)
                if at := self.end_of_rows(stream.read(end - begin)):
                    return begin + at
                end = begin
        return first

    def parts(
        self, file: Path, most: int, *, plain: bool = False, begin: int = 0, end: int = sys.maxsize
    ) -> list[FilePart]:
        """Cut the file into equal ranges of at most `most` bytes; gzip, and rows with quotes, stay whole."""
        n_bytes = min(end, self.size(file)) - begin
        stays_whole = is_gzip(file) or (self.has_quotes and not plain)
        n_parts = 1 if stays_whole else max(1, -(-n_bytes // max(1, most)))
        cuts = [begin + n_bytes * n // n_parts for n in range(n_parts + 1)]
        return [FilePart(str(file), first, last, begin, end) for first, last in pairwise(cuts)]

    def needs_scan(self, file: Path, most: int = 0) -> bool:
        """Return whether the file is larger than `most` and may hold quotes; gzip stays whole anyway."""
        return self.has_quotes and not is_gzip(file) and self.size(file) > most

    def read_part(self, part: FilePart, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Yield the rows that begin in a range of bytes."""
        chunks = self.read_chunks(Path(part.path), part.first, part.last, begin=part.begin, end=part.end)
        return number_rows(chunks, self.build_parser(part.path, schema, declared), start + part.first)

    def read_chunks(
        self,
        file: Path,
        first: int = 0,
        last: int | None = None,
        *,
        size: int | None = None,
        begin: int = 0,
        end: int = sys.maxsize,
    ) -> Iterator[Chunk]:
        """Yield the rows that begin between two bytes, without a byte order mark.

        A chunk has about `size` bytes, and more only where a row has. A row begins at `begin`, and what is
        behind `end` is none of the file.
        """
        with _open(file) as stream:
            head = stream.read(len(_UTF8_MARK))
            if head.startswith(_UTF16_MARKS):
                raise ConnectorError(
                    f'"{file}" is UTF-16, and text is read as UTF-8',
                    hint=f"convert it first: iconv -f UTF-16 -t UTF-8 {file.name}",
                )
            at = len(head) if head == _UTF8_MARK else 0
            if first:
                at = first if first == begin else _find_row(stream, first, self.row_end)
            stop = None if end == sys.maxsize else end
            if last is not None and last < min(end, self.size(file)):
                stop = min(end, _find_row(stream, last, self.row_end))
            count_skipped = cache(partial(_count_lines, file, at))
            line, rest = 1, b""
            for block in _read_range(stream, at, stop, size or CHUNK_BYTES):
                text = rest + block
                end_of_rows = self.end_of_rows(text)
                if end_of_rows:
                    yield Chunk(text[:end_of_rows], line, at, count_skipped)
                    at += end_of_rows
                    line += text.count(b"\n", 0, end_of_rows)
                rest = text[end_of_rows:]
            if rest:
                yield Chunk(rest, line, at, count_skipped)


def is_gzip(file: Path) -> bool:
    """Return whether the name of a file says that it is packed."""
    return file.suffix == ".gz"


def holds_byte(file: Path, first: int, last: int, byte: bytes) -> bool:
    """Return whether a byte occurs between two places in a file."""
    with _open(file) as stream:
        return any(byte in block for block in _read_range(stream, first, last, CHUNK_BYTES))


def number_rows(chunks: Iterable[Chunk], parse: ParseRows, start: int) -> Iterator[RowRange]:
    """Yield the rows of each chunk; `parse` is given the number of its first row."""
    for chunk in chunks:
        rows = replace(parse(chunk, start), place=chunk.first)
        yield rows
        start = rows.end


def show_bytes(raw: bytes) -> str:
    """Return raw input as readable text: what is not UTF-8 is shown as escapes."""
    return raw.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")


@contextmanager
def _open(file: Path) -> Iterator[_Stream]:
    try:
        with gzip.open(file, "rb") if is_gzip(file) else file.open("rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as problem:
        raise read_error(file, problem) from problem


def _read_range(stream: _Stream, at: int, end: int | None, size: int) -> Iterator[bytes]:
    """Yield the bytes between two places, or to the end of the file."""
    stream.seek(at)
    while block := stream.read(size if end is None else min(size, max(0, end - at))):
        yield block
        at += len(block)


def _find_row(stream: _Stream, at: int, row_end: re.Pattern[bytes]) -> int:
    """Return where the first row begins that begins there or later; the end of the file if none does."""
    if at == 0:
        return 0
    text = b""
    at -= 1  # the byte before tells whether a row begins right there
    stream.seek(at)
    while block := stream.read(_SEARCH_BYTES):
        text = text[-1:] + block  # an end of two bytes may be cut
        if match := row_end.search(text):
            return at + match.end()
        at += len(text) - 1
    return at + len(text[-1:])


def _count_lines(file: Path, end: int) -> int:
    """Return how many lines end before a byte."""
    with _open(file) as stream:
        return sum(block.count(b"\n") for block in _read_range(stream, 0, end, CHUNK_BYTES))
