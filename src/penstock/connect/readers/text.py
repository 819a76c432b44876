"""Read text files line by line: one column, "line". A line that is not UTF-8 is a bad row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.connect.cuts import Piece
from penstock.connect.protocol import BadRow
from penstock.connect.readers.files import FileReader
from penstock.connect.readers.following import FollowingReader, file_or_folder_reader
from penstock.connect.readers.listing import Paths
from penstock.connect.readers.textfile import Chunk, as_text, chunks
from penstock.frozen import dataclass

_SCHEMA = pa.schema([("line", pa.string())])


@dataclass(frozen=True, slots=True)
class Text:
    """Plain lines."""

    name: str = "text"
    keeps_raw: bool = True

    def schema_of(self, file: Path) -> pa.Schema | None:
        """Always the one column."""
        return _SCHEMA

    def misfit(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Every file has lines."""
        return None

    def pieces(self, file: Path, schema: pa.Schema, declared: bool) -> Iterator[Piece]:
        """One row per line, blank ones too; an end of line at the end of the file begins no row."""
        start = 0
        for chunk in chunks(file):
            piece = _piece(file, chunk, start)
            start = piece.end
            yield piece


def text(
    path: Paths, *, batch: int | None = None, files: int | None = None, follow: bool = False
) -> FileReader | FollowingReader:
    """Read lines of text into the column "line": a file, a folder, a glob, or a list; `.gz` is unpacked.

    One file is one batch, unless `files=` says how many are, or `batch=` how many rows.

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once.
    """
    return file_or_folder_reader(Text(), path, None, batch, files, follow=follow)


def _piece(file: Path, chunk: Chunk, start: int) -> Piece:
    raw = chunk.text.removesuffix(b"\n").split(b"\n")
    good: list[str] = []
    numbers: list[int] = []
    bad: list[tuple[int, BadRow]] = []
    for at, line in enumerate(raw):
        try:
            good.append(line.removesuffix(b"\r").decode())
            numbers.append(start + at)
        except UnicodeDecodeError as problem:
            place = f"{file}:{chunk.line + at}"
            reason = f"byte {problem.start + 1} of the line is not UTF-8"
            bad.append((start + at, BadRow(as_text(line), reason, place)))
    rows = pa.RecordBatch.from_arrays([pa.array(good, pa.string())], schema=_SCHEMA)
    return Piece(rows, np.array(numbers, np.int64), tuple(bad), start, start + len(raw))
