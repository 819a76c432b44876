"""Source readers of the driver: which files make a batch, and what their footers prove of them.

Of files and DataFrames that others read, the driver learns no more than how many rows there are, and the
least and greatest time, from footers; where those do not tell the times, one small job does. Batches that are
small, whose columns need casting, or in which a time is null or out of range are read on the driver after
all, where everything is known about bad rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.files import FileReader, read_error
from penstock.connect.readers.spark import SparkStreamReader
from penstock.engines.ends import SourceReader
from penstock.engines.spark import read_placement
from penstock.engines.spark.driver.waits import BackgroundSourceReader, StreamSourceReader
from penstock.engines.spark.jvm.source import RemoteSource, TimeRange
from penstock.engines.spark.worker.files import RemoteBatch, SourceFile
from penstock.operators.ends import Source, SourceTime
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Step
from penstock.stages.rows.batch import Batch
from penstock.stages.source import SourceStage
from penstock.stages.stage import StageContext
from penstock.timing.units import LIMIT

_DAY_ZERO, _EPOCH, _US = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

ScanTimes = Callable[[Sequence[SourceFile]], TimeRange]
"""A job that returns the range of times in some files, or in the DataFrame when there are none."""


def open_source(
    plan: Plan, step: Step, clock: Clock, accounts: Accounts, remote: Mapping[str, RemoteSource], folder: Path
) -> SourceReader:
    """Returns the reader of a source; `folder` is where Spark may keep the offsets of a stream."""
    assert isinstance(step.op, Source), "only sources read"
    if isinstance(step.op.reader, SparkStreamReader):
        place = folder / f"stream-{plan.sources.index(step)}"
        return StreamSourceReader(plan, step, clock, accounts, place)
    if step.name not in remote:
        kind = SourceReader if step.op.reader.bounded else BackgroundSourceReader
        return kind(plan, step, clock, accounts)
    source = remote[step.name]
    build = DataFrameSourceReader if source.reads_dataframe else ParquetSourceReader
    reader = build(plan, step, clock, accounts, source.scan_times)
    reader.by_workers, reader.light = source.by_workers, source.light
    if any(find_spark_sql(behind.op) for behind in source.pipeline.steps):
        reader.min_rows = 1  # nobody but the JVM can compute it, however few rows there are
    return reader


class RemoteSourceReader(SourceReader, ABC):
    """A source whose batches are read elsewhere where that is possible.

    allowed  whether they still may be; False once a batch could not be read there
    """

    def __init__(
        self, plan: Plan, step: Step, clock: Clock, accounts: Accounts, scan_times: ScanTimes
    ) -> None:
        super().__init__(plan, step, clock, accounts)
        assert isinstance(step.op, Source), "only sources read"
        self._time, self._scan_times = step.op.resolve(), scan_times
        self._clock, self._accounts = clock, accounts
        rank = plan.sources.index(step) if len(plan.sources) > 1 else None
        # Why a second stage: the rows of a batch that is read again have been counted already.
        self._uncounted = SourceStage(
            step.op, StageContext(step.name, step.where, Accounts(), clock), rank=rank
        )
        self.allowed, self.min_rows = True, read_placement.MIN_ROWS
        self.by_workers = self.light = False

    def rows(self, batch: SourceBatch | RemoteBatch) -> list[tuple[str, Batch]]:
        """Returns the rows of a batch with times and places; a batch that others read is only counted."""
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
        """Reads a batch on the driver that others were to read, and that has been counted already."""
        try:
            return list(self._uncounted.on_read(self._read_batch(batch)))
        except Exception as cause:
            raise self.read_error(cause) from cause

    @abstractmethod
    def _read_batch(self, batch: RemoteBatch) -> SourceBatch:
        """Returns the batch as its reader gives it."""

    def _remote_batch(
        self, files: tuple[SourceFile, ...], n_rows: int, times: TimeRange | None
    ) -> RemoteBatch | None:
        """Returns the batch for others to read; None if a time may be invalid."""
        least = greatest = 0
        if self._time is not None:
            if times is None or times.n_nulls:
                return None
            least, greatest = self._time.type.micros(times.least), self._time.type.micros(times.greatest)
            future = self._time.max_future
            too_far = future is not None and greatest > self._clock.now() + future
            if too_far or max(abs(least), abs(greatest)) > LIMIT:
                return None
        return RemoteBatch(files, n_rows, least, greatest, self.by_workers, self.light)


class DataFrameSourceReader(RemoteSourceReader):
    """A DataFrame: one batch."""

    def _read_batch(self, batch: RemoteBatch) -> SourceBatch:
        return next(iter(self._reader.batches()))

    def _read(self) -> Iterator[SourceBatch | RemoteBatch]:
        times = self._scan_times(())
        remote = None
        if times.n_rows >= self.min_rows:
            remote = self._remote_batch((), times.n_rows, times)
        yield remote or next(iter(self._reader.batches()))


class ParquetSourceReader(RemoteSourceReader):
    """Parquet files: as many to a batch as their reader says."""

    @property
    def _files(self) -> FileReader:
        assert isinstance(self._reader, FileReader), "files have a reader of files"
        return self._reader

    def _read_batch(self, batch: RemoteBatch) -> SourceBatch:
        return self._files.read_batch([Path(file.path) for file in batch.files], batch.files[0].start)

    def _read(self) -> Iterator[SourceBatch | RemoteBatch]:
        start = self._files.position[1]
        for group in self._files.plan_batches():
            footers = []
            for file in group:
                self._files.check(file)
                footers.append(_read_footer(file))
            starts = [start + sum(footer.num_rows for footer in footers[:i]) for i in range(len(footers))]
            start = starts[-1] + footers[-1].num_rows
            yield self._remote_files(group, footers, starts) or self._files.read_batch(group, starts[0])

    def _remote_files(
        self, paths: Sequence[Path], footers: Sequence[Any], starts: Sequence[int]
    ) -> RemoteBatch | None:
        n_rows = sum(footer.num_rows for footer in footers)
        plain = all(map(_is_plain, paths))
        readable = self.by_workers or plain
        readable = readable and all(has_schema(footer, self._files.schema) for footer in footers)
        if not self.allowed or n_rows < self.min_rows or not readable:
            return None
        groups = [tuple(f.row_group(g).num_rows for g in range(f.num_row_groups)) for f in footers]
        files = tuple(map(SourceFile, (str(path.absolute()) for path in paths), starts, groups))
        times = None if self._time is None else time_range_of(footers, self._time)
        if self._time is not None and times is None and plain:
            times = self._scan_times(files)
        return self._remote_batch(files, n_rows, times)


def has_schema(footer: Any, schema: pa.Schema) -> bool:
    """Returns whether every column is stored in the very type that it is read as."""
    stored = footer.schema.to_arrow_schema()
    return all(stored.field(field.name).type == field.type for field in schema)


def time_range_of(footers: Sequence[Any], time: SourceTime) -> TimeRange | None:
    """Returns what the statistics of all row groups prove; None where they prove nothing."""
    ranges: list[tuple[int, int]] = []
    for footer in footers:
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            chunks = (group.column(place) for place in range(group.num_columns))
            statistics = next(chunk for chunk in chunks if chunk.path_in_schema == time.column).statistics
            proven = statistics is not None and statistics.has_min_max and statistics.has_null_count
            if not proven or statistics.null_count:
                return None
            try:
                ranges.append((_to_number(statistics.min), _to_number(statistics.max)))
            except (ValueError, OverflowError, TypeError):
                return None
    if not ranges:
        return None
    n_rows = sum(footer.num_rows for footer in footers)
    return TimeRange(min(least for least, _ in ranges), max(most for _, most in ranges), 0, n_rows)


def _to_number(value: object) -> int:
    """Returns a statistic in the unit of its column: microseconds, days, or the number that it is."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // _US
    if isinstance(value, date):
        return (value - _DAY_ZERO).days
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is not a time")


def _read_footer(file: Path) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(file)
    except (OSError, pa.ArrowException) as problem:
        raise read_error(file, problem) from problem


def _is_plain(file: Path) -> bool:
    """Returns whether Spark reads the path as it is; it skips hidden files without a word."""
    plain = read_placement.PLAIN_PATH.fullmatch(str(file.absolute())) is not None
    return plain and not file.name.startswith((".", "_"))
