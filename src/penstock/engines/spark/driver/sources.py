"""Source readers of the driver: which files make a batch, and what their footers prove of them.

Of files and DataFrames the driver learns no more than how many rows there are, and the least and greatest
time. Footers tell, or one small job; where they cannot, because of the format, of columns that need casting,
or of a time that is null or out of range, a source stage in a worker reads the batch (`source_task.py`) and
reports what it found. A reader with `batch=` cuts batches by rows, so one worker reads several ahead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch, SourcePosition, may_wait
from penstock.connect.readers.files import FileReader
from penstock.connect.readers.parquet import ParquetFormat
from penstock.connect.readers.spark import SparkReader, SparkStreamReader, StreamBatches
from penstock.engines.checkpoint.sealed_files import RESTORE
from penstock.engines.ends import JournalOf, SourceReader, no_journal
from penstock.engines.spark.driver.background import BackgroundSourceReader
from penstock.engines.spark.driver.progress import BatchProgress, observe_progress, report_progress
from penstock.engines.spark.driver.query_log import find_damage, sign_offsets
from penstock.engines.spark.driver.read_ahead import ReadBatch, unread_files
from penstock.engines.spark.file_splits import RemoteBatch, SourceFile, UnreadBatch
from penstock.engines.spark.fragments import lives_on_driver
from penstock.engines.spark.jvm_source import RemoteSource, TimeRange
from penstock.engines.spark.read_placement import PLAIN_PATH
from penstock.engines.spark.source_task import SourceSplit
from penstock.engines.wire import failure_from_dict
from penstock.errors import CheckpointError
from penstock.operators.ends import SourceTime
from penstock.plan.plan import Plan, Step
from penstock.stages.rows.batch import Batch
from penstock.timing.units import LIMIT
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from penstock.engines.spark.driver.jobs import SparkJobs

_PLAN_AHEAD = 1024
"""Batches of files that wait to be taken: nobody has read them yet."""
_TAKEN_POLL_S = 0.005
"""Seconds between checks whether a batch has been taken."""

MAX_BATCHES, MAX_ROWS = 64, 500_000
"""Batches and rows that one worker reads ahead of a source whose batches are cut by rows."""


def open_source(
    plan: Plan,
    step: Step,
    clock: Clock,
    accounts: Accounts,
    jobs: SparkJobs,
    folder: Path,
    now: Callable[[], int],
) -> SourceReader:
    """Return the reader of a source.

    folder  where Spark may keep the offsets of a stream
    now     returns the time of the round that is taken next
    """
    reader = step.as_source.reader
    if lives_on_driver(reader):
        kind = BackgroundSourceReader if may_wait(reader) else SourceReader
        return kind(plan, step, clock, accounts)
    kind_of_worker: type[WorkerSourceReader]
    if isinstance(reader, SparkStreamReader):
        kind_of_worker = StreamSourceReader
    elif isinstance(reader, FileReader) and reader.batch is not None:
        kind_of_worker = SequenceSourceReader
    else:
        kind_of_worker = RemoteSourceReader if reader.bounded else FollowedSourceReader
    return kind_of_worker(plan, step, clock, accounts, jobs, folder, now)


class WorkerSourceReader(SourceReader):
    """A source that workers read: the driver only counts its batches, and follows how far time has come."""

    def __init__(
        self,
        plan: Plan,
        step: Step,
        clock: Clock,
        accounts: Accounts,
        jobs: SparkJobs,
        folder: Path,
        now: Callable[[], int],
    ) -> None:
        super().__init__(plan, step, clock, accounts)
        self._folder = folder / f"stream-{plan.sources.index(step)}"
        self._jobs, self._now, self._time = jobs, now, step.as_source.resolve()
        self._clock, self._accounts = clock, accounts

    def rows(self, batch: Any) -> list[tuple[str, Batch]]:
        """Return the rows of a batch that was pushed by hand; of any other only count and follow it.

        Raise what a source stage raised on a batch that was read ahead.
        """
        if isinstance(batch, SourceBatch):
            return super().rows(batch)
        if isinstance(batch, ReadBatch):
            report = batch.report
            if report.failure is not None:
                self.give_up(batch)
                raise failure_from_dict(report.failure)
            self._passed = batch.position
            self._accounts.add(Accounts(**(report.accounts or {})))
            if report.reason is not None:
                self.reasons.append(report.reason)
            self._stage.take_over(batch.n_rows, report.watermark)
        return []


class StreamSourceReader(BackgroundSourceReader, WorkerSourceReader):
    """A streaming DataFrame. Spark goes on to its next batch when a manifest says that this one is done.

    expected_offsets  the checksum of what Spark's log says of the last batch that is done; None if unknown
    """

    _stream: StreamBatches | None = None
    expected_offsets: str | None = None

    def begin(self, arrived: threading.Condition) -> None:
        """Prepare to read; Spark makes the next batch once this one is done, so none is read ahead."""
        super().begin(arrived)
        self.bounded = False

    def resume(self, position: SourcePosition, watermark: float, journal: JournalOf = no_journal) -> None:
        """Continue behind the batches that are done; Spark repeats the one after them, if it had begun."""
        last = position[0] - 1
        if position[0] and not (self._folder / "offsets").exists():
            raise self._damage(
                "is gone",
                f"{self._folder}: only that said where the {position[0]:,} batches ended that are done",
            )
        damage = find_damage(self._folder)
        if damage is not None:
            raise self._damage("is damaged", f"{damage[0]}: {damage[1]}")
        if position[0] and self.expected_offsets not in (None, self.sign_batch(last)):
            raise self._damage(
                "is older than the checkpoint, or another",
                f"{self._folder / 'offsets' / str(last)}: it does not say what was read in that batch",
            )
        self.n_batches, self.n_rows, _ = position
        if BEFORE_ALL < watermark < AFTER_ALL:
            self._stage.promise(int(watermark))
        assert isinstance(self._reader, SparkStreamReader), "streams have a reader of streams"
        timed = [self.step.name] if self.timed else []
        try:
            frame = observe_progress(self._reader.frame, timed, is_ours=False)
            self._stream = StreamBatches(
                replace(self._reader, frame=frame),
                str(self._folder),
                position[0],
                self._read_frame,
                self._jobs.trigger,
            )
        except Exception as cause:
            raise self.read_error(cause) from cause
        self._start()

    def _damage(self, why: str, detail: str) -> CheckpointError:
        return CheckpointError(
            f'Spark\'s own checkpoint of source "{self.step.name}" {why}',
            step=self.step.name,
            where=self.step.where,
            detail=detail,
            hint=RESTORE,
        )

    def sign_batch(self, number: int) -> str:
        """Return a checksum of what Spark's log says that a batch reads."""
        return sign_offsets(self._folder, number)

    def check_batch(self, number: int, signature: str) -> None:
        """Raise CheckpointError if a batch that is done again reads something else than it did."""
        if signature != self.sign_batch(number):
            detail = f"{self._folder / 'offsets' / str(number)}: it does not say what was read in that batch"
            raise self._damage("is older than the output, or another", detail)

    def commit(self, n_batches: int, progress: BatchProgress) -> None:
        """Tell Spark how many batches are done, and what its progress may tell of the last."""
        if self._stream is not None:
            assert isinstance(self._reader, SparkStreamReader), "streams have a reader of streams"
            gateway = self._reader.frame.sparkSession.sparkContext._gateway
            report_progress(self._stream.query, gateway, progress, is_ours=False)
            self._stream.acknowledge(n_batches)

    def close(self) -> None:
        """End the query."""
        super().close()
        if self._stream is not None:
            self._stream.close()

    def _read(self) -> Iterator[Any]:
        assert self._stream is not None, "a stream is resumed before it is read"
        return iter(self._stream)

    def _read_frame(self, frame: Any, number: int) -> ReadBatch:
        """Let workers look at the rows of a batch of Spark's, in the thread of its query."""
        name = self.step.name
        now = self._pending_stamp = self.stamp_at(self._now())
        return self._jobs.read([SourceSplit(name, number, now)], frame).batch(name, number)

    def rows(self, batch: Any) -> list[tuple[str, Batch]]:
        """Follow a batch that workers have read."""
        rows = super().rows(batch)
        self._pending_stamp = None  # Spark goes on when the batch is done, and not before
        return rows


