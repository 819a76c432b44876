"""The input files of a source, as its journal says: which are done, and which are left out.

A journal has the paths of files as a run has listed them, and runs tell by the path whether a file is left
out. So a path that a user names is looked up first: it may lead to the same file another way, by `..`, by a
link, or from another folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

from penstock.connect.protocol import SourcePosition
from penstock.connect.readers.file_identity import FileRange
from penstock.connect.readers.file_journal import JournalEntry, Mark, count_entries
from penstock.engines.checkpoint.journal import Journal, open_journal
from penstock.engines.checkpoint.manifest import Manifest
from penstock.errors import CheckpointError, nearest_first
from penstock.frozen import Frozen

_MOST_COMPARED = 1_000
"""Files whose names an error compares with the one that was given."""


class InputFiles(Frozen):
    """The input files of a source that its journal still knows.

    source   its name
    known    all that runs have listed, as far as they have been read
    done     the paths of those of which no row will be read again, without those that are left out
    skipped  those that are left out: all paths of each
    """

    source: str
    known: tuple[FileRange, ...]
    done: tuple[str, ...]
    skipped: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, source: str, entries: Iterable[JournalEntry], done: int) -> InputFiles:
        """Return what a journal says of which so many entries are done.

        Where rows make the batches, the file of the last row is not among these: the next run reads it again.
        """
        known: dict[str, tuple[int, FileRange]] = {}
        failed, skipped = set[int](), dict[str, tuple[str, ...]]()
        for entry in entries:
            if entry.mark == Mark.SKIPPED:
                paths = tuple(one.path for one in entry.files)
                real = os.path.realpath(paths[0])
                skipped[real] = tuple(dict.fromkeys([*skipped.get(real, ()), *paths]))
            elif entry.mark == Mark.FAILED:
                failed.add(entry.until)
            elif entry.mark == Mark.MOVED:
                _move(known, entry)
            elif entry.mark != Mark.LISTED:
                if entry.until in failed:  # it was planned anew
                    failed.remove(entry.until)
                    known = {path: one for path, one in known.items() if one[0] != entry.until}
                known |= {one.path: (entry.until, one) for one in entry.files}
        left_out = {Path(path).absolute() for paths in skipped.values() for path in paths}
        are_done = (
            path
            for path, (until, _) in known.items()
            if until <= done and until not in failed and Path(path).absolute() not in left_out
        )
        return cls(source, tuple(one for _, one in known.values()), tuple(are_done), tuple(skipped.values()))

    def find(self, path: Path) -> tuple[list[str], bool]:
        """Return the paths by which runs may list a file, and whether one of them has.

        Raise CheckpointError for a path of which no run knows, and that is no file either.
        """
        real = os.path.realpath(path)
        try:
            status: os.stat_result | None = path.stat()
        except OSError:
            status = None
        inode = None if status is None else status.st_ino
        # Why by name or inode first: to resolve the paths of many files takes long.
        alike = (one.path for one in self.known if one.inode == inode or Path(one.path).name == path.name)
        names = [name for name in alike if os.path.realpath(name) == real]
        before = next((list(names) for names in self.skipped if os.path.realpath(names[0]) == real), [])
        if not (names or before or (status is not None and S_ISREG(status.st_mode))):
            raise self._refusal(path)
        # Why not of the file: what is listed may itself be a link to it.
        places = [str(one.parent.resolve() / one.name) for one in map(Path, names)]
        beside = () if names else self._names_beside(real)
        absolute = [str(Path(name).absolute()) for name in (str(path), *names)]
        return list(dict.fromkeys([*before, *places, real, *absolute, *names, *beside])), bool(names)

    def _names_beside(self, real: str) -> Iterator[str]:
        """Yield how a run would list a file that goes the same way to it as to the files that it has read."""
        resolve = cache(os.path.realpath)
        folders = {folder: None for one in self.known for folder in Path(one.path).parents}
        for folder in folders:
            if Path(real).is_relative_to(resolve(folder)):
                yield str(folder / Path(real).relative_to(resolve(folder)))

    def _refusal(self, path: Path) -> CheckpointError:
        near = nearest_first(str(path), [one.path for one in self.known[-_MOST_COMPARED:]])[:5]
        n_more = len(self.known) - len(near)
        names = ", ".join(near) + (f" and {n_more:,} more" if n_more else "")
        return CheckpointError(
            f'the checkpoint knows no file "{path}"',
            detail=f'source "{self.source}" knows {names or "none"}',
            hint="name one of these, or a file that is there; of a folder or a glob, name its files"
            if near
            else "name a file that is there",
        )


def read_input_files(
    folder: Path, graph: Mapping[str, Any], newest: Manifest, source: str
) -> tuple[Journal, InputFiles]:
    """Return the journal of a source and what it says; raise CheckpointError if it is damaged.

    The parameters are those of `open_journal`.
    """
    journal = open_journal(folder, graph, newest, source)
    done = count_entries(newest.positions.get(source, SourcePosition()))
    return journal, InputFiles.of(source, journal.entries(), done)


def _move(known: dict[str, tuple[int, FileRange]], entry: JournalEntry) -> None:
    """Give files the names that they have got."""
    for one in entry.files:
        until = entry.until
        if not one.last:
            known.pop(one.path, None)
            continue
        for path, (number, before) in list(known.items()):
            if one.names_again(before):
                until = number
                del known[path]
        known[one.path] = until, one
