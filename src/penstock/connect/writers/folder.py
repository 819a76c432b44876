"""Whose output a folder holds: a small file beside the data, and a lock while a run writes.

The manifest is replaced as a whole, so it is either the old one or the new one. The lock belongs to the open
file, so it ends with the process, however that ends.
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
from typing import Protocol

import pyarrow as pa

from penstock.connect.batches import concat_batches
from penstock.connect.protocol import Delivery
from penstock.crash_points import PUBLISHED, WRITTEN, pass_crash_point
from penstock.errors import ConnectorError
from penstock.frozen import dataclass

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The output of one sink; `committed` is the number of the last batch that has a file."""

    format: str
    sink: str
    columns: str
    committed: int | None = None
    version: int = _VERSION

    @classmethod
    def load(cls, folder: Path) -> Manifest | None:
        """The folder's manifest, or None when it has none."""
        file = _metadata_folder(folder) / "manifest.json"
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
        home = _metadata_folder(folder)
        home.mkdir(exist_ok=True)
        fresh = home / ".manifest.json.tmp"
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(home / "manifest.json")
        sync_folder(home)

    def with_committed(self, batch: int) -> Manifest:
        """The same with one more batch done."""
        return replace(self, committed=batch)

    def same_output(self, other: Manifest) -> bool:
        """Whether the other goes on with this output."""
        return replace(self, committed=None) == replace(other, committed=None)

    def difference(self, other: Manifest) -> str:
        """How this output is not the other's, in words that follow the folder's name."""
        if self.sink != other.sink:
            return f'holds the output of sink "{self.sink}", not "{other.sink}"'
        return f"holds {self.format} files with the columns {self.columns}"


class FolderLock:
    """Held by the one output that may write into a folder."""

    def __init__(self, folder: Path) -> None:
        _metadata_folder(folder).mkdir(exist_ok=True)
        self._file = (_metadata_folder(folder) / "lock").open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            self._file.close()
            raise ConnectorError(
                f'"{folder}" is being written by another sink or run',
                hint="give each sink a folder of its own",
            ) from problem

    def release(self) -> None:
        """Let another output write."""
        self._file.close()


def sync_folder(folder: Path) -> None:
    """Make renames in the folder last through a power cut."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _metadata_folder(folder: Path) -> Path:
    return folder / "_penstock"


def _damage_error(file: Path, why: str) -> ConnectorError:
    return ConnectorError(f'"{file}" is damaged: {why}', hint="write to another folder, or empty this one")


# A folder of files, each batch in one file, exactly once.
#
# out/part-00000007.parquet        a committed batch; one without rows has no file
# out/.part-00000008.parquet.tmp   a batch being written; readers skip it, the next run removes it
# out/_penstock/manifest.json      whose output this is, and the last batch that is committed
# out/_penstock/lock               held while a run writes
#
# To commit is to finish the hidden file, sync it, rename it (the batch is now visible, whole), and then
# note the number. A crash before the rename leaves nothing visible, a crash after it leaves a file whose
# number says that it is done, and that the next run notes: either way, committing the number again is
# right. The note is for those who move finished files away: a batch they took is not written a second
# time. Invariant: batches commit in rising order.

_PART = re.compile(r"part-(\d{8,})\.\w+")
_STAGED = re.compile(r"\.part-\d{8,}\.\w+\.tmp")


class StagedFile(Protocol):
    """A file being written."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows."""

    def finish(self) -> None:
        """Write what is buffered and close."""


class OutputFormat(Protocol):
    """One kind of file."""

    @property
    def name(self) -> str:
        """Such as `csv`: also the suffix of the files."""

    def check(self, schema: pa.Schema) -> None:
        """SchemaError for columns that the format cannot hold."""

    def begin(self, file: Path, schema: pa.Schema) -> StagedFile:
        """Create the file."""


