"""Delta tables: every batch exactly once, as one commit of the table.

    events/country=DE/<tag>-0.parquet    rows; a file counts once a version of the table refers to it
    events/_delta_log/                   the versions of the table
    events/_penstock/<sink>.json         the id under which the sink commits
    events/_penstock/<sink>.lock         held while a run writes

Tasks write files in place, with pyarrow; nobody sees them. A commit adds them to the table together with the
number of their batch (Delta's transaction of an application), so that the table itself knows which batch was
the last. The library deltalake, which is needed only where the graph is started, does not compare that
number: whoever has the output open looks it up, and commits by the same view of the table. A second run that
commits under the same id fails thereby.

A run that is not resumed gets a new id, which it saves. Files that a crash leaves behind are in no version;
they are left to `vacuum(full=True)`, because an older version may need any other file that this one has not.

A table that exists is appended to. `overwrite=True` begins with a commit that removes all rows; the file of
the id says, before that commit, that it is to be made.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, ClassVar
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa

from penstock.connect.batching import check_size
from penstock.connect.protocol import OutputLink, OutputRecord
from penstock.connect.writers import delta_tables, staged_files
from penstock.connect.writers.folder import ParquetEncoder
from penstock.connect.writers.partition_folders import parse_partition_by
from penstock.connect.writers.staged_files import MAX_ROWS_PER_FILE, METADATA, StagedFile, sync_path
from penstock.crash_points import LISTED, PUBLISHED, WRITTEN, pass_crash_point
from penstock.errors import ConnectorError, describe_cause
from penstock.frozen import Frozen, dataclass

LOG = "_delta_log"
DELTA = staged_files.OutputFormat("delta", ParquetEncoder, delta_tables.check_fields, "parquet")
_VERSION = 2


@dataclass(frozen=True, slots=True)
class DeltaWriter(staged_files.FileWriter["DeltaOutput"]):
    """A writer into a Delta table, which is created if there is none."""

    target: ClassVar[tuple[str, str]] = ("a Delta table", "delta")
    prepared: ClassVar[str] = LOG
    lock: ClassVar[str] = "{sink}.lock"

    def stored_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns as a Delta table has them: times with a zone become those of UTC."""
        return delta_tables.to_delta_schema(schema)

    def place(self, folder: str) -> Path:
        """Return the final place of files."""
        return self.folder / folder

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn errors of Delta and of the operating system into ones that name the folder."""
        from deltalake.exceptions import DeltaError

        try:
            with staged_files.translate_os_errors(self.folder):
                yield
        except DeltaError as problem:
            # Why: the lines behind the first are those of the library's own program.
            raise ConnectorError(
                f'"{self.folder}" cannot be written as a Delta table: {str(problem).partition(chr(10))[0]}',
                detail=f"its log is {self.folder / LOG}",
                hint="see that the table can be read, or bring its log back from a backup, and restart",
            ) from problem

    def other_run(self, sink: str) -> ConnectorError:
        """Return the error for a table that another run writes to under the name of the sink."""
        return ConnectorError(
            f'another run writes sink "{sink}" to "{self.folder}"',
            hint="end one of the two, or give this sink another name",
        )

    def _begin(
        self, schema: pa.Schema, sink: str, resume: bool, lock: IO[str], link: OutputLink | None
    ) -> DeltaOutput:
        file = self.folder / METADATA / f"{quote(sink, safe='')}.json"
        return DeltaOutput(self, schema, sink, self._prepare_table(schema, file, resume, link), lock, link)

    def _prepare_table(self, schema: pa.Schema, file: Path, resume: bool, link: OutputLink | None) -> str:
        """Create the table, or see that it takes the rows and start it over if that is due; return the id."""
        from deltalake import DeltaTable, Schema

        delta_schema = Schema.from_arrow(delta_tables.to_delta_schema(schema))
        saved, run = SinkId.load(file) if resume else None, "" if link is None else link.run
        sink_id = saved or SinkId(uuid4().hex, replacing=self.overwrite and not resume, run=run)
        table = DeltaTable(self.folder) if DeltaTable.is_deltatable(str(self.folder)) else None
        if link is not None:
            committed = None if table is None else table.transaction_version(sink_id.app_id)
            link.check(file, None if saved is None else OutputRecord(saved.run, committed))
        if saved is not None and saved.run != run:
            saved = None  # it was of version 1
            sink_id = replace(sink_id, run=run, version=_VERSION)
        difference = None
        if table is None:
            for entry in sorted(self.folder.iterdir()):
                if not entry.name.startswith(".") and entry.name not in (METADATA, LOG):
                    raise ConnectorError(
                        f'"{self.folder}" holds "{entry.name}", and no Delta table',
                        hint="write to another folder, or empty this one",
                    )
        else:
            difference = delta_tables.describe_difference(table, delta_schema, self.partition_by)
            append_only = table.metadata().configuration.get("delta.appendOnly") == "true"
            if sink_id.replacing and append_only:
                raise ConnectorError(
                    f'"{self.folder}" holds a Delta table that only takes more rows (delta.appendOnly)',
                    hint="leave out overwrite=True, or write to another folder",
                )
        if difference is not None and not sink_id.replacing:
            raise ConnectorError(
                f'"{self.folder}" holds a Delta table that {difference}',
                hint="write to another folder, select or cast the columns of the table, "
                "or start it over: ps.write.delta(…, overwrite=True)",
            )
        if saved is None:
            sink_id.save(file)
        if table is None:
            DeltaTable.create(self.folder, delta_schema, partition_by=list(self.partition_by))
        elif sink_id.replacing and difference is None:
            table.create_write_transaction([], "overwrite", table.schema(), list(self.partition_by))
        elif sink_id.replacing:
            # Why: the transaction above would leave the columns that partition the table as they were.
            DeltaTable.create(
                self.folder, delta_schema, mode="overwrite", partition_by=list(self.partition_by)
            )
        # Why: the checkpoint will take it for granted that the table is there.
        sync_log(self.folder, 0)
        pass_crash_point(LISTED)
        if sink_id.replacing:
            replace(sink_id, replacing=False).save(file)
        return sink_id.app_id


class DeltaOutput(staged_files.StagingOutput):
    """The output of one run into a Delta table.

    Invariant: the table is as of this run's last commit or of the opening, so that a commit of another run
    under the same id makes the next one fail.
    """

    def __init__(
        self,
        writer: DeltaWriter,
        schema: pa.Schema,
        sink: str,
        app_id: str,
        lock: IO[str],
        link: OutputLink | None,
    ) -> None:
        from deltalake import DeltaTable

        super().__init__(writer, schema, tag=f"{uuid4().hex}-", lock=lock, link=link)
        self._sink, self._app_id = sink, app_id
        self._table = DeltaTable(self._folder)
        self._last = self._table.transaction_version(app_id)

    @property
    def last_committed(self) -> int | None:
        """Return the last batch that the table has under the id of the sink; None before the first."""
        return self._last

    def _publish_files(self, batch: int, files: Sequence[StagedFile], paths: Sequence[Path]) -> None:
        actions = [self._build_action(file, path) for file, path in zip(files, paths, strict=True)]
        # The names of the files must be durable, and those of the partition folders above them.
        for folder in {parent for path in paths for parent in path.parents}:
            if folder.is_relative_to(self._folder):
                sync_path(folder)
        pass_crash_point(WRITTEN)
        self._commit(batch, actions)
        pass_crash_point(PUBLISHED)

    def _commit(self, batch: int, actions: list[Any]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        version = self._table.version()
        properties = CommitProperties(app_transactions=[Transaction(self._app_id, batch)])
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                list(self._writer.partition_by),
                commit_properties=properties,
            )
        except CommitFailedError as problem:
            if "Concurrent transaction" in str(problem):
                raise self._writer.other_run(self._sink) from problem
            raise
        self._table.update_incremental()
        if self._table.transaction_version(self._app_id) != batch:
            raise self._writer.other_run(self._sink)
        # Why: the checkpoint goes on behind this batch, so the commit must outlive the machine too.
        sync_log(self._folder, version + 1)
        self._last = batch

    def _build_action(self, file: StagedFile, path: Path) -> Any:
        from deltalake.transaction import AddAction

        return AddAction(
            str(path.relative_to(self._folder)),
            file.n_bytes,
            delta_tables.parse_partition_values(file.folder, self._writer.partition_by, self._schema),
            int(time.time() * 1_000),
            True,
            json.dumps(delta_tables.collect_statistics(path, self._schema)),
        )


def sync_log(folder: Path, first: int) -> None:
    """Make the versions of a table durable, from a number on; others may clean the log meanwhile."""
    for file in (folder / LOG).glob("*.json"):
        if file.stem.isdigit() and int(file.stem) >= first:
            with suppress(FileNotFoundError):
                sync_path(file)
    sync_path(folder / LOG)


class SinkId(Frozen):
    """The id under which a sink commits, saved in the table's folder.

    replacing  the rows of the table are yet to be removed
    run        the identity of the checkpoint that the sink belongs to; empty without one
    """

    app_id: str
    replacing: bool
    version: int = _VERSION
    run: str = ""

    @classmethod
    def load(cls, file: Path) -> SinkId | None:
        """Return what is saved, or None when nothing is."""
        if not file.exists():
            return None
        try:
            text = file.read_text("utf-8")
            # Version 1 had no checksum.
            is_sealed = text.startswith('{"check"')
            sink_id = cls(**(staged_files.unseal(text)[0] if is_sealed else json.loads(text)))
            if sink_id.version == (_VERSION if is_sealed else _VERSION - 1):
                return sink_id
            known = f"{_VERSION - 1} and {_VERSION}"
            problem: object = f"it has version {sink_id.version}, and this build knows {known}"
        except (ValueError, TypeError) as cause:
            problem = describe_cause(cause)
        raise ConnectorError(
            f'"{file}" cannot be used: {problem}',
            hint="bring the file back from a backup; or start anew with an empty checkpoint folder and "
            "another table, which reads all input again",
        )

    def save(self, file: Path) -> None:
        """Replace what is saved."""
        staged_files.replace_file(file, staged_files.seal(asdict(self)))


def delta(
    path: str | os.PathLike[str],
    *,
    partition_by: str | Sequence[str] | None = None,
    overwrite: bool = False,
    max_rows_per_file: int | None = MAX_ROWS_PER_FILE,
) -> DeltaWriter:
    """Append to a Delta table, each batch that has rows as one commit, exactly once.

    A table that does not exist is created. One that does must have the same columns, in any order. A sink of
    a resumed run is known by its name: no other program may write to the table under that name.

    partition_by       columns whose values name folders; they must be those of a table that exists
    overwrite          begin by a commit that removes all rows; the columns may differ then
    max_rows_per_file  a batch with more rows has several files; None: never
    """
    if find_spec("deltalake") is None:
        raise ConnectorError(
            "ps.write.delta needs the package deltalake, which is not installed",
            hint='pip install "penstock[delta]"',
        )
    if not isinstance(path, str | os.PathLike):
        raise ConnectorError(f"{path!r:.80} is not a path", hint='name a folder: ps.write.delta("events/")')
    if "://" in str(path):
        raise ConnectorError(
            f'"{path}" is an address, and ps.write.delta writes to folders',
            hint="mount it as a folder, or write by Spark: ps.write.spark(function)",
        )
    columns = parse_partition_by(partition_by)
    max_rows = check_size("max_rows_per_file", max_rows_per_file)
    return DeltaWriter(DELTA, Path(path), overwrite, columns, max_rows)
