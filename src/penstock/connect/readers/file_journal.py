"""What a journal says of input files: which of them made which batch, which moved, failed or are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from penstock.connect.protocol import SourcePosition
from penstock.connect.readers.file_identity import FileRange
from penstock.connect.readers.known_files import MAX_GONE


class Mark(StrEnum):
    """What an entry of a journal says, other than which files make a batch."""

    LISTED = "listed"  # what follows was found by another look, so no batch of rows goes on there
    FAILED = "failed"  # the files of the batch could not be read, so nobody has seen a row of them
    MOVED = "moved"  # the files have been read up to there, under other names
    SKIPPED = "skipped"  # the files are left out for good


class JournalEntry(NamedTuple):
    """The files of the batch before number `until`; without files, batches up to there have no rows.

    Where rows make the batches, an entry is a file, and `until` counts files.
    """

    until: int
    files: tuple[FileRange, ...] = ()
    mark: str = ""

    @classmethod
    def of(cls, until: int, files: Iterable[Sequence[Any]], mark: str = "") -> Self:
        """Return an entry that was read back; raise ValueError or TypeError if it is none."""
        ranges = []
        for file in files:
            # An older version has written path, size and time alone.
            path, first, last, modified, *rest = file if len(file) != 3 else (file[0], 0, file[1], file[2])
            changed, inode, head, tail = rest or (0, 0, "", "")
            ranges.append(
                FileRange(
                    str(path),
                    int(first),
                    int(last),
                    int(modified),
                    int(changed),
                    int(inode),
                    str(head),
                    str(tail),
                )
            )
        return cls(int(until), tuple(ranges), str(mark))

    def to_list(self) -> list[Any]:
        """Return the entry as plain data."""
        plain = [self.until, [list(one) for one in self.files]]
        return [*plain, self.mark] if self.mark else plain


def prune_entries(entries: Iterable[JournalEntry], done: int) -> list[JournalEntry]:
    """Return the entries without what nobody can ask for again, where those up to `done` are done.

    Of these, the last range of every file is kept, and of files that are gone only the latest: one may come
    back under another name. Of a batch that could not be read, what was planned anew counts alone.
    """
    all_entries, last_of = list(entries), dict[str, tuple[int, FileRange]]()
    anew = _find_last_plans(all_entries)
    for n, entry in enumerate(all_entries):
        is_void = not entry.mark and n < anew.get(entry.until, 0)
        if entry.mark == Mark.SKIPPED or entry.until > done or is_void:
            continue
        for one in entry.files:
            if entry.mark == Mark.MOVED:
                for path in [path for path, (_, known) in last_of.items() if one.names_again(known)]:
                    del last_of[path]
            if one.last or entry.mark != Mark.MOVED:
                last_of[one.path] = n, one
    gone = [path for path in last_of if not Path(path).exists()]
    for path in gone[:-MAX_GONE]:
        del last_of[path]
    pruned = []
    for n, entry in enumerate(all_entries):
        if entry.until > done or entry.mark == Mark.SKIPPED:
            pruned.append(entry)
        elif files := tuple(one for one in entry.files if last_of.get(one.path) == (n, one)):
            pruned.append(JournalEntry(entry.until, files, entry.mark))
    return pruned


def _find_last_plans(entries: Iterable[JournalEntry]) -> dict[int, int]:
    """Return the batches that failed and were planned anew -> the last entry of each that says so."""
    failed, anew = set[int](), dict[int, int]()
    for n, entry in enumerate(entries):
        if entry.mark == Mark.FAILED:
            failed.add(entry.until)
        elif not entry.mark and entry.until in failed:
            anew[entry.until] = n
    return anew


def count_entries(position: SourcePosition) -> int:
    """Return how many entries of a journal are done: batches, or files where rows make the batches."""
    by_rows = isinstance(position.at, list) and len(position.at) == 4
    return int(position.at[0]) if by_rows else position.batches


class ListedFile(NamedTuple):
    """A file among those that rows are read from: the look that found it, and its number among all."""

    listing: int
    number: int
    file: FileRange


class Journal(Protocol):
    """A run's record of the files in its batches."""

    def entries(self) -> Iterable[JournalEntry]:
        """Return what earlier runs recorded, in order."""

    def append(self, *entries: JournalEntry) -> None:
        """Record entries durably; called before their batches are read."""
