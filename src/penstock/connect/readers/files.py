"""Readers of files: which files a path means, which make which batch, their one schema, and row numbers.

A path is a file, a folder (its own files), or a glob; or a list of these, each file once. Files are read by
modification time, then by name. In folders and globs, names that begin with `.` or `_` are not data:
half-written files and manifests have such names. Files are listed again at the start of every run.

A folder can be watched: then the files that appear are read too, until the run stops. Files are read whole
and once, so they must appear whole: written under a name that begins with `.` or `_`, or elsewhere, and
renamed. The folder is looked at every `wait`, and listed if it has changed, or a second after the last time.
Every second without a new file there is a batch without rows, so that time goes on where others must not make
rounds for this source.

A run with a checkpoint records in a journal which files make which batch, and a run that resumes reads by the
journal first. Files are identified by name, size and modification time. So files that have been read may be
removed, and new ones may have any name and time; one that changed after it was read is refused, because its
rows would be read twice or not at all.
"""

from __future__ import annotations

import glob
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self

import pyarrow as pa

from penstock.connect.batching import RowRange, batch_by_rows, check_size, to_source_batch
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.read_claims import DEFAULT_WAIT, check_wait
from penstock.errors import ConnectorError, SchemaError
from penstock.expr.types import parse_schema
from penstock.frozen import Frozen
from penstock.timing.units import Duration

POLL_S = 1.0
EMPTY_BATCHES_PER_ENTRY = 60
"""Batches without rows that share a journal entry: a folder where nothing happens has one a minute."""

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
Stamp = tuple[int, int]
"""Size in bytes and modification time in nanoseconds."""
_REMOVED: Stamp = (0, 0)