@dataclass(frozen=True, slots=True)
class FolderWriter:
    """A writer of files into a folder."""

    format: OutputFormat
    folder: Path
    overwrite: bool

    @property
    def delivery(self) -> Delivery:
        """See the module's docstring."""
        return Delivery.EXACTLY_ONCE

    @property
    def accepts_updates(self) -> bool:
        """A file that is visible does not change."""
        return False

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> FolderOutput:
        """Begin an output. `resume` continues that of the same sink after a restart from a checkpoint."""
        self.format.check(schema)
        with translate_os_errors(self.folder):
            _make_folder(self.folder)
            lock = FolderLock(self.folder)
            try:
                manifest = self._settled(Manifest(self.format.name, sink, _columns(schema)), resume)
            except BaseException:
                lock.release()
                raise
        return FolderOutput(self.format, self.folder, schema, manifest, lock)

    def describe(self) -> str:
        """Such as `jsonl late/`."""
        return f"{self.format.name} {self.folder}/"

    def _settled(self, ours: Manifest, resume: bool) -> Manifest:
        """The manifest to go on with; the folder is cleared of what a crash or an earlier run left."""
        theirs = Manifest.load(self.folder)
        entries = [entry for entry in self.folder.iterdir() if entry.name != "_penstock"]
        foreign = [e.name for e in entries if not e.name.startswith(".") and not _PART.fullmatch(e.name)]
        parts = [entry for entry in entries if _PART.fullmatch(entry.name)]
        if foreign or (parts and theirs is None):
            raise self._refused(
                f'holds "{(foreign or [parts[0].name])[0]}", which is no output of this graph', False
            )
        for entry in entries:
            if _STAGED.fullmatch(entry.name):
                entry.unlink()
        if resume and theirs is not None:
            if not theirs.same_output(ours):
                raise self._refused(theirs.difference(ours), False)
            return self._noted(theirs, parts)
        if (parts or (theirs is not None and theirs.committed is not None)) and not self.overwrite:
            raise self._refused("holds the output of an earlier run", True)
        for part in parts:
            part.unlink()
        ours.save(self.folder)
        return ours

    def _noted(self, theirs: Manifest, parts: list[Path]) -> Manifest:
        """Their manifest with every file that is there: a crash may have come before the last was noted."""
        last = max((_number_of(part.name) for part in parts), default=-1)
        if last <= (-1 if theirs.committed is None else theirs.committed):
            return theirs
        noted = theirs.with_committed(last)
        noted.save(self.folder)
        return noted

    def _refused(self, why: str, ours: bool) -> ConnectorError:
        over = f"write to another folder, or start over: ps.write.{self.format.name}(…, overwrite=True)"
        return ConnectorError(
            f'"{self.folder}" {why}', hint=over if ours else "write to another folder, or empty this one"
        )


class FolderOutput:
    """One run's way into a folder."""

    def __init__(
        self, file_format: OutputFormat, folder: Path, schema: pa.Schema, manifest: Manifest, lock: FolderLock
    ) -> None:
        self._format, self._folder, self._schema = file_format, folder, schema
        self._manifest, self._lock = manifest, lock
        self._sheets: dict[int, StagedFile] = {}

    @property
    def committed(self) -> int | None:
        """The last batch that has been noted as shown; None before the first."""
        return self._manifest.committed

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Append to the batch's hidden file."""
        if not rows.num_rows or self._is_committed(batch):
            return
        with translate_os_errors(self._folder):
            if batch not in self._sheets:
                self._sheets[batch] = self._format.begin(self._staged(batch), self._schema)
            self._sheets[batch].add(rows)

    def commit(self, batch: int) -> None:
        """Show the batch's file, unless it has been shown."""
        sheet = self._sheets.pop(batch, None)
        if sheet is None:
            return
        with translate_os_errors(self._folder):
            sheet.finish()
            _sync(self._staged(batch))
            pass_crash_point(WRITTEN)
            self._staged(batch).replace(self._folder / self._part(batch))
            pass_crash_point(PUBLISHED)
            sync_folder(self._folder)
            self._manifest = self._manifest.with_committed(batch)
            self._manifest.save(self._folder)

    def close(self) -> None:
        """Remove what was not committed, and let others write here."""
        try:
            with translate_os_errors(self._folder):
                for batch, sheet in self._sheets.items():
                    sheet.finish()
                    self._staged(batch).unlink(missing_ok=True)
        finally:
            self._sheets.clear()
            self._lock.release()

    def _is_committed(self, batch: int) -> bool:
        noted = self._manifest.committed
        return (noted is not None and batch <= noted) or (self._folder / self._part(batch)).exists()

    def _part(self, batch: int) -> str:
        return f"part-{batch:08d}.{self._format.name}"

    def _staged(self, batch: int) -> Path:
        return self._folder / f".{self._part(batch)}.tmp"


def _number_of(part: str) -> int:
    found = _PART.fullmatch(part)
    assert found is not None, "only names of parts have numbers"
    return int(found[1])


@contextmanager
def translate_os_errors(folder: Path) -> Iterator[None]:
    """Turn what the operating system refuses into an error that names the folder."""
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
    """A writer of the format into the folder."""
    if not isinstance(path, str | os.PathLike):
        raise ConnectorError(
            f"{path!r:.80} is not a path", hint=f'name a folder: ps.write.{file_format.name}("out/")'
        )
    return FolderWriter(file_format, Path(path), overwrite)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConnectorError(
            f'"{folder}" is a file, and output needs a folder', hint=f'write to "{folder}.out/"'
        )
    folder.mkdir(parents=True, exist_ok=True)


def _sync(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())


# Rows of a batch held back until it is committed, for writers that show them by themselves.


class StagedOutput:
    """Calls `show` with a batch's number and all its rows when it is committed, unless it has none.

    Batches commit in rising order, so the last number says which have been shown.
    """

    def __init__(
        self,
        show: Callable[[int, pa.RecordBatch], None],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._show, self._on_close = show, on_close
        self._staged: dict[int, list[pa.RecordBatch]] = {}
        self._last = -1

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Hold the rows back."""
        if rows.num_rows:
            self._staged.setdefault(batch, []).append(rows)

    def commit(self, batch: int) -> None:
        """Show them, once."""
        staged = self._staged.pop(batch, None)
        if staged and batch > self._last:
            self._show(batch, staged[0] if len(staged) == 1 else concat_batches(staged, staged[0].schema))
            self._last = batch

    def close(self) -> None:
        """Drop what was not committed."""
        self._staged.clear()
        self._on_close()
