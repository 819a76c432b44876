"""The files of a source that have been read, and how far: what is new, what grew, what moved, what changed.

Lines that are put behind those that were read are read on. A file that was renamed is the same file. Where a
log is rotated, its file has another name, and another file has its name; with logrotate's `copytruncate` its
rows are in a copy, and it begins anew. Both are told by their bytes: what stands in place of a file that was
read is new if the file itself, or a copy, stands beside it, and refused if not, because rows would be
missed; but a rotation drops the oldest files. Files that were rotated in between, while nobody looked, are
read too.

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
_MOST_ALIKE = 4_096
"""Files of one log begin with so many equal bytes, at most: a header, a banner."""

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
        # Folder and beginning of names -> the files there, with their inodes, in this look.
        self._beginnings: dict[tuple[Path, str], dict[str, int]] = {}
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
        """Return the files that have turned up under other names since the last time."""
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
        self._beginnings = {}
        if not self._stamps:  # files that an earlier run has followed to other names
            for path in self._known:
                if path not in listed and any(path.startswith(log) for log in listed):
                    self._beside[path] = None
        status_of = self._stat(dict.fromkeys([*listed, *self._beside]))
        self._find_moved(status_of)
        self._add_unread(status_of)
        new = []
        for path in sorted(status_of, key=lambda path: (status_of[path].st_mtime_ns, path)):
            one = None if self.is_skipped(path) else self._judge(path, status_of[path])
            if one is not None:
                new.append(one)
                self._known[path] = one
        by_time = sorted(status_of, key=lambda path: status_of[path].st_mtime_ns)
        self._lively = by_time[-_MAX_LIVELY:] if self._follow else []
        means = set(listed)
        self._beside = dict.fromkeys([path for path in by_time if path not in means][-_MAX_BESIDE:])
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
        self._beginnings = {}
        moved = next((path for path in self._look_beside(planned.path) if _is_same(path, planned)), None)
        if moved is not None:
            self._stamps.pop(planned.path, None)
            self._beside.pop(planned.path, None)
            known = self._known.pop(planned.path, None) or self._gone.pop(planned.path, None)
            if known is not None:
                self._move(known, moved)
                self._beside[moved] = None
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
        displaced = self._take_displaced(status_of)
        unknown = [path for path in status_of if path not in self._known]
        moved: list[FileRange] = []
        for by_inode in (True, False):  # what only has the same bytes may be another file
            for known in list(displaced):
                if self._look_for(known, status_of, unknown, by_inode=by_inode):
                    displaced.remove(known)
                    moved.append(known)
        for known in displaced:
            if known.path not in status_of or known.path in self._known or _is_dropped(known, moved):
                self._gone[known.path] = known
            else:
                self._known[known.path] = known  # and `_judge` refuses it
        for path in unknown:  # one that came back under another name
            if path not in self._known and (back := self._find_gone(path, status_of[path])) is not None:
                self._move(self._gone.pop(back.path), path)
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _take_displaced(self, status_of: Status) -> list[FileRange]:
        """Return the files that are not where they were, and forget where that was."""
        displaced = []
        for path, known in list(self._known.items()):
            status = status_of.get(path)
            if status is not None and (
                stamp_of(status) == self._stamps.get(path, known.stamp)
                or (begins_with(path, known) and not self._is_replaced(path, known, status))
            ):
                continue
            displaced.append(self._known.pop(path))
            self._stamps.pop(path, None)
            self._beside.pop(path, None)
        return displaced

    def _is_replaced(self, path: str, known: FileRange, status: os.stat_result) -> bool:
        """Return whether a log was rotated, and what stands in its place only begins alike: with a header."""
        if not self._format.grows(Path(path)):
            return False
        if status.st_ino != known.inode:
            moved = self._find_beside(path, known.inode)
            return moved is not None and begins_with(moved, known)
        if known.last > _MOST_ALIKE:
            return False
        for other, at in self._stat_unknown(path).items():
            if at.st_mtime_ns >= known.modified_ns and at.st_size > known.last and begins_with(other, known):
                # Why: a copy of a log that was not cut is no matter, and the log still begins with all of it.
                return not begins_with(path, identify(other, 0, at.st_size, at))
        return False

    def _look_for(self, known: FileRange, status_of: Status, unknown: list[str], *, by_inode: bool) -> bool:
        """Find where a file has gone whose place is empty, or is another's; return whether it is there."""
        is_there = known.path in status_of
        beside = self._stat_unknown(known.path) if self._format.grows(Path(known.path)) else {}
        places = {path: status_of[path] for path in unknown} | beside
        for path, status in sorted(places.items(), key=lambda one: one[1].st_mtime_ns):
            is_packed = path.endswith(".gz") and not known.path.endswith(".gz")
            if path in self._known or path == known.path:
                continue
            if status.st_size < known.last and not is_packed:
                continue
            if by_inode:
                is_it = status.st_ino == known.inode and (is_there or _has_same_time(status, known))
            elif is_there:  # it was cut, or replaced, after this one had been made
                is_it = status.st_mtime_ns >= known.modified_ns
            else:
                is_it = _is_copy(status, known) or (is_packed and path == f"{known.path}.gz")
            if is_it and begins_with(path, known):
                status_of[path] = status
                if is_packed:
                    self._packed[path] = known.last
                    self._moved.append(FileRange(known.path, 0, 0))  # it is known by what it was packed to
                else:
                    self._move(known, path)
                self._add_generations(known.path, path, status, status_of)
                return True
        return False

    def _add_generations(self, path: str, moved: str, status: os.stat_result, status_of: Status) -> None:
        """Add the files that had a log's name since it was rotated, and lost it again."""
        for other, between in self._stat_unknown(path).items():
            is_later = between.st_mtime_ns > status.st_mtime_ns
            if not is_later or other == moved or other in status_of:
                continue
            gone = self._gone.get(other)
            if gone is None or gone.inode != between.st_ino:
                status_of[other] = between

    def _add_unread(self, status_of: Status) -> None:
        """Add files of which nothing had been read when they were rotated."""
        for path, (*_, inode) in list(self._stamps.items()):
            status = status_of.get(path)
            if path in self._known or (status is not None and status.st_ino == inode):
                continue
            del self._stamps[path]
            moved = self._find_beside(path, inode)
            if moved is not None and moved not in status_of and moved not in self._known:
                status_of |= self._stat([moved])

    def _find_gone(self, path: str, status: os.stat_result) -> FileRange | None:
        for known in self._gone.values():
            is_own = status.st_ino == known.inode and _has_same_time(status, known)
            is_it = is_own or _is_copy(status, known)
            if is_it and status.st_size >= known.last and begins_with(path, known):
                return known
        return None

    def _move(self, known: FileRange, moved: str) -> None:
        """Follow a file to its new name."""
        self._known[moved] = known._replace(path=moved)
        self._moved.append(known._replace(path=moved, first=known.last))

    def _find_beside(self, path: str, inode: int) -> str | None:
        """Return the file with that inode that a log may have been rotated to."""
        names = self._names_beside(path)
        return next((name for name in names if names[name] == inode), None)

    def _look_beside(self, path: str) -> list[str]:
        """Return the files beside one that it may have been rotated to: `app.log.1`, `app.log-2026.gz`."""
        return [other for other in self._names_beside(path) if other != path]

    def _stat_unknown(self, path: str) -> Status:
        """Return the files beside one that are not known, with what the file system says of them."""
        return self._stat(other for other in self._look_beside(path) if other not in self._known)

    def _names_beside(self, path: str) -> dict[str, int]:
        """Return the files of a folder whose names begin as that of one, in order, each with its inode."""
        own = Path(path)
        folder, stem = own.parent, own.name.split(".")[0]
        if (folder, stem) not in self._beginnings:
            try:
                with os.scandir(folder) as entries:
                    alike = {
                        one.name: one.inode()
                        for one in entries
                        if one.name.startswith(stem) and one.is_file()
                    }
            except OSError:
                alike = {}
            self._beginnings[folder, stem] = {str(folder / name): alike[name] for name in sorted(alike)}
        return self._beginnings[folder, stem]

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


def _has_same_time(status: os.stat_result, known: FileRange) -> bool:
    """Return whether a file with the inode of another may be that one: inodes are given again to new files.

    One that was renamed keeps its time, and one that was written to since is longer.
    """
    return status.st_size > known.last or status.st_mtime_ns == known.modified_ns


def _is_dropped(known: FileRange, moved: Iterable[FileRange]) -> bool:
    """Return whether a log's rotation left no place for an older file: one that moved had the log's name."""
    return any(
        known.path.startswith(one.path) and known.modified_ns <= one.modified_ns
        for one in moved
        if one.path != known.path
    )


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
