"""Writers of files into a folder: every batch exactly once.

    out/part-00000007-00000.parquet             a committed batch: its number, and that of the file in it
    out/country=DE/part-00000007-00000.parquet  the same with partition_by=("country",)
    out/_penstock/staged/                       files being written; the next run removes what is left
    out/_penstock/manifest.json                 the sink of this output, the last batch that is committed, and
                                                the names that its staged files get
    out/_penstock/lock                          held while a run writes

Readers skip names that begin with `_`. A batch that has no rows has no file.

A commit is one replacement of the manifest, written ahead: it says that the batch is committed, and what its
staged files, which are whole, are to be named. Then they are renamed. A crash before the manifest leaves
nothing visible; after it, the next run finishes the renames first. A staged file that is gone by then has
been renamed already, and perhaps moved away by the user: a batch that is committed is never written again.

Invariant: batches commit in rising order; a manifest is replaced only when the renames of the last are done.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa

from penstock.connect.batching import check_size
from penstock.connect.protocol import STOP_REQUESTED, OpeningStopped, OutputLink, OutputRecord
from penstock.connect.writers import staged_files
from penstock.connect.writers.partition_folders import column_prefix, parse_partition_by
from penstock.connect.writers.staged_files import MAX_ROWS_PER_FILE, METADATA, STAGED, OutputFormat, sync_path
from penstock.crash_points import LISTED, PUBLISHED, WRITTEN, pass_crash_point
from penstock.errors import ConnectorError, describe_cause
from penstock.frozen import Frozen, dataclass

_VERSION = 3
MANIFEST = f"{METADATA}/manifest.json"
_PART = re.compile(r"part-\d{8,}-\d{5,}\.\w+")
_EMPTY = "write to another folder, or empty this one"
_RESTORE = (
    "bring the file back from a backup; or start anew with an empty output folder, and an empty checkpoint "
    "folder if the run has one"
)
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 1 << 26
"""Rows, and bytes, after which a parquet file begins another row group."""


@dataclass(frozen=True, slots=True)
class FolderWriter(staged_files.FileWriter["FolderOutput"]):
    """A writer of files into a folder."""

    def other_run(self, sink: str) -> ConnectorError:
        """Return the error for a folder that is locked, whichever sink has locked it."""
        return ConnectorError(
            f'"{self.folder}" is being written by another sink or run',
            detail=f"which has locked {self.folder / METADATA / self.lock}",
            hint="give each sink a folder of its own",
        )

    def _begin(
        self, schema: pa.Schema, sink: str, resume: bool, lock: IO[str], link: OutputLink | None
    ) -> FolderOutput:
        columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
        run = "" if link is None else link.run
        ours = Manifest(self.format.name, sink, columns, self.partition_by, run=run)
        return FolderOutput(self, schema, self._prepare_folder(ours, resume, link), lock, link)

    def _prepare_folder(self, ours: Manifest, resume: bool, link: OutputLink | None) -> Manifest:
        """Finish or remove what a crash or an earlier run left, and return the manifest to continue with."""
        theirs = Manifest.load(self.folder)
        if link is not None:
            link.check(self.folder / MANIFEST, None if theirs is None else theirs.record)
        if resume and theirs is not None and not theirs.may_become(ours):
            raise self._refusal(theirs.describe_difference(ours), _EMPTY)
        parts, folders, foreign = _list_contents(self.folder, () if theirs is None else theirs.partition_by)
        if foreign or (parts and theirs is None):
            name = [*foreign, *parts][0].relative_to(self.folder)
            raise ConnectorError(
                f'"{self.folder}" holds "{name}", which is no output of this graph',
                detail=f"{self.folder / MANIFEST} {'is not there' if theirs is None else 'has not got it'}",
                hint=_EMPTY,
            )
        (self.folder / STAGED).mkdir(exist_ok=True)
        if resume and theirs is not None:
            # Files from now on have the columns that the program has now.
            now = replace(theirs, publishing=(), columns=ours.columns, run=ours.run, version=_VERSION)
            if now != theirs:
                rename_files(self.folder, theirs.publishing)
                theirs = now
                theirs.save(self.folder)
            remove_staged_files(self.folder)
            return theirs
        if (parts or (theirs is not None and theirs.committed is not None)) and not self.overwrite:
            hint = f"write to another folder, or start over: ps.write.{self.format.name}(…, overwrite=True)"
            if theirs is not None and theirs.run:
                hint = "write to another folder, or continue that run with the checkpoint that it had"
            raise self._refusal("holds the output of an earlier run", hint)
        is_stopping = STOP_REQUESTED.get()
        for part in parts:
            if is_stopping():  # Why: many files take long, and the next run clears the rest
                raise OpeningStopped
            part.unlink()
        for folder in reversed(folders):
            with suppress(OSError):  # it holds hidden files of others
                folder.rmdir()
        remove_staged_files(self.folder)
        ours.save(self.folder)
        return ours

    def _refusal(self, why: str, hint: str) -> ConnectorError:
        return ConnectorError(f'"{self.folder}" {why}', detail=f"as {self.folder / MANIFEST} says", hint=hint)


class FolderOutput(staged_files.StagingOutput):
    """The output of one run into a folder."""

    def __init__(
        self,
        writer: FolderWriter,
        schema: pa.Schema,
        manifest: Manifest,
        lock: IO[str],
        link: OutputLink | None,
    ) -> None:
        super().__init__(writer, schema, lock=lock, link=link)
        self._manifest, self._last = manifest, manifest.committed
        self._published = True  # the manifest is saved, and its files are renamed

    @property
    def last_committed(self) -> int | None:
        """Return the last batch that the manifest records; None before the first."""
        return self._last

    def publish(self, batch: int, files: Sequence[staged_files.StagedFile]) -> None:
        """Commit a batch of files, once an earlier commit that failed on its way is complete."""
        if not self._published:
            with self._writer.translate_errors():
                self._publish()
        super().publish(batch, files)

    def _publish_files(
        self, batch: int, files: Sequence[staged_files.StagedFile], paths: Sequence[Path]
    ) -> None:
        # Invariant: the files are here. One that is listed and is not counts as renamed: its rows were lost.
        suffix = self._writer.format.name
        publishing = tuple(
            (
                file.path,
                str(PurePosixPath(file.folder, f"part-{batch:08d}-{index:05d}.{suffix}")),
                file.n_bytes,
            )
            for index, file in enumerate(files)
        )
        for folder in {file.folder for file in files}:
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        sync_path(self._folder / STAGED)
        pass_crash_point(WRITTEN)
        head = {} if self._link is None else self._link.read_head()
        self._manifest = replace(self._manifest, committed=batch, publishing=publishing, head=head)
        self._last, self._published = batch, False
        self._publish()

    def _publish(self) -> None:
        """Save the manifest, and then rename the files that it lists."""
        self._manifest.save(self._folder)
        pass_crash_point(LISTED)
        rename_files(self._folder, self._manifest.publishing)
        self._published = True

    def _clean(self) -> None:
        if self._published:
            if self._manifest.publishing:
                self._manifest = replace(self._manifest, publishing=())
                self._manifest.save(self._folder)
            remove_staged_files(self._folder)


class Manifest(Frozen):
    """The output of one sink, saved beside the data.

    committed   the last batch whose files are all visible or listed
    publishing  the files of the last commit: their names in the staged folder and below the output folder,
                and their sizes in bytes
    run         the identity of the checkpoint that this output belongs to; empty without one
    head        how far that checkpoint was at the last commit

    It is replaced as a whole, so it is either the old one or the new one.
    """

    format: str
    sink: str
    columns: str
    partition_by: tuple[str, ...] = ()
    committed: int | None = None
    publishing: tuple[tuple[str, str, int], ...] = ()
    version: int = _VERSION
    run: str = ""
    head: Mapping[str, Any] = field(default_factory=dict)

    @property
    def record(self) -> OutputRecord:
        """Return what a checkpoint is compared with."""
        return OutputRecord(self.run, self.committed, self.head)

    @classmethod
    def load(cls, folder: Path) -> Manifest | None:
        """Return the folder's manifest, or None when it has none."""
        file = folder / MANIFEST
        if not file.exists():
            return None
        try:
            text = file.read_text("utf-8")
            # Version 2 had no checksum.
            is_sealed = text.startswith('{"check"')
            fields = staged_files.unseal(text)[0] if is_sealed else json.loads(text)
            if fields["version"] == (_VERSION if is_sealed else _VERSION - 1):
                fields["partition_by"] = tuple(fields["partition_by"])
                fields["publishing"] = tuple(
                    (str(staged), str(name), *map(int, n_bytes))
                    for staged, name, *n_bytes in fields["publishing"]
                )
                return cls(**fields)
        except (ValueError, TypeError, KeyError) as problem:
            raise ConnectorError(
                f'"{file}" is damaged: {describe_cause(problem)}', hint=_RESTORE
            ) from problem
        raise ConnectorError(
            f'"{file}" has version {fields["version"]}, and this build knows {_VERSION - 1} and {_VERSION}',
            detail="another version of Penstock wrote this folder, and names its files otherwise",
            hint=f"resume the run with that version; or {_EMPTY}",
        )

    def save(self, folder: Path) -> None:
        """Replace the folder's manifest."""
        staged_files.replace_file(folder / MANIFEST, staged_files.seal(asdict(self)))

    def may_become(self, other: Manifest) -> bool:
        """Return whether a run may go on with another output: only columns may be added, or be left out."""
        before, now = _split_columns(self.columns), _split_columns(other.columns)
        stays = all(now.get(name, type_) == type_ for name, type_ in before.items())
        blank = replace(self, columns=other.columns, committed=None, publishing=())
        return stays and replace(blank, head={}, run=other.run, version=_VERSION) == other

    def describe_difference(self, other: Manifest) -> str:
        """Say how this output differs from the other, in words that follow the folder's name."""
        if self.sink != other.sink:
            return f'holds the output of sink "{self.sink}", not "{other.sink}"'
        if self.partition_by != other.partition_by:
            return f"holds files partitioned by {', '.join(self.partition_by) or 'no column'}"
        return f"holds {self.format} files with the columns {self.columns}"


