"""The files of a source that have been read, and how far: what is new, what grew, what moved, what changed.

Lines that are put behind those that were read are read on. A file that was renamed is the same file. Where a
log is rotated, its file has another name, and another file has its name; with logrotate's `copytruncate` its
rows are in a copy, and it begins anew. Both are told by their bytes: what stands in place of a file that was
read is new if the file itself, or a copy, is status_of beside it, and refused if not, because rows would be
missed. Files that were rotated in between, while nobody looked, are read too.

Of a file that is followed, a last line without its end waits for it, however long its writer takes. Only if
the user has said so is it taken once nobody has written to the file for some time, or when a stop drains the
run; if the writer then goes on with it, the next run is refused. In JSON lines a whole object is a whole row.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.connect.readers.file_identity import FileRange, Stamp, begins_with, identify, stamp_of
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.connect.readers.input_format import InputFormat

_MAX_LIVELY = 16
"""Files that are looked at often, because they were written last."""
MAX_GONE = 1_000
"""Files that are gone and still known, in case that they come back under another name."""

_MAX_BESIDE = 8
"""Files that were rotated, and that may still be written to."""

Status = dict[str, os.stat_result]


class KnownFiles:
    """Which files have been read, and how far.

    list_paths  returns the files that the source means now, by time and name
    follow      whether files are read on while they are written, so that their last line may not be whole
    quiet_us    a last line without its end is taken once nobody has written to its file for so long; 0: never
    """

    def __init__(
        self, format: InputFormat, list_paths: Callable[[], list[Path]], *, follow: bool, quiet_us: int = 0
    ) -> None:
        self._format, self._list, self._follow, self._quiet_us = format, list_paths, follow, quiet_us
        self._known: dict[str, FileRange] = {}
        self._stamps: dict[str, Stamp] = {}  # as the files were when they were looked at last
        self._gone: dict[str, FileRange] = {}  # files that are not where they were
        self._beside: dict[str, None] = {}  # files that the source does not mean, and that were rotated
        self._moved: list[FileRange] = []
        self._packed: dict[str, int] = {}  # files that were packed -> where their text goes on
        self._skipped: set[str] = set()
        self._lively: list[str] = []
        self._is_last = False

    def add(self, ranges: Iterable[FileRange]) -> None:
        """Take over what was read before, in this order."""
        for one in ranges:
            self._known[one.path] = one

    def add_moved(self, files: Iterable[FileRange]) -> None:
        """Take over new names of files that were read before."""
        for one in files:
            if not one.last:
                self._known.pop(one.path, None)
                continue
            for path, known in list(self._known.items()):
                if one.names_again(known):
                    del self._known[path]
            self._known[one.path] = one
            self._beside[one.path] = None

    def take_moved(self) -> list[FileRange]:
        """Return the files that have been status_of under other names since the last time."""
        moved, self._moved = self._moved, []
        return moved

    def skip(self, path: str) -> None:
        """Leave a file out from now on."""
        self._skipped.add(str(Path(path).absolute()))

    def is_skipped(self, path: str) -> bool:
        """Return whether a file is left out."""
        return bool(self._skipped) and str(Path(path).absolute()) in self._skipped

    def look(self, *, is_last: bool = False) -> list[FileRange]:
        """Return what is there and has not been read; raise ConnectorError for a file that changed.

        is_last  nobody will look again, so lines without their end are taken too
        """
        self._is_last = is_last
        listed = [*map(str, self._list())]
        if not self._stamps:  # files that an earlier run has followed to other names
            for path in self._known:
                if path not in listed and any(path.startswith(log) for log in listed):
                    self._beside[path] = None
        status_of = self._stat(dict.fromkeys([*listed, *self._beside]))
        self._beside = {path: None for path in [*self._beside][-_MAX_BESIDE:] if path in status_of}
        self._find_moved(status_of)
        new = []
        for path in sorted(status_of, key=lambda path: (status_of[path].st_mtime_ns, path)):
            one = None if self.is_skipped(path) else self._judge(path, status_of[path])
            if one is not None:
                new.append(one)
                self._known[path] = one
        by_time = sorted(status_of, key=lambda path: status_of[path].st_mtime_ns)
        self._lively = by_time[-_MAX_LIVELY:] if self._follow else []
        return new

    def lively_stamp(self) -> tuple[Stamp | None, ...]:
        """Return what the file system says now of the files that were written last."""
        stamps: list[Stamp | None] = []
        for path in self._lively:
            try:
                stamps.append(stamp_of(os.stat(path)))  # noqa: PTH116  # asked often
            except OSError:
                stamps.append(None)
        return tuple(stamps)

    def find_again(self, planned: FileRange) -> FileRange:
        """Return a range that an earlier run had begun to read, where it is now.

        Raise ConnectorError if the file has changed; one that is gone is left to who reads it.
        """
        status = self._stat([planned.path]).get(planned.path)
        if status is not None:
            same_time = status.st_mtime_ns == planned.modified_ns or planned.is_hashed_whole
            grows = self._format.grows(Path(planned.path))
            fits = (status.st_size == planned.last and same_time) or (grows and status.st_size > planned.last)
            if stamp_of(status) == planned.stamp or (fits and begins_with(planned.path, planned)):
                return planned
        moved = next((path for path in self._look_beside(planned.path) if _is_same(path, planned)), None)
        if moved is not None:
            self._move(planned.path, moved)
            return planned._replace(path=moved)
        if status is not None:
            raise changed_error(planned.path, planned, status)
        return planned

    def renew(self, planned: FileRange) -> FileRange | None:
        """Return a range that could not be read, as its file is now; None if the file is gone."""
        status = self._stat([planned.path]).get(planned.path)
        if status is None:
            self._known.pop(planned.path, None)
            return None
        grows = self._format.grows(Path(planned.path))
        last = status.st_size
        if grows and self._follow:
            last = self._end(planned.path, planned.first, status)
        renewed = identify(planned.path, min(planned.first, last), last, status)
        self._known[planned.path] = renewed
        return renewed

    def _judge(self, path: str, status: os.stat_result) -> FileRange | None:
        """Return what is new in a file, or None; raise ConnectorError if it has changed."""
        known, stamp = self._known.get(path), stamp_of(status)
        is_read = known is not None and (known.last == status.st_size or not self._is_quiet(status))
        if known is not None and is_read and stamp == self._stamps.get(path, known.stamp):
            return None
        self._stamps[path] = stamp
        grows = self._format.grows(Path(path))
        if known is None:
            last, first = self._end(path, 0, status) if grows else status.st_size, self._packed.pop(path, 0)
            return identify(path, first, last, status) if last or not self._follow else None
        is_longer = status.st_size > known.last
        if (is_longer and not grows) or status.st_size < known.last or not begins_with(path, known):
            raise changed_error(path, known, status)
        if not is_longer:
            return None
        first = self._find_next_line(path, known, status)
        last = self._end(path, first, status)
        return identify(path, first, last, status) if last > first else None

    def _find_moved(self, status_of: Status) -> None:
        """Find files that are no longer where they were, and forget what their old places held."""
        displaced: list[FileRange] = []
        for path, known in list(self._known.items()):
            status = status_of.get(path)
            if status is None:
                self._gone[path] = self._known.pop(path)
                displaced.append(known)
            elif stamp_of(status) != self._stamps.get(path, known.stamp) and not begins_with(path, known):
                displaced.append(known)
        unknown = [path for path in status_of if path not in self._known]
        for known in displaced:
            self._look_for(known, status_of, unknown)
        for path in unknown:  # one that came back under another name
            if path not in self._known and (back := self._find_gone(path, status_of[path])) is not None:
                self._move(back.path, path)
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _look_for(self, known: FileRange, status_of: Status, unknown: list[str]) -> None:
        """Find where a file has gone whose place is empty, or is another's."""
        grows, is_there = self._format.grows(Path(known.path)), known.path in status_of
        beside = self._look_beside(known.path) if grows else []
        for path in (*unknown, *beside):
            if path in self._known:
                continue
            status = status_of.get(path) or self._stat([path]).get(path)
            if status is None or (status.st_size < known.last and not path.endswith(".gz")):
                continue
            # Why: what has only the same bytes may be another file, unless this one was cut or replaced.
            is_it = status.st_ino == known.inode or is_there or _is_copy(status, known)
            if is_it and begins_with(path, known):
                status_of[path] = status
                if path.endswith(".gz") and not known.path.endswith(".gz"):
                    self._packed[path] = known.last
                    self._moved.append(FileRange(known.path, 0, 0))  # it is known by what it was packed to
                    self._known.pop(known.path, None)
                    self._gone.pop(known.path, None)
                else:
                    self._move(known.path, path)
                self._add_generations(known.path, path, status, status_of)
                return

    def _add_generations(self, path: str, moved: str, status: os.stat_result, status_of: Status) -> None:
        """Add the files that had a log's name since it was rotated, and lost it again."""
        for other in self._look_beside(path):
            if other == moved or other in status_of or other in self._known or other in self._gone:
                continue
            between = self._stat([other]).get(other)
            if between is not None and between.st_mtime_ns > status.st_mtime_ns:
                status_of[other] = between
                self._beside[other] = None
        self._beside[moved] = None

    def _find_gone(self, path: str, status: os.stat_result) -> FileRange | None:
        for known in self._gone.values():
            is_it = status.st_ino == known.inode or _is_copy(status, known)
            if is_it and status.st_size >= known.last and begins_with(path, known):
                return known
        return None

    def _move(self, path: str, moved: str) -> None:
        """Follow a file to its new name."""
        known = self._known.pop(path, None) or self._gone.pop(path, None)
        self._stamps.pop(path, None)
        self._beside.pop(path, None)
        if known is not None:
            self._known[moved] = known._replace(path=moved)
            self._moved.append(known._replace(path=moved, first=known.last))

    def _look_beside(self, path: str) -> list[str]:
        """Return the files beside one that it may have been rotated to: `app.log.1`, `app.log-2026.gz`."""
        own = Path(path)
        try:
            with os.scandir(own.parent) as entries:
                stem = own.name.split(".")[0]
                return sorted(
                    str(own.parent / entry.name)
                    for entry in entries
                    if entry.name != own.name and entry.name.startswith(stem) and entry.is_file()
                )
        except OSError:
            return []

    def _end(self, path: str, first: int, status: os.stat_result) -> int:
        """Return where the rows end that are whole now."""
        if not self._follow:
            return status.st_size
        end = self._format.end_of_whole_rows(Path(path), first, status.st_size)
        return status.st_size if end < status.st_size and self._is_quiet(status) else end

    def _is_quiet(self, status: os.stat_result) -> bool:
        quiet_us = self._quiet_us
        is_quiet = bool(quiet_us) and time.time() - status.st_mtime_ns / 1e9 > quiet_us / 1e6
        return self._follow and (self._is_last or is_quiet)

    def _find_next_line(self, path: str, known: FileRange, status: os.stat_result) -> int:
        """Return where the line after those that were read begins."""
        if not known.last:
            return 0
        with Path(path).open("rb") as stream:
            stream.seek(known.last - 1)
            around = stream.read(3)
        if around[:1] in b"\r\n" or around[1:2] not in b"\r\n":
            if around[:1] not in b"\r\n":
                raise ConnectorError(
                    f'"{path}" grew in the middle of a line that was read',
                    detail=f"byte {known.last:,} is inside of a line, and the line was taken for whole",
                    hint="start with an empty checkpoint folder, and let follow=True without quiet= wait for "
                    "the ends of lines; stop(drain=True) ends a log where it is",
                )
            return known.last + (around[:1] == b"\r" and around[1:2] == b"\n")
        return known.last + (2 if around[1:] == b"\r\n" else 1)

    @staticmethod
    def _stat(paths: Iterable[str]) -> Status:
        status_of: Status = {}
        for path in paths:
            try:
                status_of[path] = os.stat(path)  # noqa: PTH116  # asked often
            except OSError:
                continue
        return status_of


def _is_copy(status: os.stat_result, known: FileRange) -> bool:
    """Return whether a file may be a copy of another that is gone, or the same on another machine."""
    return (status.st_size, status.st_mtime_ns) == (known.last, known.modified_ns)


def _is_same(path: str, known: FileRange) -> bool:
    try:
        return begins_with(path, known)
    except OSError:
        return False


def changed_error(path: str, known: FileRange, status: os.stat_result) -> ConnectorError:
    """Return the error for a file that no longer holds what was read of it."""
    shorter = status.st_size < known.last
    happened = (
        f"it had {known.last:,} bytes and has {status.st_size:,}"
        if status.st_size != known.last
        else "it has as many bytes as before, and others"
    )
    return ConnectorError(
        f'"{path}" changed after it was read',
        detail=f"{happened}; its rows would be read twice or not at all",
        hint="bring it back as it was, or put new rows into new files, written under a name that begins with "
        "a dot and renamed when they are whole"
        + ("; a log that is cut is read on if its copy stays beside it" if shorter else "")
        + "; `penstock checkpoint skip` leaves a file out, and an empty checkpoint folder starts over",
    )
