"""Which files make which batch, also after a restart: by a journal first, then by the folder as it is now.

Files are identified by name, size and modification time. So files that have been read may be removed, and new
ones may have any name and time; one that changed after it was read is refused, because its rows would be read
twice or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from penstock.errors import ConnectorError

Stamp = tuple[int, int]
"""Size in bytes and modification time in nanoseconds."""

_REMOVED: Stamp = (0, 0)


class FileStatus(NamedTuple):
    """A file that was read, with its size and modification time."""

    path: str
    size: int
    modified_ns: int


class JournalEntry(NamedTuple):
    """The files of the batch before number `until`; without files, batches up to there have no rows."""

    until: int
    files: tuple[FileStatus, ...] = ()

    @classmethod
    def of(cls, until: int, files: Iterable[Iterable[object]]) -> Self:
        """Returns an entry that was read back; raises ValueError or TypeError if it is none."""
        statuses = tuple(FileStatus(str(path), int(str(size)), int(str(ns))) for path, size, ns in files)
        return cls(int(until), statuses)


class Journal(Protocol):
    """A run's record of the files in its batches."""

    def entries(self) -> Iterable[JournalEntry]:
        """Returns what earlier runs recorded, in order."""

    def append(self, *entries: JournalEntry) -> None:
        """Records entries durably; called before their batches are read."""


class FileBatchPlanner:
    """Assigns the files of one source to batches of `files_per_batch`; `number` is the next batch's.

    A run that cannot be resumed has no journal.
    """

    def __init__(self, journal: Journal | None, number: int, files_per_batch: int) -> None:
        self._journal, self.number, self._files_per_batch = journal, number, files_per_batch
        self._seen: dict[Path, Stamp] = {}
        self._journaled: dict[int, list[Path]] = {}
        self._until = 0
        for entry in journal.entries() if journal is not None else ():
            self._until = max(self._until, entry.until)
            stamps = {Path(file.path): (file.size, file.modified_ns) for file in entry.files}
            self._seen.update(stamps)
            if stamps:
                self._journaled[entry.until - 1] = list(stamps)

    def replay(self) -> Iterator[list[Path]]:
        """Yields the batches that an earlier run planned and did not complete, some without files."""
        while self.number < self._until:
            files = self._journaled.get(self.number, [])
            for file in files:
                _require_unchanged(file, self._seen[file])
            self.number += 1
            yield files

    def plan_new(self, list_files: Callable[[], Sequence[Path]]) -> Iterator[list[Path]]:
        """Yields batches of files not seen before, after it has recorded all of them in the journal."""
        new = [file for file in list_files() if self._is_new(file)]
        size = self._files_per_batch
        batches = [new[first : first + size] for first in range(0, len(new), size)]
        entries = [
            JournalEntry(self.number + n, tuple(FileStatus(str(f), *self._seen[f]) for f in files))
            for n, files in enumerate(batches, 1)
        ]
        if entries and self._journal is not None:
            self._journal.append(*entries)
        for files in batches:
            self.number += 1
            yield files

    def plan_empty(self, n_ahead: int) -> None:
        """Plans a batch without rows. An entry covers `n_ahead` of these, so that few are recorded."""
        if self.number >= self._until:
            self._until = self.number + n_ahead
            if self._journal is not None:
                self._journal.append(JournalEntry(self._until))
        self.number += 1

    def _is_new(self, file: Path) -> bool:
        if file in self._seen:
            _require_unchanged(file, self._seen[file])
            return False
        self._seen[file] = _stamp_of(file)
        return True


def _require_unchanged(file: Path, stamp: Stamp) -> None:
    if _stamp_of(file) not in (stamp, _REMOVED):  # reading one that was removed raises its own error
        raise ConnectorError(
            f'"{file}" changed after it was read',
            detail="a file is read once; rows that are put into it later would be missed",
            hint="put new rows into new files, written under a name that begins with a dot and renamed when "
            "they are whole; or start with an empty checkpoint folder",
        )


def _stamp_of(file: Path) -> Stamp:
    try:
        status = file.stat()
    except FileNotFoundError:
        return _REMOVED
    return status.st_size, status.st_mtime_ns