def _split_columns(columns: str) -> dict[str, str]:
    """Return the type of each column, from their list; commas inside of a type do not count."""
    fields, depth, start = [], 0, 0
    for place, letter in enumerate(columns):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            fields.append(columns[start:place])
            start = place + 1
    named = (field.strip().partition(": ") for field in [*fields, columns[start:]])
    return {name: type_ for name, _, type_ in named}


def _list_contents(folder: Path, partition_by: Sequence[str]) -> tuple[list[Path], list[Path], list[Path]]:
    """Return our files in an output folder, its partition folders, upper ones first, and what is not ours.

    Hidden files are left out.
    """
    parts, folders, foreign = list[Path](), list[Path](), list[Path]()
    waiting = [(folder, 0)]
    for place, level in waiting:  # which grows meanwhile
        for entry in sorted(place.iterdir()):
            if entry.name.startswith(".") or entry == folder / METADATA:
                continue
            if level == len(partition_by):
                (parts if _PART.fullmatch(entry.name) else foreign).append(entry)
            elif entry.name.startswith(column_prefix(partition_by[level])) and entry.is_dir():
                folders.append(entry)
                waiting.append((entry, level + 1))
            else:
                foreign.append(entry)
    return parts, folders, foreign


def rename_files(folder: Path, publishing: Iterable[tuple[Any, ...]]) -> None:
    """Give staged files their visible names, durably; those that are gone have them already."""
    changed = {folder}
    for staged, name, *n_bytes in publishing:
        part = folder / name
        if (folder / STAGED / staged).exists():
            size = (folder / STAGED / staged).stat().st_size
            if n_bytes and [size] != n_bytes:
                raise ConnectorError(
                    f'"{folder / STAGED / staged}" has {size:,} bytes, and it had {n_bytes[0]:,}',
                    hint=_RESTORE,
                )
            part.parent.mkdir(parents=True, exist_ok=True)
            (folder / STAGED / staged).replace(part)
            pass_crash_point(PUBLISHED)
        changed.update(parent for parent in part.parents if parent.is_relative_to(folder))
    for path in changed:
        with suppress(FileNotFoundError):  # users may move files away, and remove an empty folder
            sync_path(path)


