"""Watch a folder: read the files that are there, then those that appear, until the run stops.

Files are read whole and once, so they must appear whole: written under a name that begins with `.` or `_`, or
elsewhere, and renamed. A file that changes after it was read stops the run, because its new rows would be
missed. Every second without a new file there is a batch without rows, so that a run that waits can stop.
Files are read in the order in which they were seen; a run with a checkpoint records that in a journal, and a
run that resumes reads by the journal first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa

from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers.file_batches import FileBatchPlanner, Journal
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
"""Batches without rows that share a journal entry: a folder where nothing happens has one a minute."""


@dataclass(frozen=True, slots=True)
class DirectoryWatcher:
    """A folder that is watched; `reader` knows how to read its files.

    journal   which files its batches are made of
    position  the number of batches that earlier runs have read, and of the rows in them
    """

    reader: FileReader
    folder: Path
    journal: Journal | None = None
    position: tuple[int, int] = (0, 0)

    bounded: ClassVar[bool] = False
    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    batches_are_files: ClassVar[bool] = True

    @property
    def schema(self) -> pa.Schema:
        """Return the declared schema, or that of the first file."""
        return self.reader.schema

    @property
    def keeps_raw(self) -> bool:
        """True for text formats."""
        return self.reader.keeps_raw

    def resume(self, journal: Journal, position: tuple[int, int]) -> Self:
        """Returns a reader that begins after the position and records its files in a journal."""
        return replace(self, journal=journal, position=position)

    def batches(self) -> Iterator[SourceBatch]:
        """Reads the files of the journal, those that are there, by time and name, then new ones."""
        start = self.position[1]
        for files in self._plan_batches():
            batch = self.reader.read_batch(files, start)
            start += batch.num_rows + len(batch.bad)
            yield batch

    def _plan_batches(self) -> Iterator[list[Path]]:
        planner = FileBatchPlanner(self.journal, self.position[0], self.reader.files)
        yield from planner.replay()
        while True:
            before = planner.number
            yield from planner.plan_new(lambda: list_files(self.folder))
            if planner.number == before:
                planner.plan_empty(EMPTY_BATCHES_PER_ENTRY)
                time.sleep(POLL_S)
                yield []

    def describe(self) -> str:
        """Returns such as `csv events/ (watched)`."""
        return f"{self.reader.format.name} {format_paths(self.reader.paths)} (watched)"

    def reads_from(self, folder: Path) -> bool:
        """Returns whether it reads files of the folder."""
        return self.reader.reads_from(folder)


def build_reader(
    file_format: InputFormat,
    paths: Paths,
    schema: object,
    batch: int | None,
    files: int | None,
    *,
    follow: bool,
) -> FileReader | DirectoryWatcher:
    """Returns a reader of the files that are there, or with `follow` also of those that will appear."""
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
