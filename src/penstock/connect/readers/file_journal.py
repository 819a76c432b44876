"""Which files make which batch, also after a restart: by a journal first, then by the folder as it is now.

Files are told apart by name, size and time of change. So files that are done may be taken away, and new ones
may have any name and time; one that changed after it was read is refused, because its rows would be read
twice or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from penstock.errors import ConnectorError

Stamp = tuple[int, int]
_GONE: Stamp = (0, 0)


class FileStatus(NamedTuple):
    """A file that was read, with its size and time of change."""

    path: str
    size: int
    changed_ns: int


class JournalEntry(NamedTuple):
    """Files that made the batch before number `until`; without any, batches up to there have no rows."""

    until: int
    files: tuple[FileStatus, ...] = ()

    @classmethod
    def of(cls, until: int, files: Iterable[Iterable[object]]) -> Self:
        """A note that was read back; a ValueError or TypeError if it is none."""
        found = tuple(FileStatus(str(path), int(str(size)), int(str(ns))) for path, size, ns in files)
        return cls(int(until), found)


class Journal(Protocol):
    """Where a run notes what its batches are made of."""

    def noted(self) -> Iterable[JournalEntry]:
        """What earlier runs noted, in order."""

    def note(self, *what: JournalEntry) -> None:
        """Remember it, before the batches are given."""


class NoJournal:
    """For runs that nobody goes on from."""

    def noted(self) -> Iterable[JournalEntry]:
        """Nothing."""
        return ()

    def note(self, *what: JournalEntry) -> None:
        """Forget it."""


class FileBatchPlanner:
    """The files of one source, dealt to batches `at_once`; `number` is that of the next batch."""

    def __init__(self, journal: Journal, number: int, at_once: int) -> None:
        self._journal, self.number, self._at_once = journal, number, at_once
        self._seen: dict[Path, Stamp] = {}
        self._known: dict[int, list[Path]] = {}
        self._until = 0
        for noted in journal.noted():
            self._until = max(self._until, noted.until)
            files = {Path(each.path): (each.size, each.changed_ns) for each in noted.files}
            self._seen.update(files)
            if files:
                self._known[noted.until - 1] = list(files)

    def again(self) -> Iterator[list[Path]]:
        """The batches that an earlier run planned and did not get done, or for which it had no files."""
        while self.number < self._until:
            files = self._known.get(self.number, [])
            for file in files:
                _require_unchanged(file, self._seen[file])
            self.number += 1
            yield files

    def new(self, look: Callable[[], Sequence[Path]]) -> Iterator[list[Path]]:
        """Batches of the files that have not been seen yet; their plan is noted before the first is given."""
        new = [file for file in look() if self._is_new(file)]
        groups = [new[first : first + self._at_once] for first in range(0, len(new), self._at_once)]
        notes = [
            JournalEntry(self.number + at, tuple(FileStatus(str(f), *self._seen[f]) for f in files))
            for at, files in enumerate(groups, 1)
        ]
        if notes:
            self._journal.note(*notes)
        for files in groups:
            self.number += 1
            yield files

    def nothing(self, ahead: int) -> None:
        """The next batch has no rows. That is noted for so many batches, so that it need not be each time."""
        if self.number >= self._until:
            self._until = self.number + ahead
            self._journal.note(JournalEntry(self._until))
        self.number += 1

    def _is_new(self, file: Path) -> bool:
        if file in self._seen:
            _require_unchanged(file, self._seen[file])
            return False
        self._seen[file] = _stamp(file)
        return True


def _require_unchanged(file: Path, stamp: Stamp) -> None:
    if _stamp(file) not in (stamp, _GONE):  # reading one that is gone will say so
        raise ConnectorError(
            f'"{file}" changed after it was read',
            detail="a file is read once; rows that are put into it later would be missed",
            hint="put new rows into new files, written under a name that begins with a dot and renamed when "
            "they are whole; or start with an empty checkpoint folder",
        )


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except FileNotFoundError:
        return _GONE
    return found.st_size, found.st_mtime_ns
