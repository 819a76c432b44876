"""Parquet files that Spark reads itself: which files make a batch, and what their footers prove of them.

The driver opens no more than footers: how many rows there are, and the least and greatest time. Where those
do not tell the times, one small job does. Batches that are small, whose columns need casting, or in which a
time is null or out of range are read on the driver after all, where everything is known about bad rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.batching import to_source_batch
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.files import FileReader, read_error
from penstock.engines.sources import SourceReader
from penstock.engines.spark.jvm import pipeline as native_chain
from penstock.frozen import dataclass
from penstock.operators.ends import Source, SourceTime
from penstock.plan.plan import Plan, Step
from penstock.stages.rows.batch import Batch
from penstock.stages.source import SourceStage
from penstock.stages.stage import Site
from penstock.timing.column import LIMIT

_DAY_ZERO, _EPOCH, _US = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, the number of its first row among all rows of the source, and the rows of its row groups."""

    path: str
    start: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A batch that Spark reads: all its rows have a time that they may have.

    files            none for a DataFrame, which is one batch
    least, greatest  microseconds: of the times; 0 on a source without time
    by_workers       Python workers read it; else the JVM does
    light            they make parts of it as they read, which is soon done
    """

    files: tuple[SourceFile, ...]
    n_rows: int
    least: int
    greatest: int
    by_workers: bool = False
    light: bool = False


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The least and greatest value of a time column, in its own unit, and how many nulls and rows it has."""

    least: int
    greatest: int
    n_nulls: int
    n_rows: int


ScanTimes = Callable[[Sequence[SourceFile]], TimeRange]
"""A job that looks at the times of some files, or of the DataFrame when there are none."""


class JvmReader(SourceReader, ABC):
    """A source at work that Spark reads where that is possible."""

    def __init__(self, plan: Plan, step: Step, clock: Clock, accounts: Accounts, look: ScanTimes) -> None:
        super().__init__(plan, step, clock, accounts)
        assert isinstance(step.op, Source), "only sources read"
        self._time, self._look = step.op.resolve(), look
        self._clock, self._accounts = clock, accounts
        rank = plan.sources.index(step) if len(plan.sources) > 1 else None
        self._again = SourceStage(step.op, Site(step.name, step.where, Accounts(), clock), rank=rank)
        self.allowed, self.least_rows = True, native_chain.LEAST_ROWS
        self.by_workers = self.light = False

    def rows(self, batch: SourceBatch | RemoteBatch) -> list[tuple[str, Batch]]:
        """The batch with times and places; of one that Spark reads only what follows from it is noted."""
        if isinstance(batch, SourceBatch):
            return super().rows(batch)
        self._accounts.rows_in += batch.n_rows
        self._accounts.passed += batch.n_rows
        self._accounts.rows_out += batch.n_rows
        if self._time is not None:
            assert self._time.delay is not None, "a source without a rule has a delay"
            self._stage.promise(batch.greatest - self._time.delay)
        return []

    def read_here(self, batch: RemoteBatch) -> list[tuple[str, Batch]]:
        """The rows of a batch that was to be read by Spark, which has been counted already."""
        try:
            return list(self._again.on_read(self.here(batch)))
        except Exception as cause:
            raise self.read_error(cause) from cause

    @abstractmethod
    def here(self, batch: RemoteBatch) -> SourceBatch:
        """The batch as its reader gives it."""

    def _bounded(self, files: tuple[SourceFile, ...], n_rows: int, extent: TimeRange) -> RemoteBatch | None:
        """The batch, unless it has times that rows may not have."""
        assert self._time is not None, "only times have bounds"
        least, greatest = self._time.type.micros(extent.least), self._time.type.micros(extent.greatest)
        future = self._time.max_future
        ahead = future is not None and greatest > self._clock.now() + future
        if ahead or extent.n_nulls or max(abs(least), abs(greatest)) > LIMIT:
            return None
        return RemoteBatch(files, n_rows, least, greatest, self.by_workers, self.light)


