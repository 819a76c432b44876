"""One kind of input file: its schema, its parts, and the errors that name a file."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.connect.batching import RowRange
from penstock.errors import ConnectorError, SchemaError
from penstock.frozen import Frozen


class FilePart(Frozen):
    """A part of a file that can be read by itself.

    first, last  bytes of text, rows of parquet; the last is not included
    begin, end   what is read of the file in all: bytes between which there are whole rows
    """

    path: str
    first: int
    last: int
    begin: int = 0
    end: int = sys.maxsize


class InputFormat(ABC):
    """One kind of file.

    Files can be read in parts. The parts of a file, wherever it is cut, hold the rows of the whole file in
    their order, good and bad, each once. Where a csv file can be cut depends on the whole file: if
    `needs_scan`, whoever reads it in parts lets `scan` look for quotes in every range of bytes, and says
    `plain=True` if there are none.

    name       in errors and descriptions, such as `csv`
    keeps_raw  whether single rows can be bad
    """

    __slots__ = ()
    name: ClassVar[str]
    keeps_raw: ClassVar[bool] = True

    @abstractmethod
    def read_schema(self, file: Path) -> pa.Schema | None:
        """Return the file's own schema; None when the file is too empty to tell."""

    def find_mismatch(
        self, file: Path, schema: pa.Schema, declared: bool, optional: Collection[str] = ()
    ) -> str | None:
        """Return why the file cannot be read with the schema, or None; it may lack the `optional` columns."""
        return None

    @abstractmethod
    def size(self, file: Path) -> int:
        """Return a number that the row numbers of all the file's parts stay below."""

    def grows(self, file: Path) -> bool:
        """Return whether rows may be put behind those of the file."""
        return False

    def end_of_whole_rows(self, file: Path, first: int, last: int) -> int:
        """Return where the last whole row ends between two bytes, of a file that may grow."""
        return last

    @abstractmethod
    def parts(
        self, file: Path, most: int, *, plain: bool = False, begin: int = 0, end: int = sys.maxsize
    ) -> list[FilePart]:
        """Return the file in parts of about `most` bytes, at least one, without a look at its rows.

        A file that cannot be cut is one part. `plain` says that its rows hold no quotes. Of a file that
        grows, only what is between `begin` and `end` is read.
        """

    def needs_scan(self, file: Path, most: int = 0) -> bool:
        """Return whether the file has more than `most` bytes and is cut only if its rows hold no quotes."""
        return False

    def scan(self, part: FilePart) -> bool:
        """Return whether rows in this part of a file that needs a scan hold a quote."""
        return False

    @abstractmethod
    def read_part(self, part: FilePart, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Yield the rows that begin in a part, a chunk at a time.

        Their numbers rise, from `start + part.first` on and below `start + part.last`.
        """


def read_error(file: Path, problem: Exception) -> ConnectorError:
    """Return the error for a file that cannot be read at all."""
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return ConnectorError(
        f'"{file}" cannot be read: {reason}',
        hint='check that it exists and is whole, or leave such files out: on_error="skip" at the source',
    )


def schema_error(file: Path, problem: SchemaError) -> ConnectorError:
    """Return the error for a file whose columns cannot be read, which names the file."""
    return ConnectorError(f'"{file}": {problem.fact}', detail=problem.detail, hint=problem.hint)
