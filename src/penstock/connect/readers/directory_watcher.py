"""Watch a folder: read the files that are there, then those that appear, for as long as the run goes on.

Files are read whole and once, so they must appear whole: written under a name that begins with `.` or `_`, or
elsewhere, and renamed. A file that changes after it was read stops the run, because its new rows would be
missed. Every second without a new file a round without rows comes, so that a run that waits can stop. Files
are read in the order in which they were seen; a run with a checkpoint notes that in a journal, and a run that
goes on reads by the journal first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa

from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers.file_journal import FileBatchPlanner, Journal, NoJournal
from penstock.connect.readers.files import (
    FileReader,
    InputFormat,
    Paths,
    build_file_reader,
    format_paths,
    list_files,
)
from penstock.errors import ConnectorError
from penstock.frozen import dataclass

POLL_S = 1.0
EMPTY_BATCHES_PER_ENTRY = 60
"""Batches without rows that are noted at once: a folder where nothing happens is noted once a minute."""


@dataclass(frozen=True, slots=True)
class DirectoryWatcher:
    """A folder that is watched; `reader` knows how to read its files.

    journal   what its batches are made of
    position  how many batches have been read by earlier runs, and how many rows in them
    """

    reader: FileReader
    folder: Path
    journal: Journal = field(default_factory=NoJournal)
    position: tuple[int, int] = (0, 0)

    by_files: ClassVar[bool] = True

    @property
    def schema(self) -> pa.Schema:
        """As declared, or as the first file has it."""
        return self.reader.columns

    @property
    def bounded(self) -> bool:
        """There may always be another file."""
        return False

    @property
    def delivery(self) -> Delivery:
        """Files can be read again, and a journal knows in which order."""
        return Delivery.EXACTLY_ONCE

    @property
    def keeps_raw(self) -> bool:
        """True for text formats."""
        return self.reader.keeps_raw

    def going_on(self, journal: Journal, position: tuple[int, int]) -> Self:
        """The same behind what has been read, with a journal of it."""
        return replace(self, journal=journal, position=position)

    def batches(self) -> Iterator[SourceBatch]:
        """All files: those noted and not done, those there by time and name, others as they appear."""
        start = self.position[1]
        for files in self._plan():
            batch = self.reader.together(files, start)
            start += batch.num_rows + len(batch.bad)
            yield batch

    def _plan(self) -> Iterator[list[Path]]:
        """The files of each batch; none for one without rows."""
        planned = FileBatchPlanner(self.journal, self.position[0], self.reader.files)
        yield from planned.again()
        while True:
            before = planned.number
            yield from planned.new(lambda: list_files(self.folder))
            if planned.number == before:
                planned.nothing(EMPTY_BATCHES_PER_ENTRY)
                time.sleep(POLL_S)
                yield []

    def describe(self) -> str:
        """Such as `csv events/ (watched)`."""
        return f"{self.reader.format.name} {format_paths(self.reader.paths)} (watched)"

    def reads_in(self, folder: Path) -> bool:
        """Whether files of the folder are meant."""
        return self.reader.reads_in(folder)


def build_reader(
    file_format: InputFormat,
    paths: Paths,
    schema: object,
    batch: int | None,
    files: int | None,
    *,
    follow: bool,
) -> FileReader | DirectoryWatcher:
    """A reader of the files that are there, or with `follow` also of those that will be."""
    if not follow:
        return build_file_reader(file_format, paths, schema, batch, files)
    if not isinstance(paths, str | Path) or not Path(paths).is_dir():
        raise ConnectorError(
            f"{paths!r:.80} is not a folder that can be watched", hint='name one that exists: "events/"'
        )
    if batch is not None:
        raise ConnectorError(
            f"batch={batch} would hold rows of a watched folder back until others come",
            hint="leave it out: every file is a batch; files= puts several together",
        )
    return DirectoryWatcher(build_file_reader(file_format, paths, schema, batch, files), Path(paths))
