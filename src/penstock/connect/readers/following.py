"""Watch a folder: read the files that are there, then those that appear, for as long as the run goes on.

Files are read whole and once, so they must appear whole: written under a name that begins with `.` or `_`, or
elsewhere, and renamed. A file that changes after it was read stops the run, because its new rows would be
missed. Every second without a new file a round without rows comes, so that a run that waits can stop. The
order of files is the order in which they were seen, which nobody could repeat: delivery is at most once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.connect.cuts import by_files, together
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers.files import FileFormat, FileReader, file_reader
from penstock.connect.readers.listing import Paths, listed, shown
from penstock.errors import ConnectorError

QUIET_S = 1.0

Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FollowingReader:
    """A folder that is watched; `reader` knows how to read its files."""

    reader: FileReader
    folder: Path

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
        """Which file was seen before which cannot be found out again."""
        return Delivery.AT_MOST_ONCE

    @property
    def keeps_raw(self) -> bool:
        """True for text formats."""
        return self.reader.keeps_raw

    def batches(self) -> Iterator[SourceBatch]:
        """All files, those that are there by time and name, the others as they appear."""
        seen: dict[Path, Stamp] = {}
        start = 0
        while True:
            new = self._new(seen)
            for batch in by_files(self.reader.pieces(new, start), self.schema, self.reader.files):
                start += batch.num_rows + len(batch.bad)
                yield batch
            if not new:
                time.sleep(QUIET_S)
                yield together([], self.schema)

    def describe(self) -> str:
        """Such as `csv events/ (watched)`."""
        return f"{self.reader.format.name} {shown(self.reader.paths)} (watched)"

    def reads_in(self, folder: Path) -> bool:
        """Whether files of the folder are meant."""
        return self.reader.reads_in(folder)

    def _new(self, seen: dict[Path, Stamp]) -> list[Path]:
        """Files that were not there before, which are seen from now on."""
        new = []
        for file in listed(self.folder):
            stamp = _stamp(file)
            if file not in seen:
                new.append(file)
            elif seen[file] != stamp:
                raise ConnectorError(
                    f'"{file}" changed after it was read',
                    detail="a watched file is read once, when it appears",
                    hint="write it under a name that begins with a dot, and rename it when it is whole",
                )
            seen[file] = stamp
        return new


def file_or_folder_reader(
    file_format: FileFormat,
    paths: Paths,
    schema: object,
    batch: int | None,
    files: int | None,
    *,
    follow: bool,
) -> FileReader | FollowingReader:
    """A reader of the files that are there, or with `follow` also of those that will be."""
    if not follow:
        return file_reader(file_format, paths, schema, batch, files)
    if not isinstance(paths, str | Path) or not Path(paths).is_dir():
        raise ConnectorError(
            f"{paths!r:.80} is not a folder that can be watched", hint='name one that exists: "events/"'
        )
    if batch is not None:
        raise ConnectorError(
            f"batch={batch} would hold rows of a watched folder back until others come",
            hint="leave it out: every file is a batch; files= puts several together",
        )
    return FollowingReader(file_reader(file_format, paths, schema, batch, files), Path(paths))


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except FileNotFoundError:
        return (0, 0)  # listed a moment ago: reading it will say so
    return found.st_size, found.st_mtime_ns
