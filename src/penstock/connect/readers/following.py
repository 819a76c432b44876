"""Watch a folder: read the files that are there, then those that appear, for as long as the run goes on.

Files are read whole and once, so they must appear whole: written under a name that begins with `.` or `_`, or
elsewhere, and renamed. A file that changes after it was read stops the run, because its new rows would be
missed. Every second without a new file a round without rows comes, so that a run that waits can stop. Files
are read in the order in which they were seen; a run with a checkpoint notes that in a journal, and a run that
goes on reads by the journal first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import pyarrow as pa

from penstock.connect.cuts import by_files, together
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers.files import FileFormat, FileReader, file_reader
from penstock.connect.readers.listing import Paths, listed, shown
from penstock.errors import ConnectorError

QUIET_S = 1.0
QUIET_AHEAD = 60
"""Batches without rows that are noted at once: a folder where nothing happens is noted once a minute."""

Stamp = tuple[int, int]
_GONE: Stamp = (0, 0)


class SeenFile(NamedTuple):
    """A file that was read, with its size and time of change."""

    path: str
    size: int
    changed_ns: int


class Noted(NamedTuple):
    """Files that made the batch before number `until`; without any, batches up to there have no rows."""

    until: int
    files: tuple[SeenFile, ...] = ()

    @classmethod
    def of(cls, until: int, files: Iterable[Iterable[object]]) -> Self:
        """A note that was read back; a ValueError or TypeError if it is none."""
        found = tuple(SeenFile(str(path), int(str(size)), int(str(ns))) for path, size, ns in files)
        return cls(int(until), found)


class Journal(Protocol):
    """Where a run notes what its batches are made of."""

    def noted(self) -> Iterable[Noted]:
        """What earlier runs noted, in order."""

    def note(self, what: Noted) -> None:
        """Remember it, before the batch is given."""


class NoJournal:
    """For runs that nobody goes on from."""

    def noted(self) -> Iterable[Noted]:
        """Nothing."""
        return ()

    def note(self, what: Noted) -> None:
        """Forget it."""


@dataclass(frozen=True, slots=True)
class FollowingReader:
    """A folder that is watched; `reader` knows how to read its files.

    journal   what its batches are made of
    position  how many batches have been read by earlier runs, and how many rows in them
    """

    reader: FileReader
    folder: Path
    journal: Journal = field(default_factory=NoJournal)
    position: tuple[int, int] = (0, 0)

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
        number, start = self.position
        seen: dict[Path, Stamp] = {}
        for files in self._planned(number, seen):
            batch = self._together(files, start)
            start += batch.num_rows + len(batch.bad)
            yield batch

    def _planned(self, number: int, seen: dict[Path, Stamp]) -> Iterator[list[Path]]:
        """The files of each batch, from a number on; none for one without rows."""
        known, until = self._noted(seen)
        while number < until:
            files = known.get(number, [])
            for file in files:
                _require_unchanged(file, seen[file])
            yield files
            number += 1
        while True:
            new, at_once = self._new(seen), self.reader.files
            for first in range(0, len(new), at_once):
                files = new[first : first + at_once]
                self.journal.note(Noted(number + 1, tuple(SeenFile(str(f), *seen[f]) for f in files)))
                yield files
                number += 1
            if not new:
                if number >= until:
                    until = number + QUIET_AHEAD
                    self.journal.note(Noted(until))
                time.sleep(QUIET_S)
                yield []
                number += 1

    def _noted(self, seen: dict[Path, Stamp]) -> tuple[dict[int, list[Path]], int]:
        """The batches that were noted, by number, and the number after the last."""
        known: dict[int, list[Path]] = {}
        until = 0
        for noted in self.journal.noted():
            until = max(until, noted.until)
            if noted.files:
                known[noted.until - 1] = [Path(each.path) for each in noted.files]
            seen.update({Path(each.path): (each.size, each.changed_ns) for each in noted.files})
        return known, until

    def _together(self, files: Sequence[Path], start: int) -> SourceBatch:
        if not files:
            return together([], self.schema)
        return next(by_files(self.reader.pieces(list(files), start), self.schema, len(files)))

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
            if file not in seen:
                new.append(file)
                seen[file] = _stamp(file)
            else:
                _require_unchanged(file, seen[file])
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


def _require_unchanged(file: Path, stamp: Stamp) -> None:
    now = _stamp(file)
    if now not in (stamp, _GONE):  # reading one that is gone will say so
        raise ConnectorError(
            f'"{file}" changed after it was read',
            detail="a watched file is read once, when it appears",
            hint="write it under a name that begins with a dot, and rename it when it is whole",
        )


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except FileNotFoundError:
        return _GONE
    return found.st_size, found.st_mtime_ns