class RemoteSourceReader(WorkerSourceReader):
    """Files, or a DataFrame, which is one batch: the driver knows which, and not what is in them.

    allowed  whether footers may still speak for rows; False once a batch had to be looked at
    """

    allowed = True
    _fitting: pa.Schema | None = None

    @property
    def _remote(self) -> RemoteSource | None:
        """Return who reads what footers speak for; None where they may not."""
        return self._jobs.remote.get(self.step.name) if self.allowed else None

    def rows(self, batch: Any) -> list[tuple[str, Batch]]:
        """Return the rows of a batch that was pushed by hand; of any other only count and follow it."""
        if not isinstance(batch, RemoteBatch):
            return super().rows(batch)
        n_rows, time = batch.n_rows, self._time
        self._accounts.add(Accounts(rows_in=n_rows, passed=n_rows, rows_out=n_rows))
        assert time is None or time.delay is not None, "a source without a rule has a delay"
        watermark = None if time is None or time.delay is None or not n_rows else batch.greatest - time.delay
        self._stage.take_over(n_rows, watermark)
        return []

    def _read(self) -> Iterator[RemoteBatch | UnreadBatch]:
        reader = self._reader
        if isinstance(reader, SparkReader):
            proven = None
            if self._remote is not None:
                times = self._remote.scan_times(())
                proven = self._remote_batch((), times.n_rows, times)
            yield proven or UnreadBatch((), 0, 0)
            return
        reader = self._watch()
        assert isinstance(reader, FileReader), "only files and DataFrames are read elsewhere"
        reader.check_position(self._at)
        number, start = self._at or (0, 0)
        for ranges in reader.plan_batches(number):
            proven = None
            if self._remote is not None and isinstance(reader.format, ParquetFormat):
                proven = self._remote_files(reader, [Path(one.path) for one in ranges], start)
            batch = proven or unread_files(reader, ranges, start)
            number, start = number + 1, start + batch.n_rows
            yield replace(batch, position=[number, start])

    def _remote_files(self, reader: FileReader, paths: Sequence[Path], start: int) -> RemoteBatch | None:
        """Return a batch of parquet files whose footers prove the times; None where they do not."""
        import pyarrow.parquet as pq

        remote = self._remote
        assert remote is not None, "it is asked only where there is a pipeline"
        footers, files, n_bytes, is_cast = [], [], 0, False
        for path in paths:
            try:
                footer = pq.read_metadata(path)
                n_bytes += path.stat().st_size
            except (OSError, pa.ArrowException):
                return None  # a source stage says what is wrong with it
            stored = footer.schema.to_arrow_schema()
            if self._fitting is None or not stored.equals(self._fitting):
                # Every column must be stored in the very type that it is read as.
                if any(
                    f.name not in stored.names or stored.field(f.name).type != f.type for f in reader.schema
                ):
                    is_cast = True
                else:
                    self._fitting = stored
            groups = tuple(footer.row_group(g).num_rows for g in range(footer.num_row_groups))
            files.append(SourceFile(str(path.absolute()), start, groups))
            footers.append(footer)
            start += footer.num_rows
        n_rows = sum(footer.num_rows for footer in footers)
        if is_cast or not (remote.by_workers or all(map(_is_plain, paths))):
            return None
        times = None
        if self._time is not None and n_rows:
            times = time_range_of(footers, self._time)
            if times is None and not remote.by_workers:
                times = remote.scan_times(files)
        return self._remote_batch(tuple(files), n_rows, times, n_bytes)

    def _remote_batch(
        self, files: tuple[SourceFile, ...], n_rows: int, times: TimeRange | None, n_bytes: int = 0
    ) -> RemoteBatch | None:
        """Return the batch for others to read; None if a time may be invalid."""
        least = greatest = 0
        if self._time is not None and n_rows:
            if times is None or times.n_nulls:
                return None
            least, greatest = self._time.type.micros(times.least), self._time.type.micros(times.greatest)
            future = self._time.max_future
            too_far = future is not None and greatest > self._clock.now() + future
            if too_far or max(abs(least), abs(greatest)) > LIMIT:
                return None
        remote = self._jobs.remote[self.step.name]
        return RemoteBatch(files, n_rows, least, greatest, remote.by_workers, remote.rows_as_one, n_bytes)