def remove_staged_files(folder: Path) -> None:
    """Remove what is in the staged folder: files, and the folders in which Spark stages by itself."""
    for entry in (folder / STAGED).iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)


def build_folder_writer(
    file_format: OutputFormat,
    path: str | os.PathLike[str],
    overwrite: bool,
    partition_by: str | Sequence[str] | None,
    max_rows_per_file: int | None,
) -> FolderWriter:
    """Return a writer of the format into the folder."""
    if not isinstance(path, str | os.PathLike):
        raise ConnectorError(
            f"{path!r:.80} is not a path", hint=f'name a folder: ps.write.{file_format.name}("out/")'
        )
    columns = parse_partition_by(partition_by)
    max_rows = check_size("max_rows_per_file", max_rows_per_file)
    return FolderWriter(file_format, Path(path), overwrite, columns, max_rows)


def parquet(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    partition_by: str | Sequence[str] | None = None,
    max_rows_per_file: int | None = MAX_ROWS_PER_FILE,
) -> FolderWriter:
    """Write parquet files into a folder, for each batch that has rows, exactly once.

    A folder with an earlier run's output is refused, unless `overwrite=True` starts it over.

    partition_by       columns whose values name folders, `out/country=DE/`; they are left out of the files
    max_rows_per_file  a batch with more rows has several files; None: never
    """
    return build_folder_writer(PARQUET, path, overwrite, partition_by, max_rows_per_file)


class ParquetEncoder:
    """A parquet file as Arrow writes it; small batches of rows share a row group."""

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._schema, self._writer = schema, pq.ParquetWriter(file, schema)
        self._pending: list[pa.RecordBatch] = []

    def write_batch(self, rows: pa.RecordBatch) -> None:
        """Append rows."""
        self._pending.append(rows)
        n_rows = sum(batch.num_rows for batch in self._pending)
        if n_rows >= _GROUP_ROWS or sum(batch.nbytes for batch in self._pending) >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is buffered, and close the file."""
        try:
            self._flush()
        finally:
            self._writer.close()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self._writer.write_table(pa.Table.from_batches(pending, schema=self._schema))


PARQUET = OutputFormat("parquet", ParquetEncoder)
