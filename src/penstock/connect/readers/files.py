"""Readers of files: which files make which batch, their one schema, row numbers, and where to go on.

Files are listed again at the start of every run (`paths.py`). They can be followed: then the files that
appear are read too, and lines that are put behind others (`known_files.py`), until the run stops. Files of
formats that are read whole must appear whole: written under a name that begins with `.` or `_`, or elsewhere,
and renamed. The files are looked at every `wait`, and listed if something has changed, or a second after the
last time. Every second without news there is a batch without rows.

A run with a checkpoint records in a journal which files make which batch, and a run that resumes reads by the
journal first. Files are known by their bytes (`file_identity.py`). So files that have been read may be
removed, and new ones may have any name and time; one that changed after it was read is refused, because its
rows would be read twice or not at all.

A file that cannot be read is one bad row, with its path and the reason; the source's `on_error` decides. If
that stops the run, the journal says so, and the file may be mended or removed before the next one.
"""

from __future__ import annotations

import glob
import os
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa

from penstock.connect.batching import RowRange, batch_by_rows, check_size, to_source_batch
from penstock.connect.conversion import empty_batch
from penstock.connect.protocol import BadRow, Delivery, SourceBatch
from penstock.connect.read_claims import DEFAULT_WAIT, check_wait
from penstock.connect.readers.file_identity import FileRange
from penstock.connect.readers.file_journal import Journal, JournalEntry, ListedFile, Mark
from penstock.connect.readers.input_format import FilePart, InputFormat
from penstock.connect.readers.known_files import KnownFiles
from penstock.connect.readers.paths import Paths, format_paths, list_files
from penstock.errors import CheckpointError, ConnectorError
from penstock.expr.types import optional_columns, parse_schema
from penstock.frozen import Frozen
from penstock.timing.units import Duration

POLL_S = 1.0
EMPTY_BATCHES_PER_ENTRY = 60
"""Batches without rows that share a journal entry: a folder where nothing happens has one a minute."""