class FollowedSourceReader(BackgroundSourceReader, RemoteSourceReader):
    """The files of a folder that is watched."""

    read_ahead = _PLAN_AHEAD

    def close(self) -> None:
        """Let the thread go, which waits for a change of the folder."""
        super().close()
        if self._watched is not None:
            self._watched.interrupt()

    def _put(self, item: Any) -> None:
        super()._put(item)
        # Why: batches without files only say that time passes, so no more than one of them waits.
        is_tick = isinstance(item, UnreadBatch) and not item.files
        while is_tick and not self._queue.empty() and not self._closed:
            time.sleep(_TAKEN_POLL_S)


class SequenceSourceReader(WorkerSourceReader):
    """Files that a reader cuts into batches by rows: one worker reads some of these ahead."""

    def _read(self) -> Iterator[ReadBatch]:
        number, time = self.n_batches, self._time
        follows_clock = time is not None and (time.column is None or time.max_future is not None)
        # Why: what the clock says must be the same when a round is done again.
        n_ahead = 1 if follows_clock else MAX_BATCHES
        reader, position = self._reader, self._at
        assert isinstance(reader, FileReader), "only files are read elsewhere"
        reader.check_position(position)
        # Why absolute: a worker has a working folder of its own, and the program may change its own.
        files = [
            (listing, n, str(Path(one.path).absolute()), one.first, one.last)
            for listing, n, one in reader.plan_files(position)
        ]
        while True:
            done = 0 if position is None else position[0]
            ahead = tuple(file for file in files if file[1] >= done)
            split = SourceSplit(
                self.step.name,
                number,
                self._now(),
                n_batches=n_ahead,
                max_rows=MAX_ROWS,
                files=ahead,
                position=position,
            )
            rows = self._jobs.read([split])
            for _, report in sorted(rows.merged.items()):
                if report.ended:
                    return
                batch = ReadBatch(number, report, rows)
                position, number = report.position, number + 1
                yield batch


def time_range_of(footers: Sequence[Any], time: SourceTime) -> TimeRange | None:
    """Return what the statistics of all row groups prove, in the unit of the column; None if nothing."""
    ranges: list[tuple[int, int]] = []
    for footer in footers:
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            chunks = (group.column(place) for place in range(group.num_columns))
            statistics = next(chunk for chunk in chunks if chunk.path_in_schema == time.column).statistics
            proven = statistics is not None and statistics.has_min_max and statistics.has_null_count
            if not proven or statistics.null_count:
                return None
            ranges.append((statistics.min_raw, statistics.max_raw))
    if not ranges:
        return None
    n_rows = sum(footer.num_rows for footer in footers)
    return TimeRange(min(least for least, _ in ranges), max(most for _, most in ranges), 0, n_rows)


def _is_plain(file: Path) -> bool:
    """Return whether Spark reads the path as it is; it skips hidden files without a word."""
    plain = PLAIN_PATH.fullmatch(str(file.absolute())) is not None
    return plain and not file.name.startswith((".", "_"))
