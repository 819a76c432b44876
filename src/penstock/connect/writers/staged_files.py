"""Staged files: output that is written, and not yet visible.

A stage writes the rows of one batch, or of one task's part of it, into files of `out/_penstock/staged/`. It
takes no lock and touches nothing else, so that many processes may have one each, under tags that differ.
Whoever has the folder open then publishes the files of the stages that came to their end
(`penstock.connect.writers.folder`); a file that nobody publishes is removed by the next run.

The output that publishes has a stage for each batch whose rows come to itself. What the writers of folders
and of tables share is here too.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Generic, Protocol, TypeVar
from urllib.parse import quote

import pyarrow as pa
import xxhash

from penstock import crash_points
from penstock.connect.protocol import Delivery, OutputLink
from penstock.connect.writers.partition_folders import check_partition_columns, split_by_partition
from penstock.errors import ConnectorError
from penstock.frozen import Frozen, dataclass

_Output = TypeVar("_Output", bound="StagingOutput")
METADATA = "_penstock"
STAGED = f"{METADATA}/staged"
MAX_ROWS_PER_FILE = 10_000_000
MAX_OPEN_FILES = 100
"""A stage with rows for more partition folders closes the file that had no rows for longest."""
REACH = (
    "every executor must reach the folder under this path and may write there: use a disk that they share, "
    "and check its permissions and its space"
)
_HINT = "check its permissions and the space on its disk, or write to another folder"


class FileEncoder(Protocol):
    """What writes the rows of one file."""

    def write_batch(self, rows: pa.RecordBatch) -> None:
        """Append rows."""

    def close(self) -> None:
        """Write what is buffered, and close the file."""


class OutputFormat(Frozen):
    """One kind of output.

    name    such as `csv`
    create  creates a file for rows of a schema
    check   raises SchemaError for columns that the format cannot hold; None if it holds all
    suffix  of the files; empty if it is the name
    """

    name: str
    create: Callable[[Path, pa.Schema], FileEncoder]
    check: Callable[[pa.Schema], None] | None = None
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class FileWriter(ABC, Generic[_Output]):
    """A writer of files below a folder.

    format             the kind of the files
    partition_by       the columns whose values name folders
    max_rows_per_file  the most rows of a file; None for any number
    """

    format: OutputFormat
    folder: Path
    overwrite: bool
    partition_by: tuple[str, ...] = ()
    max_rows_per_file: int | None = MAX_ROWS_PER_FILE

    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    accepts_updates: ClassVar[bool] = False  # rows are appended, and a file that is visible does not change
    target: ClassVar[tuple[str, str]] = ("output", "out")  # what the folder is for, and how its name may end
    prepared: ClassVar[str] = STAGED  # what exists below the folder while a run writes
    lock: ClassVar[str] = "lock"  # what is locked meanwhile; it may name the sink

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise SchemaError for columns that the files or the names of the folders cannot hold."""
        check_partition_columns(schema, self.partition_by)
        if self.format.check is not None:
            self.format.check(schema)

    def open(
        self, schema: pa.Schema, sink: str, *, resume: bool = False, link: OutputLink | None = None
    ) -> _Output:
        """Begin an output. `resume` continues that of the same sink after a restart from a checkpoint.

        link  ties it to that checkpoint
        """
        self.check_schema(schema)
        with self.translate_errors():
            if self.folder.exists() and not self.folder.is_dir():
                target, suffix = self.target
                raise ConnectorError(
                    f'"{self.folder}" is a file, and {target} needs a folder',
                    hint=f'write to "{self.folder}.{suffix}/"',
                )
            (self.folder / METADATA).mkdir(parents=True, exist_ok=True)
            lock = lock_file(self.folder / METADATA / self.lock.format(sink=quote(sink, safe="")))
            if lock is None:
                raise self.other_run(sink)
            try:
                return self._begin(schema, sink, resume, lock, link)
            except BaseException:
                lock.close()
                raise

    def open_linked(self, schema: pa.Schema, sink: str, link: OutputLink, *, resume: bool) -> _Output:
        """Begin an output of a run with a checkpoint."""
        return self.open(schema, sink, resume=resume, link=link)

    def describe(self) -> str:
        """Return such as `jsonl late/`, or `parquet out/ by country`."""
        partitions = f" by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"{self.format.name} {self.folder}/{partitions}"

    def stage(self, schema: pa.Schema, tag: str) -> FolderStage:
        """Begin files in a folder that another process has open, which publishes them.

        The tag names the files, so no two stages of any run may have the same. A relative path of the folder
        counts from the working folder of this process. Raises if this process cannot write there.
        """
        place = self.folder / self.prepared
        with translate_os_errors(self.folder, REACH):
            if not place.is_dir():
                raise OSError(errno.ENOENT, f'"{self.prepared}" does not exist on {os.uname().nodename}')
            if not os.access(place, os.W_OK | os.X_OK):
                raise OSError(errno.EACCES, f"{os.strerror(errno.EACCES)} on {os.uname().nodename}")
        return FolderStage(self, schema, tag, hint=REACH)

    def stored_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns as they are written."""
        return schema

    def place(self, folder: str) -> Path:
        """Return the folder that files with the rows of a partition folder are written to."""
        return self.folder / STAGED

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn errors of the operating system into ones that name the folder."""
        return translate_os_errors(self.folder)

    @abstractmethod
    def other_run(self, sink: str) -> ConnectorError:
        """Return the error for a folder that another run writes to."""

    @abstractmethod
    def _begin(
        self, schema: pa.Schema, sink: str, resume: bool, lock: IO[str], link: OutputLink | None
    ) -> _Output:
        """Prepare the folder, which is locked, and return its output."""


