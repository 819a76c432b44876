"""Writers of files into a folder: each batch in one file, exactly once.

    out/part-00000007.parquet        a committed batch; one without rows has no file
    out/.part-00000008.parquet.tmp   a batch being written; readers skip it, the next run removes it
    out/_penstock/manifest.json      the sink of this output, and the last batch that is committed
    out/_penstock/lock               held while a run writes

A commit finishes the hidden file, syncs it, renames it (the batch is now visible, whole), and then records
the number in the manifest. A crash before the rename leaves nothing visible; a crash after it leaves a file
whose number says that it is committed, and that the next run records: either way, committing the number again
is right. The record is for users who move finished files away: a batch they took is not written a second
time.

Invariant: batches commit in rising order.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, ClassVar, Protocol

import pyarrow as pa

from penstock.connect.protocol import Delivery
from penstock.crash_points import PUBLISHED, WRITTEN, pass_crash_point
from penstock.errors import ConnectorError
from penstock.frozen import dataclass

_VERSION = 1
_METADATA = "_penstock"
_PART = re.compile(r"part-(\d{8,})\.\w+")
_STAGED = re.compile(r"\.part-\d{8,}\.\w+\.tmp")


class StagedFile(Protocol):
    """A file that is being written, under a hidden name."""

    def write_batch(self, rows: pa.RecordBatch) -> None:
        """Append rows."""

    def close(self) -> None:
        """Write what is buffered, and close the file."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """One kind of file.

    name    such as `csv`: also the suffix of the files
    create  creates a file for rows of a schema
    check   raises SchemaError for columns that the format cannot hold; None if it holds all
    """

    name: str
    create: Callable[[Path, pa.Schema], StagedFile]
    check: Callable[[pa.Schema], None] | None = None


@dataclass(frozen=True, slots=True)
class FolderWriter:
    """A writer of files into a folder."""

    format: OutputFormat
    folder: Path
    overwrite: bool

    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    accepts_updates: ClassVar[bool] = False  # a file that is visible does not change

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> FolderOutput:
        """Begin an output. `resume` continues that of the same sink after a restart from a checkpoint."""
        if self.format.check is not None:
            self.format.check(schema)
        with translate_os_errors(self.folder):
            if self.folder.exists() and not self.folder.is_dir():
                raise ConnectorError(
                    f'"{self.folder}" is a file, and output needs a folder',
                    hint=f'write to "{self.folder}.out/"',
                )
            (self.folder / _METADATA).mkdir(parents=True, exist_ok=True)
            # Why: the lock belongs to the open file, so it ends with the process, however that ends.
            lock = (self.folder / _METADATA / "lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
                manifest = self._prepare_folder(Manifest(self.format.name, sink, columns), resume)
            except BlockingIOError as problem:
                lock.close()
                raise ConnectorError(
                    f'"{self.folder}" is being written by another sink or run',
                    hint="give each sink a folder of its own",
                ) from problem
            except BaseException:
                lock.close()
                raise
        return FolderOutput(self.format, self.folder, schema, manifest, lock)

    def describe(self) -> str:
        """Return such as `jsonl late/`."""
        return f"{self.format.name} {self.folder}/"

    def _prepare_folder(self, ours: Manifest, resume: bool) -> Manifest:
        """Remove what a crash or an earlier run left, and return the manifest to continue with."""
        theirs = Manifest.load(self.folder)
        entries = [entry for entry in self.folder.iterdir() if entry.name != _METADATA]
        foreign = [e.name for e in entries if not e.name.startswith(".") and not _PART.fullmatch(e.name)]
        parts = [entry for entry in entries if _PART.fullmatch(entry.name)]
        if foreign or (parts and theirs is None):
            raise self._refusal(
                f'holds "{(foreign or [parts[0].name])[0]}", which is no output of this graph', False
            )
        for entry in entries:
            if _STAGED.fullmatch(entry.name):
                entry.unlink()
        if resume and theirs is not None:
            if replace(theirs, committed=None) != ours:
                raise self._refusal(theirs.describe_difference(ours), False)
            last = max((int(match[1]) for part in parts if (match := _PART.fullmatch(part.name))), default=-1)
            if last > (-1 if theirs.committed is None else theirs.committed):
                theirs = replace(theirs, committed=last)  # a crash came before the last record
                theirs.save(self.folder)
            return theirs
        if (parts or (theirs is not None and theirs.committed is not None)) and not self.overwrite:
            raise self._refusal("holds the output of an earlier run", True)
        for part in parts:
            part.unlink()
        ours.save(self.folder)
        return ours

    def _refusal(self, why: str, can_overwrite: bool) -> ConnectorError:
        over = f"write to another folder, or start over: ps.write.{self.format.name}(…, overwrite=True)"
        return ConnectorError(
            f'"{self.folder}" {why}',
            hint=over if can_overwrite else "write to another folder, or empty this one",
        )


class FolderOutput:
    """The output of one run into a folder."""

    def __init__(
        self, file_format: OutputFormat, folder: Path, schema: pa.Schema, manifest: Manifest, lock: IO[str]
    ) -> None:
        self._format, self._folder, self._schema = file_format, folder, schema
        self._manifest, self._lock = manifest, lock
        self._staged_files: dict[int, StagedFile] = {}

    @property
    def last_committed(self) -> int | None:
        """Return the last batch that the manifest records; None before the first."""
        return self._manifest.committed

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Append to the batch's hidden file, unless the batch is committed."""
        if not rows.num_rows:
            return
        with translate_os_errors(self._folder):
            if batch not in self._staged_files:
                staged, part = self._paths(batch)
                last = self._manifest.committed
                if (last is not None and batch <= last) or part.exists():
                    return
                self._staged_files[batch] = self._format.create(staged, self._schema)
            self._staged_files[batch].write_batch(rows)

    def commit(self, batch: int) -> None:
        """Make the batch's file visible, unless it is."""
        staged_file = self._staged_files.pop(batch, None)
        if staged_file is None:
            return
        staged, part = self._paths(batch)
        with translate_os_errors(self._folder):
            staged_file.close()
            sync_path(staged)
            pass_crash_point(WRITTEN)
            staged.replace(part)
            pass_crash_point(PUBLISHED)
            sync_path(self._folder)
            self._manifest = replace(self._manifest, committed=batch)
            self._manifest.save(self._folder)

    def close(self) -> None:
        """Remove what was not committed, and release the lock."""
        try:
            with translate_os_errors(self._folder):
                for batch, staged_file in self._staged_files.items():
                    staged_file.close()
                    self._paths(batch)[0].unlink(missing_ok=True)
        finally:
            self._staged_files.clear()
            self._lock.close()

    def _paths(self, batch: int) -> tuple[Path, Path]:
        """Return where a batch is staged, and where it is visible."""
        name = f"part-{batch:08d}.{self._format.name}"
        return self._folder / f".{name}.tmp", self._folder / name


