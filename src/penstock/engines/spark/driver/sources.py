"""Source readers of the driver: which files make a batch, and what their footers prove of them.

Of files and DataFrames that others read, the driver learns no more than how many rows there are, and the
least and greatest time, from footers; where those do not tell the times, one small job does. Batches that are
small, whose columns need casting, or in which a time is null or out of range are read on the driver after
all, where everything is known about bad rows.

Each source that does not end by itself is read in a thread of its own, a little ahead of the rounds. So a run
can be stopped while nothing comes, other sources continue beside a silent one, and results that depend on the
clock leave though no row arrives.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.files import FileReader, read_error
from penstock.connect.readers.spark import SparkReader, SparkStreamReader, StreamBatches
from penstock.engines.ends import JournalOf, SourceReader, no_journal
from penstock.engines.spark import read_placement
from penstock.engines.spark.file_splits import RemoteBatch, SourceFile
from penstock.engines.spark.jvm_source import RemoteSource, TimeRange
from penstock.errors import CheckpointError
from penstock.operators.ends import Source, SourceTime
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Step
from penstock.stages.rows.batch import Batch
from penstock.stages.source import SourceStage
from penstock.stages.stage import StageContext
from penstock.timing.units import LIMIT
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

_READ_AHEAD = 2
"""Batches that wait to be taken."""
_CLOSED_POLL_S = 0.1
"""Seconds between checks whether the run is over."""
_END = object()
_DAY_ZERO, _EPOCH, _US = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

ScanTimes = Callable[[Sequence[SourceFile]], TimeRange]
"""A job that returns the range of times in some files, or in the DataFrame when there are none."""


def open_source(
    plan: Plan, step: Step, clock: Clock, accounts: Accounts, remote: Mapping[str, RemoteSource], folder: Path
) -> SourceReader:
    """Return the reader of a source; `folder` is where Spark may keep the offsets of a stream."""
    assert isinstance(step.op, Source), "only sources read"
    if isinstance(step.op.reader, SparkStreamReader):
        place = folder / f"stream-{plan.sources.index(step)}"
        return StreamSourceReader(plan, step, clock, accounts, place)
    if step.name not in remote:
        kind = SourceReader if step.op.reader.bounded else BackgroundSourceReader
        return kind(plan, step, clock, accounts)
    source = remote[step.name]
    reader = RemoteSourceReader(plan, step, clock, accounts, source.scan_times)
    reader.by_workers, reader.light = source.by_workers, source.light
    if any(find_spark_sql(behind.op) for behind in source.pipeline.steps):
        reader.min_rows = 1  # nobody but the JVM can compute it, however few rows there are
    return reader


class BackgroundSourceReader(SourceReader):
    """A source that does not end by itself; `arrived` is notified whenever there is something to take."""

    arrived: threading.Condition
    _queue: queue.Queue[Any]

    def begin(self, arrived: threading.Condition) -> None:
        """Prepare to read."""
        self.arrived, self._queue, self._closed = arrived, queue.Queue(_READ_AHEAD), False
        self._batches = self._take()

    def resume(self, position: tuple[int, int], watermark: float, journal: JournalOf = no_journal) -> None:
        """Start to read, from where another run had come to."""
        self._restore(position, journal)
        self._start()
        super().resume(position, watermark)

    def _start(self) -> None:
        threading.Thread(target=self._pump, name=f"penstock-{self.step.name}", daemon=True).start()

    @property
    def silent(self) -> bool:
        """Return whether there is nothing to take now, and may be later."""
        return not self.ended and self._queue.empty()

    def close(self) -> None:
        """Let the thread go; one that waits for input ends with the process, or when some arrives."""
        self._closed = True

    def _pump(self) -> None:
        batches = None
        try:
            batches = self._read()
            for batch in batches:
                self._put(batch)
                if self._closed:
                    break
            self._put(_END)
        except Exception as failure:  # raised again where the batch would have been taken
            self._put(failure)
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                with suppress(Exception):
                    close()

    def _put(self, item: Any) -> None:
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(item, timeout=_CLOSED_POLL_S)
                break
        with self.arrived:
            self.arrived.notify_all()

    def _take(self) -> Iterator[Any]:
        while (item := self._queue.get()) is not _END:
            if isinstance(item, Exception):
                raise item
            yield item


class StreamSourceReader(BackgroundSourceReader):
    """A streaming DataFrame. Spark goes on to its next batch when a manifest says that this one is done."""

    def __init__(self, plan: Plan, step: Step, clock: Clock, accounts: Accounts, folder: Path) -> None:
        super().__init__(plan, step, clock, accounts)
        # Why: Spark makes the next batch once this one is done, so there is nothing to read ahead.
        self.bounded = False
        self._folder = folder
        self._stream: StreamBatches | None = None

    def resume(self, position: tuple[int, int], watermark: float, journal: JournalOf = no_journal) -> None:
        """Continue behind the batches that are done; Spark repeats the one after them, if it had begun."""
        if position[0] and not (self._folder / "offsets").exists():
            raise CheckpointError(
                f'Spark\'s own checkpoint of source "{self.step.name}" is gone',
                step=self.step.name,
                where=self.step.where,
                detail=f"{position[0]:,} of its batches are done, and only that said where they ended: "
                f"{self._folder}",
                hint="bring the folder back, or start with an empty checkpoint folder",
            )
        self.n_batches, self.n_rows = position
        if BEFORE_ALL < watermark < AFTER_ALL:
            self._stage.promise(int(watermark))
        assert isinstance(self._reader, SparkStreamReader), "streams have a reader of streams"
        try:
            self._stream = StreamBatches(self._reader, str(self._folder), position[0])
        except Exception as cause:
            raise self.read_error(cause) from cause
        self._start()

    def commit(self, n_batches: int) -> None:
        """Tell Spark how many batches are done."""
        if self._stream is not None:
            self._stream.acknowledge(n_batches)

    def close(self) -> None:
        """End the query."""
        super().close()
        if self._stream is not None:
            self._stream.close()

    def _read(self) -> Iterator[Any]:
        assert self._stream is not None, "a stream is resumed before it is read"
        return iter(self._stream)


class RemoteSourceReader(SourceReader):
    """Parquet files, or a DataFrame, which is one batch: read elsewhere where that is possible.

    allowed  whether batches still may be read there; False once one could not be
    """

    def __init__(
        self, plan: Plan, step: Step, clock: Clock, accounts: Accounts, scan_times: ScanTimes
    ) -> None:
        super().__init__(plan, step, clock, accounts)
        assert isinstance(step.op, Source), "only sources read"
        self._time, self._scan_times = step.op.resolve(), scan_times
        self._clock, self._accounts = clock, accounts
        # Why a second stage: the rows of a batch that is read again have been counted already.
        self._uncounted = SourceStage(
            step.op, StageContext(step.name, step.where, Accounts(), clock), rank=self.rank
        )
        self.allowed, self.min_rows = True, read_placement.MIN_ROWS
        self.by_workers = self.light = False

    def rows(self, batch: SourceBatch | RemoteBatch) -> list[tuple[str, Batch]]:
        """Return the rows of a batch with times and places; a batch that others read is only counted."""
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
        """Read a batch on the driver that others were to read, and that has been counted already."""
        try:
            rows = self._read_batch([Path(file.path) for file in batch.files], batch.files)
            return list(self._uncounted.on_read(rows))
        except Exception as cause:
            raise self.read_error(cause) from cause

    def _read(self) -> Iterator[SourceBatch | RemoteBatch]:
        import pyarrow.parquet as pq

        reader = self._reader
        if isinstance(reader, SparkReader):
            times = self._scan_times(())
            yield self._remote_batch((), times.n_rows, times) or self._read_batch((), ())
            return
        assert isinstance(reader, FileReader), "only files and DataFrames are read elsewhere"
        start = reader.position[1]
        for paths in reader.plan_batches():
            footers, files = [], []
            for path in paths:
                reader.check(path)
                try:
                    footer = pq.read_metadata(path)
                except (OSError, pa.ArrowException) as problem:
                    raise read_error(path, problem) from problem
                groups = tuple(footer.row_group(g).num_rows for g in range(footer.num_row_groups))
                files.append(SourceFile(str(path.absolute()), start, groups))
                footers.append(footer)
                start += footer.num_rows
            yield self._remote_files(paths, tuple(files), footers) or self._read_batch(paths, files)

    def _read_batch(self, paths: Sequence[Path], files: Sequence[SourceFile]) -> SourceBatch:
        """Return a batch as its reader gives it."""
        if isinstance(self._reader, FileReader):
            return self._reader.read_batch(paths, files[0].start)
        return next(iter(self._reader.batches()))

    def _remote_files(
        self, paths: Sequence[Path], files: tuple[SourceFile, ...], footers: Sequence[Any]
    ) -> RemoteBatch | None:
        n_rows = sum(footer.num_rows for footer in footers)
        is_plain = all(map(_is_plain, paths))
        stored = [footer.schema.to_arrow_schema() for footer in footers]
        # Every column must be stored in the very type that it is read as.
        is_cast = any(types.field(f.name).type != f.type for types in stored for f in self._reader.schema)
        if not self.allowed or is_cast or not (self.by_workers or is_plain):
            return None
        times = None
        if self._time is not None and n_rows >= self.min_rows:
            times = time_range_of(footers, self._time)
            if times is None and is_plain:
                times = self._scan_times(files)
        return self._remote_batch(files, n_rows, times)

    def _remote_batch(
        self, files: tuple[SourceFile, ...], n_rows: int, times: TimeRange | None
    ) -> RemoteBatch | None:
        """Return the batch for others to read; None if it is small, or a time may be invalid."""
        if n_rows < self.min_rows:
            return None
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


def time_range_of(footers: Sequence[Any], time: SourceTime) -> TimeRange | None:
    """Return what the statistics of all row groups prove; None where they prove nothing."""
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
    """Return a statistic in the unit of its column: microseconds, days, or the number that it is."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // _US
    if isinstance(value, date):
        return (value - _DAY_ZERO).days
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is not a time")


def _is_plain(file: Path) -> bool:
    """Return whether Spark reads the path as it is; it skips hidden files without a word."""
    plain = read_placement.PLAIN_PATH.fullmatch(str(file.absolute())) is not None
    return plain and not file.name.startswith((".", "_"))