class FilePart(Frozen):
    """A part of a file that can be read by itself.

    first, last  bytes of text, rows of parquet; the last is not included
    """

    path: str
    first: int
    last: int


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

    def find_mismatch(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Return why the file cannot be read with the schema, or None. A declared one may skip columns."""
        return None

    @abstractmethod
    def size(self, file: Path) -> int:
        """Return a number that the row numbers of all the file's parts stay below."""

    @abstractmethod
    def parts(self, file: Path, most: int, *, plain: bool = False) -> list[FilePart]:
        """Return the file in parts of about `most` bytes, at least one, without a look at its rows.

        A file that cannot be cut is one part. `plain` says that its rows hold no quotes.
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

    def read(self, file: Path, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Yield all rows of a file, numbered from `start`."""
        return self.read_part(FilePart(str(file), 0, sys.maxsize), schema, declared, start)


class FileStatus(NamedTuple):
    """A file that was read, with its size and modification time."""

    path: str
    size: int
    modified_ns: int


class JournalEntry(NamedTuple):
    """The files of the batch before number `until`; without files, batches up to there have no rows."""

    until: int
    files: tuple[FileStatus, ...] = ()

    @classmethod
    def of(cls, until: int, files: Iterable[Iterable[object]]) -> Self:
        """Return an entry that was read back; raise ValueError or TypeError if it is none."""
        statuses = tuple(FileStatus(str(path), int(str(size)), int(str(ns))) for path, size, ns in files)
        return cls(int(until), statuses)


class Journal(Protocol):
    """A run's record of the files in its batches."""

    def entries(self) -> Iterable[JournalEntry]:
        """Return what earlier runs recorded, in order."""

    def append(self, *entries: JournalEntry) -> None:
        """Record entries durably; called before their batches are read."""


class FileReader(Frozen):
    """Files of one format with one schema.

    schema_file  the file that gave the schema; None when it was declared
    batch        rows per batch; None where files make the batches, `files` of them each
    bounded      false if a folder is watched for files that appear
    journal      which files the batches are made of
    position     the number of batches that earlier runs have read, and of the rows in them
    wait_us      how often a folder that is watched is looked at
    """

    format: InputFormat
    paths: Paths
    schema: pa.Schema
    schema_file: Path | None
    batch: int | None
    files: int
    bounded: bool
    journal: Journal | None = None
    position: tuple[int, int] = (0, 0)
    wait_us: int = 100_000

    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE

    @property
    def keeps_raw(self) -> bool:
        """Return whether this is a text format."""
        return self.format.keeps_raw

    @property
    def batches_are_files(self) -> bool:
        """Return whether files make the batches, so that a journal can tell what has been read."""
        return self.batch is None

    def resume(self, journal: Journal, position: tuple[int, int]) -> Self:
        """Return a reader that begins after the position; only where files make the batches."""
        return replace(self, journal=journal, position=position)

    def batches(self) -> Iterator[SourceBatch]:
        """List the files and read them in order."""
        if self.batch is not None:
            yield from batch_by_rows(self._read(list_files(self.paths), 0), self.schema, self.batch)
            return
        start = self.position[1]
        for files in self.plan_batches():
            batch = to_source_batch(list(self._read(files, start)), self.schema)
            start += batch.num_rows + len(batch.bad)
            yield batch

    def plan_batches(self) -> Iterator[list[Path]]:
        """Yield the files of each batch: those in the journal and not read, then those not seen yet.

        All new files are recorded in the journal before the first of them is read. A run that cannot be
        resumed has no journal.
        """
        number, until = self.position[0], 0
        seen: dict[Path, Stamp] = {}
        journaled: dict[int, list[Path]] = {}
        for entry in self.journal.entries() if self.journal is not None else ():
            until = max(until, entry.until)
            stamps = {Path(file.path): (file.size, file.modified_ns) for file in entry.files}
            seen.update(stamps)
            if stamps:
                journaled[entry.until - 1] = list(stamps)
        while number < until:  # an earlier run planned these and did not complete them, some without files
            files = journaled.get(number, [])
            for file in files:
                _is_new(file, seen)
            number += 1
            yield files
        while True:
            new = [file for file in list_files(self.paths) if _is_new(file, seen)]
            batches = [new[first : first + self.files] for first in range(0, len(new), self.files)]
            entries = [
                JournalEntry(number + n, tuple(FileStatus(str(file), *seen[file]) for file in files))
                for n, files in enumerate(batches, 1)
            ]
            number += len(batches)
            if not new and not self.bounded:
                if number >= until:
                    until = number + EMPTY_BATCHES_PER_ENTRY
                    entries = [JournalEntry(until)]
                number += 1
            if entries and self.journal is not None:
                self.journal.append(*entries)
            yield from batches
            if self.bounded:
                return
            if not new:
                self._wait_for_change()
                yield []

    def _wait_for_change(self) -> None:
        """Wait until the watched folder has changed, but no longer than until it is listed anyway."""
        deadline, before = time.monotonic() + POLL_S, _modified_ns(self.paths)
        while (left := deadline - time.monotonic()) > 0 and _modified_ns(self.paths) == before:
            time.sleep(min(left, self.wait_us / 1e6))

    def read_part(self, part: FilePart, start: int) -> Iterator[RowRange]:
        """Yield the rows of a part; `start` is the number of the file's first row."""
        self.check(Path(part.path))
        return self.format.read_part(part, self.schema, self.schema_file is None, start)

    def check(self, file: Path) -> None:
        """Raise ConnectorError unless the file can be read with the schema."""
        if reason := self.format.find_mismatch(file, self.schema, self.schema_file is None):
            other = "the declared schema" if self.schema_file is None else f'"{self.schema_file}"'
            raise ConnectorError(
                f'"{file}" does not fit {other}',
                detail=reason,
                hint="read the files apart, or name the columns they share in schema=",
            )

    def describe(self) -> str:
        """Return such as `parquet events/ (3 files)`."""
        files = "watched"
        if self.bounded:
            n_files = len(list_files(self.paths))
            files = f"{n_files} file{'s' * (n_files != 1)}"
        return f"{self.format.name} {format_paths(self.paths)} ({files})"

    def reads_from(self, folder: Path) -> bool:
        """Return whether it reads files of the folder, which a sink that overwrites it would remove."""
        paths = [self.paths] if isinstance(self.paths, str | PathLike) else self.paths
        for path in map(Path, paths):
            while glob.has_magic(str(path)):  # of a glob, what comes before its first wildcard counts
                path = path.parent  # noqa: PLW2901
            if path.resolve().is_relative_to(folder.resolve()):
                return True
        return False

    def _read(self, files: Sequence[Path], start: int) -> Iterator[RowRange]:
        for file in files:
            self.check(file)
            for rows in self.format.read(file, self.schema, self.schema_file is None, start):
                yield rows
                start = rows.end


def build_file_reader(
    file_format: InputFormat,
    paths: Paths,
    schema: object,
    batch: int | None,
    files: int | None,
    *,
    follow: bool,
    wait: Duration = DEFAULT_WAIT,
) -> FileReader:
    """Return a reader whose schema is known and which all files that exist now fit.

    With `follow` it also reads the files that will appear in the folder, which is looked at every `wait`.
    """
    wait_us = check_wait(wait) if follow else 0
    if follow and (not isinstance(paths, str | Path) or not Path(paths).is_dir()):
        raise ConnectorError(
            f"{paths!r:.80} is not a folder that can be watched", hint='name one that exists: "events/"'
        )
    if follow and batch is not None:
        raise ConnectorError(
            f"batch={batch} would hold rows of a watched folder back until others come",
            hint="leave it out: every file is a batch; files= puts several together",
        )
    if batch is not None and files is not None:
        raise ConnectorError(f"batch={batch} and files={files} both cut batches", hint="give one of them")
    existing = list_files(paths)
    columns, schema_file = (None if schema is None else parse_schema(schema)), None
    if schema is None:
        schemas = ((file_format.read_schema(file), file) for file in existing)
        columns, schema_file = next((pair for pair in schemas if pair[0] is not None), (None, None))
    if columns is None:
        raise ConnectorError(
            f'"{format_paths(paths)}" holds no rows to take a schema from',
            hint='say the types: schema={"price": "float64", …}',
        )
    n_rows, n_files = check_size("batch", batch), check_size("files", files) or 1
    reader = FileReader(
        file_format, paths, columns, schema_file, n_rows, n_files, not follow, wait_us=wait_us
    )
    for file in existing:
        reader.check(file)
    return reader


def _modified_ns(paths: Paths) -> int:
    """Return when files were last put into a folder, or taken out of it; 0 if it is not there."""
    try:
        return os.stat(str(paths)).st_mtime_ns  # noqa: PTH116  # asked often
    except OSError:
        return 0


def _is_new(file: Path, seen: dict[Path, Stamp]) -> bool:
    """Return whether a file is seen for the first time; raise if it has changed since it was."""
    is_new = file not in seen
    try:
        status = file.stat()
        stamp = status.st_size, status.st_mtime_ns
    except FileNotFoundError:
        stamp = _REMOVED  # reading it raises its own error
    if stamp not in (seen.setdefault(file, stamp), _REMOVED):
        raise ConnectorError(
            f'"{file}" changed after it was read',
            detail="a file is read once; rows that are put into it later would be missed",
            hint="put new rows into new files, written under a name that begins with a dot and renamed "
            "when they are whole; or start with an empty checkpoint folder",
        )
    return is_new


def read_error(file: Path, problem: Exception) -> ConnectorError:
    """Return the error for a file that cannot be read at all."""
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return ConnectorError(
        f'"{file}" cannot be read: {reason}',
        hint="check that it exists and is whole, or leave it out of the path",
    )


def schema_error(file: Path, problem: SchemaError) -> ConnectorError:
    """Return the error for a file whose columns cannot be read, which names the file."""
    return ConnectorError(f'"{file}": {problem.fact}', detail=problem.detail, hint=problem.hint)


def list_files(paths: Paths) -> list[Path]:
    """Return the files that exist now; raise ConnectorError for a path that means none."""
    all_paths = [*paths] if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    for path in all_paths:
        if not isinstance(path, str | PathLike):
            raise ConnectorError(
                f"{paths!r:.80} is not a path", hint='name a file, a folder or a glob: "events/*.parquet"'
            )
    if not all_paths:
        raise ConnectorError("the list of paths is empty", hint='name at least one: ["events/"]')
    resolve = cache(Path.resolve)  # Why: many files are in the same folder
    try:
        unique = {
            file.resolve() if file.is_symlink() else resolve(file.parent) / file.name: file
            for path in all_paths
            for file in _files(fspath(path))
        }
        return sorted(unique.values(), key=lambda file: (file.stat().st_mtime_ns, str(file)))
    except OSError as problem:
        raise ConnectorError(
            f'"{problem.filename}" vanished while it was listed',
            hint="let writers rename finished files into the folder",
        ) from problem


def format_paths(paths: Paths) -> str:
    """Return the path as the user wrote it."""
    return fspath(paths) if isinstance(paths, str | PathLike) else ", ".join(fspath(path) for path in paths)


def _files(text: str) -> list[Path]:
    path = Path(text)
    try:
        if path.is_file():
            return [path]
        is_folder = path.is_dir()
    except OSError as problem:
        raise ConnectorError(
            f'"{text:.80}" cannot be looked at: {problem.strerror}', hint="check its name and its permissions"
        ) from problem
    if is_folder:
        try:
            with os.scandir(path) as listed:
                entries = [entry for entry in listed if not entry.name.startswith((".", "_"))]
        except OSError as problem:
            raise ConnectorError(
                f'"{path}" cannot be listed: {problem.strerror}', hint="check its permissions"
            ) from problem
        if folder := next((entry.name for entry in entries if entry.is_dir()), None):
            raise ConnectorError(  # skipping it would lose rows silently
                f'"{path}" holds the folder "{folder}", and a folder is read without its subfolders',
                hint=f'say which files are meant: "{path}/*" or "{path}/**"',
            )
        return [path / entry.name for entry in entries]
    if glob.has_magic(text):
        matches = [Path(match) for match in glob.glob(text, recursive=True)]  # noqa: PTH207  # absolute patterns
        files = [match for match in matches if match.is_file() and not _is_hidden(match, path.parts)]
        if files:
            return files
        raise ConnectorError(
            f'no file matches "{text}"', hint="a glob takes files, not folders: events/*.parquet"
        )
    raise ConnectorError(f'"{text}" does not exist', hint=_list_neighbours(path))


def _is_hidden(path: Path, pattern: Sequence[str] | None = None) -> bool:
    """Return whether a file is hidden, or of a pattern's match anything that the pattern does not name."""
    names = [path.name] if pattern is None else [name for name in path.parts if name not in pattern]
    return any(name.startswith((".", "_")) for name in names)


def _list_neighbours(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if not _is_hidden(entry))[:8]
    except OSError:
        return f'create it, or check the path from "{Path.cwd().name}/", the working folder'
    return f"{path.parent}/ holds {', '.join(names)}" if names else f"{path.parent}/ is empty"