class FileReader(Frozen):
    """Files of one format with one schema.

    schema_file  the file that gave the schema; None when it was declared
    batch        rows per batch; None where files make the batches, `files` of them each
    bounded      false if files are followed
    optional     columns that a file may lack
    journal      which files the batches are made of
    planned_before  how many entries the journal had when the run began, and which of them had failed
    wait_us      how often files that are followed are looked at
    quiet_us     how long nobody has written to a file when its last line is taken without its end; 0: never
    interrupted  ends the wait for a change of these, once it is set
    ending       says, once it is set, that the files are to end where they are now

    The position of a batch is the number of batches and rows up to its end, where files make the batches.
    Where rows do: the number of the file, a byte (or row) of it, the rows from there on, and all rows; behind
    a file that could not be read, those of the next file. One cut does not know the positions of the other.
    """

    format: InputFormat
    paths: Paths
    schema: pa.Schema
    schema_file: Path | None
    batch: int | None
    files: int
    bounded: bool
    optional: frozenset[str] = frozenset()
    journal: Journal | None = None
    planned_before: tuple[int, frozenset[int]] = (0, frozenset())
    wait_us: int = 100_000
    quiet_us: int = 0
    interrupted: threading.Event | None = None
    ending: threading.Event | None = None

    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE

    @property
    def keeps_raw(self) -> bool:
        """Return whether this is a text format."""
        return self.format.keeps_raw

    def resume(self, journal: Journal) -> Self:
        """Return a reader that goes by the journal of earlier runs."""
        _, _, failed, until = replace(self, journal=journal)._replay()
        return replace(self, journal=journal, planned_before=(until, frozenset(failed)))

    def watch(self) -> Self:
        """Return a reader of the same files whose wait for a change `interrupt` ends: one for every run."""
        return replace(self, interrupted=threading.Event(), ending=threading.Event())

    def interrupt(self) -> None:
        """End the wait for a change, now and later."""
        if self.interrupted is not None:
            self.interrupted.set()

    def finish(self) -> None:
        """Let files that are followed end as they are now: a last line without its end is taken too."""
        if self.ending is not None:
            self.ending.set()
            self.interrupt()

    def batches(self, position: Any = None) -> Iterator[SourceBatch]:
        """List the files and read them in order, from a position on."""
        if position is not None:
            self.check_position(position)
        if self.batch is not None:
            yield from self.cut_by_rows(self.plan_files(position), position)
            return
        number, start = position or (0, 0)
        for ranges in self.plan_batches(number):
            read: list[RowRange] = []
            for one in ranges:
                is_all = one.last == sys.maxsize
                whole = FilePart(one.path, 0, one.last)
                read += self.read_part(whole, start) if is_all else self.read_range(one, start)
                start = read[-1].end if read else start
            number += 1
            yield to_source_batch(read, self.schema, [number, start])

    def check_position(self, position: Any) -> None:
        """Raise CheckpointError for a position of batches that were cut otherwise, by rows or by files."""
        if position is None or (len(position) == 4) == (self.batch is not None):
            return  # Why not translated: batches that were committed, not saved, must be the same rows again
        by_rows = "files", f"rows: batch={self.batch}", "leave batch= out"
        was, now, again = by_rows if self.batch is not None else ("rows", "files", "give batch=")
        raise CheckpointError(
            f'"{format_paths(self.paths)}" was cut by {was}, and the checkpoint goes on from there',
            detail=f"the program now cuts it by {now}",
            hint=f"{again} as before, or start with an empty checkpoint folder",
        )

    def cut_by_rows(self, files: Iterable[ListedFile], position: Any) -> Iterator[SourceBatch]:
        """Yield batches of files, from a position on."""
        assert self.batch is not None, "rows make the batches"
        at_file, place, n_skipped, start = position or (0, 0, 0, 0)

        def read(files: Iterable[ListedFile]) -> Iterator[RowRange]:
            nonlocal start
            for _, number, one in files:
                first = max(place, one.first) if number == at_file else None
                left = n_skipped if number == at_file else 0
                for rows in self.read_range(one, start - left, first):
                    start = rows.end
                    origin = (number, rows.place, rows.start)
                    if any(bad.failure is not None for _, bad in rows.bad):
                        left = 0  # what stands for the file is no row that was read before
                        origin = (number + 1, 0, rows.end)  # else every run would count the file again
                    elif left >= rows.end - rows.start:
                        left -= rows.end - rows.start
                        continue
                    placed = replace(rows, origin=origin)
                    yield placed.split(left)[1] if left else placed
                    left = 0

        # Why: a batch that was the last of a run must be the same when it is done again, whatever came since.
        for _, listed in groupby(files, key=lambda file: file.listing):
            yield from batch_by_rows(read(listed), self.schema, self.batch)

    def plan_batches(self, number: int = 0) -> Iterator[list[FileRange]]:
        """Yield the files of each batch: those in the journal and not read, then what is new.

        All that is new is recorded in the journal before the first of it is read.

        number  of the first batch
        """
        if self.journal is None and self.bounded:
            files = [FileRange(str(file), 0, sys.maxsize) for file in list_files(self.paths)]
            yield from (files[first : first + self.files] for first in range(0, len(files), self.files))
            return
        known, planned, failed, until = self._replay()
        while number < until:  # an earlier run planned these and did not complete them, some without files
            number += 1
            yield self._find_again(known, number, planned.get(number, ()), is_failed=number in failed)
        while True:
            is_last = self.ending is not None and self.ending.is_set()
            new = known.look(is_last=is_last)
            batches = [new[first : first + self.files] for first in range(0, len(new), self.files)]
            entries = self._name_moved(known, number)
            entries += [JournalEntry(number + n, tuple(files)) for n, files in enumerate(batches, 1)]
            number += len(batches)
            if not new and not self.bounded and not is_last:
                if number >= until:
                    until = number + EMPTY_BATCHES_PER_ENTRY
                    entries.append(JournalEntry(until))
                number += 1
            if entries and self.journal is not None:
                self.journal.append(*entries)
            yield from batches
            if self.bounded or is_last:
                return
            if not new:
                self._wait_for_change(known)
                yield []

    def plan_files(self, position: Any = None) -> Iterator[ListedFile]:
        """Yield the files from a position on, where rows make the batches."""
        number = position[0] if position else 0
        if self.journal is None:
            for n, file in enumerate(list_files(self.paths)):
                if n >= number:
                    yield ListedFile(0, n, FileRange(str(file), 0, sys.maxsize))
            return
        known, planned, failed, until = self._replay()
        listings = [entry.until for entry in self.journal.entries() if entry.mark == Mark.LISTED]
        while number < until:
            number += 1
            ranges, listing = planned.get(number, ()), bisect_left(listings, number)
            for one in self._find_again(known, number, ranges, is_failed=number in failed):
                yield ListedFile(listing, number - 1, one)
        new = known.look()
        entries = self._name_moved(known, number)
        if new:
            entries.append(JournalEntry(number, (), Mark.LISTED))
        entries += [JournalEntry(number + n, (one,)) for n, one in enumerate(new, 1)]
        if entries:
            self.journal.append(*entries)
        for n, one in enumerate(new, number):
            yield ListedFile(len(listings) + 1, n, one)

    def _name_moved(self, known: KnownFiles, number: int) -> list[JournalEntry]:
        """Return the entry for files that have another name now."""
        moved = known.take_moved()
        return [JournalEntry(number, tuple(moved), Mark.MOVED)] if moved else []

    def give_up(self, number: int | None, before: Any, after: Any) -> None:
        """Record that a batch could not be read, so that its files may change: nobody has seen a row of them.

        What an earlier run had planned is left alone, because it may have seen rows, unless it gave up too.
        """
        if self.journal is None:
            return
        if self.batch is None:
            last = after[0] if number is None else number + 1
            first = last - 1
        else:  # files of which rows were in earlier batches do not count
            first = 0 if before is None else before[0] + any(before[1:3])
            last = first if after is None else after[0] + any(after[1:3])
        until, failed = self.planned_before
        fresh = [n for n in range(first + 1, last + 1) if n > until or n in failed]
        if fresh:
            self.journal.append(*(JournalEntry(n, (), Mark.FAILED) for n in fresh))

    def _replay(self) -> tuple[KnownFiles, dict[int, tuple[FileRange, ...]], set[int], int]:
        """Return the known files, the ranges by entry, the entries that failed, and the number of entries."""
        known = KnownFiles(self.format, self._list, follow=not self.bounded, quiet_us=self.quiet_us)
        planned: dict[int, tuple[FileRange, ...]] = {}
        failed, until = set[int](), 0
        for entry in self.journal.entries() if self.journal is not None else ():
            if entry.mark == Mark.SKIPPED:
                for one in entry.files:
                    known.skip(one.path)
            elif entry.mark == Mark.FAILED:
                failed.add(entry.until)
            elif entry.mark == Mark.MOVED:
                known.add_moved(entry.files)
            elif entry.mark == Mark.LISTED:
                continue
            else:
                until = max(until, entry.until)
                failed.discard(entry.until)
                known.add(entry.files)
                if entry.files:
                    planned[entry.until] = entry.files
        return known, planned, failed, until

    def _find_again(
        self, known: KnownFiles, number: int, planned: Iterable[FileRange], *, is_failed: bool
    ) -> list[FileRange]:
        """Return what an earlier run had planned, as it is now; files that it could not read may differ."""
        ranges = [one for one in planned if not known.is_skipped(one.path)]
        if not is_failed:
            here = [known.find_again(one) for one in ranges]
            if self.journal is not None and (moved := self._name_moved(known, number)):
                self.journal.append(*moved)
            return here
        renewed = [new for one in ranges if (new := known.renew(one)) is not None]
        if self.journal is not None:
            self.journal.append(JournalEntry(number, tuple(renewed)))
        return renewed

    def _list(self) -> list[Path]:
        """List the files; while they are followed there may be none, as when a log is rotated."""
        try:
            return list_files(self.paths)
        except ConnectorError:
            if self.bounded or not _is_missing(self.paths):
                raise
            return []

    def _wait_for_change(self, known: KnownFiles) -> None:
        """Wait until the files that are followed have changed, but no longer than until they are listed."""
        deadline, before = time.monotonic() + POLL_S, (_modified_ns(self.paths), known.lively_stamp())
        while (left := deadline - time.monotonic()) > 0:
            if (_modified_ns(self.paths), known.lively_stamp()) != before:
                return
            if self.interrupted is None:
                time.sleep(min(left, self.wait_us / 1e6))
            elif self.interrupted.wait(min(left, self.wait_us / 1e6)):
                return

    def read_range(self, one: FileRange, start: int, first: int | None = None) -> Iterator[RowRange]:
        """Yield the rows of a range, numbered from `start`; if it cannot be read, a bad row.

        first  the byte, or row, to begin with, if not with the first of the range
        """
        begin = one.first if first is None else first
        end = one.last if self.format.grows(Path(one.path)) else sys.maxsize
        yield from self.read_part(FilePart(one.path, begin, end, begin, end), start - begin)

    def read_part(self, part: FilePart, start: int) -> Iterator[RowRange]:
        """Yield the rows of a part; `start` is the number of the file's first row."""
        number = start + part.first
        try:
            self.check(Path(part.path))
            for rows in self.format.read_part(part, self.schema, self.schema_file is None, start):
                yield rows
                number = rows.end
        except ConnectorError as problem:
            yield unreadable_file(self.schema, part.path, problem, number)

    def check_files(self) -> None:
        """Raise ConnectorError unless all files that are there now can be read with the schema."""
        for file in list_files(self.paths) if self.bounded else self._list():
            self.check(file)

    def check(self, file: Path) -> None:
        """Raise ConnectorError unless the file can be read with the schema."""
        if reason := self.format.find_mismatch(file, self.schema, self.schema_file is None, self.optional):
            other = "the declared schema" if self.schema_file is None else f'"{self.schema_file}"'
            raise ConnectorError(
                f'"{file}" does not fit {other}',
                detail=reason,
                hint='read the files apart, or say which columns may be missing: {"price": float | None}',
            )

    def describe(self) -> str:
        """Return such as `parquet events/ (3 files)`."""
        files = "followed"
        if self.bounded:
            n_files = len(list_files(self.paths))
            files = f"{n_files} file{'s' * (n_files != 1)}"
        return f"{self.format.name} {format_paths(self.paths)} ({files})"

    def reads_from(self, folder: Path) -> bool:
        """Return whether it reads files of the folder, which a sink that overwrites it would remove."""
        paths = [self.paths] if isinstance(self.paths, str | PathLike) else self.paths
        for path in map(Path, paths):
            while glob.has_magic(str(path)):  # of a glob, what comes before its first wildcard counts
                path = path.parent  # noqa: PLW2901
            if path.resolve().is_relative_to(folder.resolve()):
                return True
        return False


