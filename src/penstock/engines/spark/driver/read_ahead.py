"""Batches that are read ahead of their rounds: what tasks read of them, and what their reports say together.

A batch of files is cut into splits, of parts of large files or of whole small ones. Jobs read them with
source stages in workers, and keep the rows in Spark until the round of the batch; of a batch the driver only
has the report, put together from those of its splits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from penstock.accounts import Accounts
from penstock.connect.readers.files import FileReader, read_error
from penstock.engines.spark.file_splits import RemoteBatch, SourceFile, UnreadBatch
from penstock.engines.spark.jvm_source import RemoteSource
from penstock.engines.spark.source_task import SourceReport, SourceSplit
from penstock.engines.wire import failure_from_dict
from penstock.frozen import Frozen
from penstock.stages.source import SourceStage

MIN_SPLIT_BYTES, MAX_SPLIT_BYTES = 1 << 22, 1 << 26
"""Files are cut into parts of such sizes."""


class ReadRows(ABC):
    """Rows that have been read ahead and wait in Spark; `reports` are by split."""

    def __init__(self, reports: Sequence[SourceReport]) -> None:
        self.reports = reports

    @property
    def n_rows(self) -> int:
        """Return the number of rows that were read."""
        return sum((report.accounts or {}).get("rows_in", 0) for report in self.reports)

    @abstractmethod
    def release(self) -> None:
        """Let Spark forget them."""


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
    def n_rows(self) -> int:
        """Return the number of rows that were read, bad ones too."""
        return int((self.report.accounts or {}).get("rows_in", 0))


class ReadJobs(Protocol):
    """The jobs that read sources.

    trigger  how often a stream of Spark's is to be cut
    """

    trigger: str | None

    @property
    def remote(self) -> Mapping[str, RemoteSource]:
        """Return the sources whose times can be known before their rows."""

    def source_splits(
        self, source: str, number: int, batch: RemoteBatch | UnreadBatch, now: int
    ) -> list[SourceSplit]:
        """Return what tasks read of a batch, where source stages look at its rows."""

    def read(self, splits: Sequence[SourceSplit], frame: Any = None) -> ReadRows:
        """Read splits ahead of their rounds; `frame` has the rows of a split without files."""


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


def take_over(stage: SourceStage, batch: ReadBatch, accounts: Accounts, reasons: list[str]) -> None:
    """Count and follow a batch that was read ahead; raise what a source stage raised on it."""
    report = batch.report
    if report.failure is not None:
        raise failure_from_dict(report.failure)
    accounts.add(Accounts(**(report.accounts or {})))
    if report.reason is not None:
        reasons.append(report.reason)
    stage.take_over(batch.n_rows, report.watermark)


def unread_files(reader: FileReader, paths: Sequence[Path], start: int) -> UnreadBatch:
    """Return the batch of some files, with room for the numbers of their rows."""
    files, n_rows, n_bytes = [], 0, 0
    for path in paths:
        try:
            n_bytes += path.stat().st_size
            size = reader.format.size(path)
        except OSError as problem:
            raise read_error(path, problem) from problem
        files.append(SourceFile(str(path.absolute()), start + n_rows))
        n_rows += size
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
    doubtful = [file.path for file in batch.files if reader.format.needs_scan(Path(file.path), most)]
    quoted = set[str | None]()
    if doubtful and not whole:
        scans = [
            SourceSplit(source, number, now, ((path, part.first, part.last, 0),), most, scan=True)
            for path in doubtful
            for part in reader.format.parts(Path(path), most, plain=True)
        ]
        rows = scan(scans)
        quoted = {report.quoted for report in rows.reports}
        rows.release()
    parts = [
        (file.path, part.first, part.last, file.start)
        for file in batch.files
        for part in reader.format.parts(Path(file.path), most, plain=file.path not in quoted)
    ]
    if whole or not parts:
        return [SourceSplit(source, number, now, tuple(parts), batch.n_bytes)]
    return [SourceSplit(source, number, now, (part,), batch.n_bytes // len(parts)) for part in parts]