class StagedFile(Frozen):
    """A whole file in the staged folder.

    path     its name there
    folder   the partition folder below the output folder where it belongs; empty without partitions
    """

    path: str
    folder: str
    n_rows: int
    n_bytes: int


@dataclass(slots=True)
class _OpenFile:
    path: Path
    encoder: FileEncoder
    n_rows: int = 0


class FolderStage:
    """The files of one batch, or of one task's part of it, while they are written.

    Rows are divided by partition folder. When a file has the most rows it may have, another is begun.
    """

    def __init__(self, writer: FileWriter[Any], schema: pa.Schema, tag: str, *, hint: str = _HINT) -> None:
        self._format, self._folder, self._place, self._tag = writer.format, writer.folder, writer.place, tag
        self._partition_by, self._max_rows = writer.partition_by, writer.max_rows_per_file
        stored = writer.stored_schema(schema)
        self._cast_to = None if stored == schema else stored
        self._schema = pa.schema([field for field in stored if field.name not in writer.partition_by])
        self._hint = hint
        self._open_files: dict[str, _OpenFile] = {}  # by partition folder; the last one had rows last
        self._paths: list[Path] = []  # of all files, in the order of their creation
        self._files: dict[Path, StagedFile] = {}  # those that are complete

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows to the files of their partition folders."""
        if not rows.num_rows:
            return
        if self._cast_to is not None:
            rows = rows.cast(self._cast_to)
        with translate_os_errors(self._folder, self._hint):
            if not self._partition_by:
                self._append("", rows)
                return
            for folder, part in split_by_partition(rows, self._partition_by):
                self._append(folder, part)

    def close(self) -> list[StagedFile]:
        """Complete the files, make their content durable, and return all of them, the first one first."""
        with translate_os_errors(self._folder, self._hint):
            for folder in list(self._open_files):
                self._complete(folder)
        return [self._files[path] for path in self._paths]

    def abort(self) -> None:
        """Remove all files, also the complete ones."""
        for file in self._open_files.values():
            with suppress(OSError, pa.ArrowException):  # what could not be written is removed anyway
                file.encoder.close()
        self._open_files.clear()
        with translate_os_errors(self._folder, self._hint):
            for path in self._paths:
                path.unlink(missing_ok=True)
        self._paths.clear()

    def _append(self, folder: str, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            file = self._open_files.pop(folder, None) or self._create(folder)
            self._open_files[folder] = file
            if len(self._open_files) > MAX_OPEN_FILES:
                self._complete(next(iter(self._open_files)))
            n_rows = rows.num_rows if self._max_rows is None else self._max_rows - file.n_rows
            head, rows = rows.slice(0, n_rows), rows.slice(n_rows)
            file.encoder.write_batch(head)
            file.n_rows += head.num_rows
            if file.n_rows == self._max_rows:
                self._complete(folder)

    def _create(self, folder: str) -> _OpenFile:
        suffix = self._format.suffix or self._format.name
        place = self._place(folder)
        if place != self._folder / STAGED:  # that one is prepared, and must not vanish
            place.mkdir(parents=True, exist_ok=True)
        path = place / f"{self._tag}-{len(self._paths)}.{suffix}"
        self._paths.append(path)
        return _OpenFile(path, self._format.create(path, self._schema))

    def _complete(self, folder: str) -> None:
        file = self._open_files[folder]
        file.encoder.close()
        sync_path(file.path)
        del self._open_files[folder]
        n_bytes = file.path.stat().st_size
        self._files[file.path] = StagedFile(file.path.name, folder, file.n_rows, n_bytes)


class StagingOutput(ABC):
    """An output that publishes staged files, and stages in this process the rows which come to itself.

    schema  of the rows
    tag     begins the tags of its stages
    """

    hint: ClassVar[str] = _HINT  # where its folder cannot be written

    def __init__(
        self,
        writer: FileWriter[Any],
        schema: pa.Schema,
        *,
        tag: str = "",
        lock: IO[str] | None = None,
        link: OutputLink | None = None,
    ) -> None:
        self._writer, self._folder, self._schema = writer, writer.folder, schema
        self._tag, self._lock, self._link = tag, lock, link
        self._stages: dict[int, FolderStage] = {}
        self._n_stages = 0
        self._last: int | None = None  # the last batch that is committed

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Append to the batch's staged files, unless the batch is committed."""
        if not rows.num_rows or self._is_committed(batch):
            return
        if batch not in self._stages:
            # Why a count: were a batch staged twice, a file that is being published would be overwritten.
            self._n_stages += 1
            tag = f"{self._tag}{batch:08d}-{self._n_stages}"
            self._stages[batch] = FolderStage(self._writer, self._schema, tag, hint=self.hint)
        self._stages[batch].write(rows)

    def commit(self, batch: int) -> None:
        """Make the batch's files visible, unless it is committed."""
        files = self._stages[batch].close() if batch in self._stages else []
        self._stages.pop(batch, None)  # first, because what is still a stage is removed in the end
        self.publish(batch, files)

    def publish(self, batch: int, files: Sequence[StagedFile]) -> None:
        """Commit a batch of files that stages have completed; remove them if it is committed already.

        Without files nothing is recorded.
        """
        paths = [self._writer.place(file.folder) / file.path for file in files]
        with self._writer.translate_errors():
            if files and not self._is_committed(batch):
                for path, file in zip(paths, files, strict=True):
                    check_staged(path, file)
                self._publish_files(batch, files, paths)
                if self._link is not None:
                    self._link.record(batch)
                return
            for path in paths:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove what was not committed, and release the lock."""
        try:
            for stage in self._stages.values():
                stage.abort()
            self._stages.clear()
            with suppress(OSError):  # whatever is left here, the next run removes
                self._clean()
        finally:
            if self._lock is not None:
                self._lock.close()

    def _is_committed(self, batch: int) -> bool:
        return self._last is not None and batch <= self._last

    @abstractmethod
    def _publish_files(self, batch: int, files: Sequence[StagedFile], paths: Sequence[Path]) -> None:
        """Make whole files visible as those of a batch, all or none, and record that it is committed."""

    def _clean(self) -> None:
        """Remove what the run leaves in the folder beside its stages."""
        return


def check_staged(path: Path, file: StagedFile) -> None:
    """Raise unless the file is here and whole."""
    n_bytes = path.stat().st_size if path.exists() else None
    if n_bytes != file.n_bytes:
        size = "does not exist" if n_bytes is None else f"has {n_bytes:,} bytes"
        raise ConnectorError(
            f'"{path}" {size}, and a file of {file.n_bytes:,} bytes was staged there', hint=REACH
        )


def replace_file(path: Path, text: str, pass_point: Callable[[str], None] = lambda point: None) -> None:
    """Replace a file as a whole, durably, so that it is either the old one or the new one.

    pass_point  told when the new one is written, and when it has the name
    """
    staged = path.with_name(f".{path.name}.tmp")
    with staged.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    pass_point(crash_points.STAGED)
    staged.replace(path)
    pass_point(crash_points.RENAMED)
    sync_path(path.parent)


_SEAL = re.compile(r'\{"check": "([0-9a-f]{16})", "body": (.*)\}\n?', re.DOTALL)


def seal(body: object, before: str = "") -> str:
    """Return plain data as a line of JSON with its checksum.

    before  the checksum of the line before it, where lines are a chain
    """
    text = json.dumps(body)
    return f'{{"check": "{xxhash.xxh3_64_hexdigest((before + text).encode())}", "body": {text}}}'


def unseal(text: str, before: str = "") -> tuple[Any, str]:
    """Return what was sealed, and its checksum; raise ValueError if it is damaged."""
    match = _SEAL.fullmatch(text)
    if match is None:
        raise ValueError("it is no line of JSON with a checksum")
    check, body = match.groups()
    # Checkpoints of format 3 and before had the body as a text in JSON.
    content = json.loads(body)
    sealed = content if isinstance(content, str) else before + body
    if xxhash.xxh3_64_hexdigest(sealed.encode()) != check:
        raise ValueError("its checksum does not fit")
    return (json.loads(content) if isinstance(content, str) else content), check


def lock_file(path: Path) -> IO[str] | None:
    """Return the file, locked for as long as it is open; None if another process has locked it."""
    # Why: the lock belongs to the open file, so it ends with the process, however that ends.
    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        lock.close()
        if isinstance(problem, BlockingIOError):
            return None
        raise
    return lock


def sync_path(path: Path) -> None:
    """Make the content of a file, or the renames in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def translate_os_errors(folder: Path, hint: str = _HINT) -> Iterator[None]:
    """Turn errors of the operating system into one that names the folder."""
    try:
        yield
    except OSError as problem:
        raise ConnectorError(
            f'"{folder}" cannot be written: {problem.strerror or problem}', hint=hint
        ) from problem
