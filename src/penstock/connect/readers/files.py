"""Which files a path means, in the order they are read: by modification time, then by name.

A path is a file, a folder (its own files), or a glob; or a list of these, each file once. In folders and
globs, names that begin with `.` or `_` are not data: half-written files and manifests are called so.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Protocol, Self

import pyarrow as pa

from penstock.connect.batches import RowRange, batch_by_rows, check_size, to_source_batch
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers.file_journal import FileBatchPlanner, Journal, NoJournal
from penstock.errors import ConnectorError
from penstock.expr.schema import parse_schema
from penstock.frozen import dataclass

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def list_files(paths: Paths) -> list[Path]:
    """The files that exist now; ConnectorError for a path that means none."""
    each = [paths] if isinstance(paths, str | PathLike) or not isinstance(paths, Iterable) else list(paths)
    for path in each:
        if not isinstance(path, str | PathLike):
            raise ConnectorError(
                f"{paths!r:.80} is not a path", hint='name a file, a folder or a glob: "events/*.parquet"'
            )
    if not each:
        raise ConnectorError("the list of paths is empty", hint='name at least one: ["events/"]')
    found = {file.resolve(): file for path in each for file in _files(fspath(path))}
    return sorted(found.values(), key=_read_order)


def any_path_in(paths: Paths, folder: Path) -> bool:
    """Whether a path is the folder or lies in it; of a glob, what comes before its first wildcard."""
    each = [paths] if isinstance(paths, str | PathLike) else paths
    return any(_before_wildcards(fspath(path)).resolve().is_relative_to(folder.resolve()) for path in each)


def _before_wildcards(text: str) -> Path:
    path = Path(text)
    while glob.has_magic(str(path)):
        path = path.parent
    return path


def format_paths(paths: Paths) -> str:
    """The path as the user wrote it."""
    return fspath(paths) if isinstance(paths, str | PathLike) else ", ".join(fspath(path) for path in paths)


def _files(text: str) -> list[Path]:
    path = Path(text)
    try:
        if path.is_file():
            return [path]
        if path.is_dir():
            return _files_of_folder(path)
    except OSError as problem:
        raise ConnectorError(
            f'"{text:.80}" cannot be looked at: {problem.strerror}', hint="check its name and its permissions"
        ) from problem
    if glob.has_magic(text):
        matches = [Path(match) for match in glob.glob(text, recursive=True)]  # noqa: PTH207  # absolute patterns
        files = [match for match in matches if match.is_file() and not _is_hidden(match)]
        if files:
            return files
        raise ConnectorError(
            f'no file matches "{text}"', hint="a glob takes files, not folders: events/*.parquet"
        )
    raise ConnectorError(f'"{text}" does not exist', hint=_list_neighbours(path))


def _files_of_folder(folder: Path) -> list[Path]:
    try:
        entries = [entry for entry in folder.iterdir() if not _is_hidden(entry)]
    except OSError as problem:
        raise ConnectorError(
            f'"{folder}" cannot be listed: {problem.strerror}', hint="check its permissions"
        ) from problem
    for entry in entries:
        if entry.is_dir():  # skipping it would lose rows without a word
            raise ConnectorError(
                f'"{folder}" holds the folder "{entry.name}", and a folder is read without its subfolders',
                hint=f'say which files are meant: "{folder}/*" or "{folder}/**"',
            )
    return entries


def _is_hidden(path: Path) -> bool:
    return path.name.startswith((".", "_"))


def _read_order(file: Path) -> tuple[int, str]:
    try:
        return file.stat().st_mtime_ns, str(file)
    except OSError as problem:
        raise ConnectorError(
            f'"{file}" vanished while it was listed', hint="let writers rename finished files into the folder"
        ) from problem


def _list_neighbours(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if not _is_hidden(entry))[:8]
    except OSError:
        return f'create it, or check the path from "{Path.cwd().name}/", the working folder'
    return f"{path.parent}/ holds {', '.join(names)}" if names else f"{path.parent}/ is empty"


# What all file readers share: the listing, one schema for all files, row numbers, and the cut.
#
# A format knows how to take the schema of a file, whether another file fits it, and how to read one file into
# pieces. Files are listed again at the start of every run, so a run sees what is there when it begins.


class InputFormat(Protocol):
    """One kind of file."""

    @property
    def name(self) -> str:
        """Such as `csv`."""

    @property
    def keeps_raw(self) -> bool:
        """Whether rows can be bad one by one."""

    def schema_of(self, file: Path) -> pa.Schema | None:
        """The file's own schema; None when it is too empty to tell."""

    def misfit(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Why the file cannot be read with the schema, or None. Extra columns matter only undeclared."""

    def pieces(self, file: Path, schema: pa.Schema, declared: bool) -> Iterator[RowRange]:
        """The file's rows, numbered from 0."""


@dataclass(frozen=True, slots=True)
class FileReader:
    """Files of one format with one schema.

    like      the file that gave the schema; None when it was declared
    journal   what batches are made of; position is how many batches earlier runs read, and rows in them
    """

    format: InputFormat
    paths: Paths
    columns: pa.Schema
    like: Path | None
    batch: int | None
    files: int
    journal: Journal = field(default_factory=NoJournal)
    position: tuple[int, int] = (0, 0)

    @property
    def by_files(self) -> bool:
        """Whether files make the batches, so that a journal can tell what has been read."""
        return self.batch is None

    @property
    def schema(self) -> pa.Schema:
        """As declared, or as the first file has it."""
        return self.columns

    @property
    def bounded(self) -> bool:
        """The listing ends."""
        return True

    @property
    def delivery(self) -> Delivery:
        """Files can be read again."""
        return Delivery.EXACTLY_ONCE

    @property
    def keeps_raw(self) -> bool:
        """True for text formats."""
        return self.format.keeps_raw

    def batches(self) -> Iterator[SourceBatch]:
        """List the files and read them in order."""
        if self.batch is None:
            return self._by_files()
        pieces = (piece for piece in self.pieces(list_files(self.paths)) if piece is not None)
        return batch_by_rows(pieces, self.columns, self.batch)

    def going_on(self, journal: Journal, position: tuple[int, int]) -> Self:
        """The same behind what has been read, with a journal of it; only where files make the batches."""
        return replace(self, journal=journal, position=position)

    def plan(self) -> Iterator[list[Path]]:
        """The files of each batch: those noted and not done, then those that are there and not seen yet."""
        planned = FileBatchPlanner(self.journal, self.position[0], self.files)
        yield from planned.again()
        yield from planned.new(lambda: list_files(self.paths))

    def together(self, files: Sequence[Path], start: int) -> SourceBatch:
        """Some files as one batch, numbered through from `start`."""
        pieces = self.pieces(files, start)
        return to_source_batch([piece for piece in pieces if piece is not None], self.columns)

    def _by_files(self) -> Iterator[SourceBatch]:
        start = self.position[1]
        for files in self.plan():
            batch = self.together(files, start)
            start += batch.num_rows + len(batch.bad)
            yield batch

    def describe(self) -> str:
        """Such as `parquet events/ (3 files)`."""
        n_files = len(list_files(self.paths))
        return f"{self.format.name} {format_paths(self.paths)} ({n_files} file{'s' * (n_files != 1)})"

    def reads_in(self, folder: Path) -> bool:
        """Whether files of the folder are meant: a sink that starts the folder over would remove them."""
        return any_path_in(self.paths, folder)

    def check(self, file: Path) -> None:
        """ConnectorError unless the file can be read with the schema."""
        if reason := self.format.misfit(file, self.columns, self.like is None):
            other = "the declared schema" if self.like is None else f'"{self.like}"'
            raise ConnectorError(
                f'"{file}" does not fit {other}',
                detail=reason,
                hint="read the files apart, or name the columns they share in schema=",
            )

    def pieces(self, files: Sequence[Path], start: int = 0) -> Iterator[RowRange | None]:
        """The rows of all files, numbered through from `start`; None ends a file."""
        for file in files:
            self.check(file)
            end = start
            for piece in self.format.pieces(file, self.columns, self.like is None):
                yield shift_rows(piece, start)
                end = start + piece.end
            start = end
            yield None


def build_file_reader(
    file_format: InputFormat, paths: Paths, schema: object, batch: int | None, files: int | None
) -> FileReader:
    """A reader whose schema is settled and whose files, as they are now, all fit it."""
    if batch is not None and files is not None:
        raise ConnectorError(f"batch={batch} and files={files} both cut batches", hint="give one of them")
    found = list_files(paths)
    like = None
    if schema is None:
        columns, like = _read_first_schema(file_format, found, paths)
    else:
        columns = parse_schema(schema)
    reader = FileReader(
        file_format, paths, columns, like, check_size("batch", batch), check_size("files", files) or 1
    )
    for file in found:
        reader.check(file)
    return reader


def read_error(file: Path, problem: Exception) -> ConnectorError:
    """The error for a file that cannot be read at all."""
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return ConnectorError(
        f'"{file}" cannot be read: {reason}',
        hint="check that it exists and is whole, or leave it out of the path",
    )


def shift_rows(piece: RowRange, by: int) -> RowRange:
    """The piece with row numbers moved on."""
    bad = tuple((number + by, each) for number, each in piece.bad)
    return replace(piece, numbers=piece.numbers + by, bad=bad, start=piece.start + by, end=piece.end + by)


def _read_first_schema(file_format: InputFormat, found: list[Path], paths: Paths) -> tuple[pa.Schema, Path]:
    for file in found:
        if (columns := file_format.schema_of(file)) is not None:
            return columns, file
    raise ConnectorError(
        f'"{format_paths(paths)}" holds no rows to take a schema from',
        hint='say the types: schema={"price": "float64", …}',
    )