def build_file_reader(
    file_format: InputFormat,
    paths: Paths,
    schema: object,
    batch: int | None,
    files: int | None,
    *,
    follow: bool,
    wait: Duration = DEFAULT_WAIT,
    quiet: Duration | None = None,
) -> FileReader:
    """Return a reader whose schema is known.

    With `follow` it also reads what will appear there, which is looked at every `wait`.
    """
    wait_us = check_wait(wait) if follow else 0
    if quiet is not None and not follow:
        raise ConnectorError(
            f"quiet={quiet!r} is for files that are followed",
            detail="else a last line without its end is read like the others",
            hint="leave it out, or give follow=True",
        )
    quiet_us = 0 if quiet is None else check_wait(quiet, "quiet", "1 min")
    if follow and batch is not None:
        raise ConnectorError(
            f"batch={batch} would hold rows of files that are followed back until others come",
            hint="leave it out: what is new is a batch; files= puts several files together",
        )
    if batch is not None and files is not None:
        raise ConnectorError(f"batch={batch} and files={files} both cut batches", hint="give one of them")
    existing = list_files(paths)
    columns, schema_file = (None if schema is None else parse_schema(schema)), None
    problem: ConnectorError | None = None
    for file in existing if schema is None else ():
        try:
            columns, schema_file = file_format.read_schema(file), file
        except ConnectorError as failure:  # whoever reads it decides what becomes of such a file
            problem = problem or failure
        if columns is not None:
            break
    if columns is None and problem is not None:
        raise problem
    if columns is None:
        raise ConnectorError(
            f'"{format_paths(paths)}" holds no rows to take a schema from',
            hint='say the types: schema={"price": "float64", …}',
        )
    n_rows, n_files = check_size("batch", batch), check_size("files", files) or 1
    optional = frozenset[str]() if schema is None else optional_columns(schema)
    return FileReader(
        file_format,
        paths,
        columns,
        schema_file,
        n_rows,
        n_files,
        not follow,
        optional,
        wait_us=wait_us,
        quiet_us=quiet_us,
    )


def unreadable_file(schema: pa.Schema, path: str, problem: ConnectorError, number: int) -> RowRange:
    """Return the bad row that stands for a file, or the rest of one, which cannot be read."""
    reason = problem.fact.removeprefix(f'"{path}" ').removeprefix(f'"{path}": ')
    bad = BadRow(path, f"{reason}: {problem.detail}" if problem.detail else reason, path, problem)
    return RowRange(empty_batch(schema), RowRange.no_numbers(), ((number, bad),), number, number + 1)


def _is_missing(paths: Paths) -> bool:
    """Return whether what is named is not there now, so that it may come."""
    if not isinstance(paths, str | PathLike):
        return any(_is_missing(path) for path in paths)
    return glob.has_magic(str(paths)) or not Path(paths).exists()


def _modified_ns(paths: Paths) -> int:
    """Return when files were last put into a folder, or taken out of it; 0 if it is not there."""
    try:
        return os.stat(str(paths)).st_mtime_ns  # noqa: PTH116  # asked often
    except OSError:
        return 0