@dataclass(frozen=True, slots=True)
class Manifest:
    """The output of one sink, saved beside the data; `committed` is the last batch that has a file.

    It is replaced as a whole, so it is either the old one or the new one.
    """

    format: str
    sink: str
    columns: str
    committed: int | None = None
    version: int = _VERSION

    @classmethod
    def load(cls, folder: Path) -> Manifest | None:
        """Return the folder's manifest, or None when it has none."""
        file = folder / _METADATA / "manifest.json"
        if not file.exists():
            return None
        try:
            loaded = cls(**json.loads(file.read_bytes()))
        except (ValueError, TypeError) as problem:
            raise _damage_error(file, str(problem)) from problem
        if loaded.version != _VERSION:
            raise _damage_error(file, f"its version is {loaded.version}, and this build knows {_VERSION}")
        return loaded

    def save(self, folder: Path) -> None:
        """Replace the folder's manifest."""
        metadata = folder / _METADATA
        staged = metadata / ".manifest.json.tmp"
        with staged.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(metadata / "manifest.json")
        sync_path(metadata)

    def describe_difference(self, other: Manifest) -> str:
        """Say how this output differs from the other, in words that follow the folder's name."""
        if self.sink != other.sink:
            return f'holds the output of sink "{self.sink}", not "{other.sink}"'
        return f"holds {self.format} files with the columns {self.columns}"


def sync_path(path: Path) -> None:
    """Make the content of a file, or the renames in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damage_error(file: Path, why: str) -> ConnectorError:
    return ConnectorError(f'"{file}" is damaged: {why}', hint="write to another folder, or empty this one")


@contextmanager
def translate_os_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the operating system into one that names the folder."""
    try:
        yield
    except OSError as problem:
        raise ConnectorError(
            f'"{folder}" cannot be written: {problem.strerror or problem}',
            hint="check its permissions and the space on its disk, or write to another folder",
        ) from problem


def build_folder_writer(
    file_format: OutputFormat, path: str | os.PathLike[str], overwrite: bool
) -> FolderWriter:
    """Return a writer of the format into the folder."""
    if not isinstance(path, str | os.PathLike):
        raise ConnectorError(
            f"{path!r:.80} is not a path", hint=f'name a folder: ps.write.{file_format.name}("out/")'
        )
    return FolderWriter(file_format, Path(path), overwrite)


def parquet(path: str | os.PathLike[str], *, overwrite: bool = False) -> FolderWriter:
    """Write parquet files into a folder, one per batch that has rows, exactly once.

    A folder with an earlier run's output is refused, unless `overwrite=True` starts it over.
    """
    return build_folder_writer(OutputFormat("parquet", _create_parquet), path, overwrite)


def _create_parquet(file: Path, schema: pa.Schema) -> StagedFile:
    """Create a file as Arrow writes it; each batch of rows makes a row group."""
    import pyarrow.parquet as pq

    writer: StagedFile = pq.ParquetWriter(file, schema)
    return writer