class FrameReader(JvmReader):
    """A DataFrame: one batch."""

    def here(self, batch: RemoteBatch) -> SourceBatch:
        """All rows, on the driver."""
        return next(iter(self._reader.batches()))

    def _read(self) -> Iterator[SourceBatch | RemoteBatch]:
        extent = self._look(())
        if extent.n_rows < self.least_rows:
            native = None
        elif self._time is None:
            native = RemoteBatch((), extent.n_rows, 0, 0)
        else:
            native = self._bounded((), extent.n_rows, extent)
        yield native or next(iter(self._reader.batches()))


class FilesReader(JvmReader):
    """Parquet files: as many to a batch as their reader says."""

    @property
    def _files(self) -> FileReader:
        assert isinstance(self._reader, FileReader), "files have a reader of files"
        return self._reader

    def here(self, batch: RemoteBatch) -> SourceBatch:
        """The rows of the files."""
        return self._here([Path(file.path) for file in batch.files], [file.start for file in batch.files])

    def _read(self) -> Iterator[SourceBatch | RemoteBatch]:
        """The files in order, as many to a batch as the reader says."""
        start = self._files.position[1]
        for group in self._files.plan_batches():
            footers = []
            for file in group:
                self._files.check(file)
                footers.append(_footer(file))
            starts = [start + sum(each.num_rows for each in footers[:i]) for i in range(len(footers))]
            start = starts[-1] + footers[-1].num_rows
            native = self._native(group, footers, starts)
            yield native or self._here(group, starts)

    def _here(self, files: Sequence[Path], starts: Sequence[int]) -> SourceBatch:
        ranges = [
            rows
            for file, start in zip(files, starts, strict=True)
            for rows in self._files.read_file(file, start)
        ]
        return to_source_batch(ranges, self._files.schema)

    def _native(
        self, files: Sequence[Path], footers: Sequence[Any], starts: Sequence[int]
    ) -> RemoteBatch | None:
        """The batch as Spark would read it; None when it must be read here."""
        n_rows = sum(footer.num_rows for footer in footers)
        known = self.by_workers or all(map(_is_plain, files))
        known = known and all(has_schema(each, self._files.schema) for each in footers)
        if not self.allowed or n_rows < self.least_rows or not known:
            return None
        paths = [str(file.absolute()) for file in files]
        groups = [tuple(f.row_group(g).num_rows for g in range(f.num_row_groups)) for f in footers]
        told = tuple(map(SourceFile, paths, starts, groups))
        if self._time is None:
            return RemoteBatch(told, n_rows, 0, 0, self.by_workers, self.light)
        extent = time_range_of(footers, self._time)
        if extent is None and all(map(_is_plain, files)):
            extent = self._look(told)
        return None if extent is None else self._bounded(told, n_rows, extent)


def has_schema(footer: Any, schema: pa.Schema) -> bool:
    """Whether every column is stored in the very type that it is read as."""
    stored = footer.schema.to_arrow_schema()
    return all(stored.field(field.name).type == field.type for field in schema)


def time_range_of(footers: Sequence[Any], time: SourceTime) -> TimeRange | None:
    """What the statistics of all row groups prove; None where they prove nothing."""
    found: list[tuple[int, int]] = []
    for footer in footers:
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            columns = (group.column(place) for place in range(group.num_columns))
            chunk = next(each for each in columns if each.path_in_schema == time.column)
            stats = chunk.statistics
            proven = stats is not None and stats.has_min_max and stats.has_null_count
            if not proven or stats.null_count:
                return None
            try:
                found.append((_number(stats.min), _number(stats.max)))
            except (ValueError, OverflowError, TypeError):
                return None
    if not found:
        return None
    n_rows = sum(footer.num_rows for footer in footers)
    return TimeRange(min(least for least, _ in found), max(most for _, most in found), 0, n_rows)


def _number(value: object) -> int:
    """A statistic in the unit of its column: microseconds, days, or the number that it is."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // _US
    if isinstance(value, date):
        return (value - _DAY_ZERO).days
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is not a time")


def _footer(file: Path) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(file)
    except (OSError, pa.ArrowException) as problem:
        raise read_error(file, problem) from problem


def _is_plain(file: Path) -> bool:
    """Whether Spark takes the path as it is; it passes over hidden files without a word."""
    plain = native_chain.PLAIN_PATH.fullmatch(str(file.absolute())) is not None
    return plain and not file.name.startswith((".", "_"))
