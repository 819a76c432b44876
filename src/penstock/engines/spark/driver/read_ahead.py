"""Batches that are read ahead of their rounds: what tasks read of them, and what their reports say together.

A batch of files is cut into splits, of parts of large files or of whole small ones. Jobs read them with
source stages in workers, and keep the rows in Spark until the round of the batch; of a batch the driver only
has the report, put together from those of its splits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.accounts import Accounts
from penstock.connect.readers.file_identity import FileRange
from penstock.connect.readers.files import FileReader
from penstock.connect.readers.input_format import FilePart
from penstock.engines.spark.file_splits import RemoteBatch, SourceFile, UnreadBatch
from penstock.engines.spark.source_task import SourceReport, SourceSplit
from penstock.errors import ConnectorError
from penstock.frozen import Frozen

MIN_SPLIT_BYTES, MAX_SPLIT_BYTES = 1 << 22, 1 << 26
"""Files are cut into parts of such sizes."""


class ReadRows:
    """Rows that a job has read ahead, and that wait in Spark's cache.

    frame    the rows, a DataFrame
    reports  what the source stages found, by split
    merged   the same by source and number of the batch
    """

    def __init__(self, frame: Any, reports: Sequence[SourceReport]) -> None:
        self.frame, self.reports, self.merged = frame, reports, merge_reports(reports)
        self._waiting = {place for place, report in self.merged.items() if not report.ended}

    @property
    def n_rows(self) -> int:
        """Return the number of rows that were read."""
        return sum((report.accounts or {}).get("rows_in", 0) for report in self.reports)

    def batch(self, source: str, number: int) -> ReadBatch:
        """Return one of the batches that were read."""
        return ReadBatch(number, self.merged.get((source, number)) or SourceReport(source, number), self)

    def release(self, source: str, number: int) -> None:
        """Let Spark forget the rows, once this batch is done and all others are."""
        self._waiting.discard((source, number))
        if not self._waiting:
            with suppress(Exception):  # Spark may have been stopped
                self.frame.unpersist()


class ReadBatch(Frozen):
    """A batch that has been read ahead.

    number  of the batch in its source
    report  what the source stages found, put together
    rows    where its rows are
    """

    number: int
    report: SourceReport
    rows: ReadRows

    @property
    def position(self) -> Any:
        """Return where to go on behind the batch, if rows make the batches."""
        return self.report.position

    @property
    def n_rows(self) -> int:
        """Return the number of rows that were read, bad ones too."""
        return int((self.report.accounts or {}).get("rows_in", 0))


def merge_reports(reports: Iterable[SourceReport]) -> dict[tuple[str, int], SourceReport]:
    """Return one report for each batch of a source; of several failures the first in the input counts."""
    merged: dict[tuple[str, int], SourceReport] = {}
    for part in sorted(reports, key=lambda report: report.order):
        place = part.source, part.batch
        whole = merged.get(place)
        if whole is None:
            merged[place] = part
            continue
        counts = Accounts(**(whole.accounts or {}))
        counts.add(Accounts(**(part.accounts or {})))
        known = [at for at in (whole.watermark, part.watermark) if at is not None]
        merged[place] = replace(
            whole,
            watermark=max(known, default=None),
            accounts=counts.to_dict(),
            reason=whole.reason or part.reason,
            failure=whole.failure or part.failure,
            ended=whole.ended or part.ended,
        )
    return merged


def unread_files(reader: FileReader, ranges: Sequence[FileRange], start: int) -> UnreadBatch:
    """Return the batch of some files, with room for the numbers of their rows.

    A file of which nothing can be told has room for the one bad row that it is.
    """
    files, n_rows, n_bytes = [], 0, 0
    for one in ranges:
        path, grows, size = Path(one.path), reader.format.grows(Path(one.path)), 0
        with suppress(OSError, ConnectorError):
            n_bytes += (min(path.stat().st_size, one.last) - one.first) if grows else path.stat().st_size
            size = reader.format.size(path)
        last = one.last if grows else sys.maxsize
        room = max(0, min(size, last) - one.first)
        # Why: a part numbers its rows from the beginning of the file.
        files.append(SourceFile(str(path.absolute()), start + n_rows - one.first, None, one.first, last))
        n_rows += room + 1
    return UnreadBatch(tuple(files), n_rows, n_bytes)


def split_source(
    reader: FileReader,
    source: str,
    number: int,
    batch: RemoteBatch | UnreadBatch,
    now: int,
    *,
    whole: bool,
    n_tasks: int,
    scan: Callable[[Sequence[SourceSplit]], ReadRows],
) -> list[SourceSplit]:
    """Return what tasks read of a batch: parts of large files, and small files as they are.

    scan  a job that finds the files that hold quotes, and therefore cannot be cut
    """
    most = max(MIN_SPLIT_BYTES, min(MAX_SPLIT_BYTES, -(-batch.n_bytes // n_tasks)))
    doubtful = [(file.path, part) for file in batch.files for part in _scan_parts(reader, file, most)]
    quoted = set[str | None]()
    if doubtful and not whole:
        scans = [
            SourceSplit(source, number, now, ((path, part.first, part.last, 0),), most, scan=True)
            for path, part in doubtful
        ]
        rows = scan(scans)
        quoted = {report.quoted for report in rows.reports}
        rows.release(source, number)
    parts = [
        (file.path, part.first, part.last, file.start, part.begin, part.end)
        for file in batch.files
        for part in _cut(reader, file, most, plain=file.path not in quoted)
    ]
    if whole or not parts:
        return [SourceSplit(source, number, now, tuple(parts), batch.n_bytes)]
    return [SourceSplit(source, number, now, (part,), batch.n_bytes // len(parts)) for part in parts]


def _cut(reader: FileReader, file: SourceFile, most: int, *, plain: bool) -> list[FilePart]:
    """Return the parts of a file; one that cannot be looked at is one part, and whoever reads it says why."""
    try:
        return reader.format.parts(Path(file.path), most, plain=plain, begin=file.first, end=file.last)
    except (OSError, ConnectorError):
        return [FilePart(file.path, file.first, file.last, file.first, file.last)]


def _scan_parts(reader: FileReader, file: SourceFile, most: int) -> list[FilePart]:
    """Return the parts in which quotes are looked for, before a file is cut."""
    with suppress(OSError, ConnectorError):
        if reader.format.needs_scan(Path(file.path), most):
            return _cut(reader, file, most, plain=True)
    return []
