"""Source readers and sink writers: the two ends of a plan, at work in a run.

A reader's batches get times and order, and leave a frontier behind them. The rows of a round are written and
committed under the round's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock, HeldClock
from penstock.connect import protocol
from penstock.connect.batching import SourceRowBatch
from penstock.connect.protocol import SourcePosition
from penstock.connect.read_claims import WaitingRead
from penstock.connect.readers.file_journal import count_entries
from penstock.connect.writers.staged_files import StagedFile
from penstock.crash_points import COMMITTED, pass_crash_point
from penstock.engines.frontiers import OVER, Frontier
from penstock.errors import CheckpointError, ConnectorError, PenstockError, describe_cause
from penstock.operators.ends import Sink
from penstock.plan.plan import Plan, Step
from penstock.stages.rows.batch import Batch, RowBatch
from penstock.stages.source import SourceStage
from penstock.stages.stage import StageContext
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from penstock.connect.readers.file_journal import Journal


JournalOf = Callable[[str, int], "Journal | None"]
"""Returns the journal of a source, by its name and the number of batches done; None where there is none."""
_UNTIMED = Frontier()


def no_journal(source: str, done: int) -> None:
    """Return no journal: for runs without a checkpoint."""


class SourceReader:
    """Reads one source.

    bounded     the input ends by itself
    timed       rows have a time
    gives_rows  `open` yields single plain rows, each a batch of its own
    rank        the number of this source among several, by which rows of equal time are ordered first
    ended       the reader has no more batches
    n_batches   the number of batches read so far
    n_rows      the number of rows in them
    waits       rows may come at any time, so `open` may yield nothing for long
    repeats_rows  the same rows come again after a crash
    wait_us     how long rows wait for others of their batch, in microseconds; None for ever
    reasons     why rows failed, of the batch at hand
    time_of     returns the time of a row that is a batch of its own
    promise     moves the watermark, in microseconds, as if the source had said so
    stamp       returns the time of a row that is read now, where that is its time

    follows_clock  the watermark goes on with the clock, though no row comes
    """

    def __init__(self, plan: Plan, step: Step, clock: Clock, accounts: Accounts) -> None:
        self.step, self._reader = step, step.as_source.reader
        self.bounded = self._reader.bounded
        self.waits = bool(getattr(self._reader, "waits", not self.bounded))  # as `may_wait` does
        self.wait_us: int | None = getattr(self._reader, "wait_us", None)
        self.repeats_rows = self._reader.delivery is protocol.Delivery.EXACTLY_ONCE
        self.gives_rows = isinstance(self._reader, protocol.RowReader) and self._reader.gives_rows
        self.rank = plan.sources.index(step) if len(plan.sources) > 1 else None
        self.reasons: list[str] = []
        site = StageContext(step.name, step.where, accounts, clock, reasons=self.reasons)
        self._stage = SourceStage(step.as_source, site, rank=self.rank)
        self.time_of, self.promise = self._stage.time_of, self._stage.promise
        self.stamp = clock.now
        time = step.as_source.resolve()
        self.timed, self.follows_clock = time is not None, time is not None and time.follows_clock
        self._batches: Iterator[Any] | None = None
        self._watched: Any = None  # the reader, once its wait can be interrupted
        self._is_ending = False
        self.ended = self._over = False
        self.n_batches = self.n_rows = 0
        self._at: Any = None
        self._passed: Any = None  # the position behind the last batch that got its times
        self._is_indexed = isinstance(self._reader, protocol.IndexedReader)
        self._frontier = Frontier()
        self._refusal: PenstockError | None = None

    @property
    def watermark(self) -> float:
        """Return the watermark after the rows read so far."""
        return self._stage.watermark

    @property
    def idle(self) -> bool:
        """Return whether the source has been silent for so long that its watermark is not waited for."""
        return self.timed and not self._over and self._stage.idle

    @property
    def frontier(self) -> Frontier:
        """Return the frontier after the rows read so far; the same object until it moves."""
        if self._over:
            return OVER
        if not self.timed:
            return _UNTIMED
        watermark, idle = self._stage.watermark, self._stage.idle
        if watermark != self._frontier.watermark or idle != self._frontier.idle:
            self._frontier = Frontier(watermark, idle=idle)
        return self._frontier

    @property
    def position(self) -> SourcePosition:
        """Return the number of batches read, of the rows in them, and the reader's position behind them."""
        at = self.n_batches if self._is_indexed else self._at
        return SourcePosition(self.n_batches, self.n_rows, at)

    def resume(self, position: SourcePosition, watermark: float, journal: JournalOf = no_journal) -> None:
        """Continue after what an earlier run has read: at its position, or by reading it again."""
        self._restore(position, journal)
        n_skipped = None
        if self.waits and self.position[:2] != position[:2] and isinstance(read := self.open(), WaitingRead):
            n_skipped = read.skip(position.rows)
        if n_skipped == position.rows:
            self.n_batches, self.n_rows, self._at = position
        while self.n_batches < position.batches and self.next() is not None:
            continue
        if self.position[:2] != position[:2]:
            # Why an error: batches are counted, so rows would be lost or read twice.
            describe = "{:,} batches of {:,} rows in all".format
            now = describe(*self.position[:2])
            raise CheckpointError(
                f'source "{self.step.name}" does not begin with what has been read of it before',
                step=self.step.name,
                where=self.step.where,
                detail=f"read before: {describe(*position[:2])}; there now: {now}",
                hint="bring the input back as it was, or start with an empty checkpoint folder; "
                "input that grows is best cut by files",
            )
        if BEFORE_ALL < watermark < AFTER_ALL:
            self._stage.resume(int(watermark))

    def _restore(self, position: SourcePosition, journal: JournalOf) -> None:
        """Let the reader begin at the position, if it can; readers of files go by the journal."""
        reader = self._reader
        if isinstance(reader, protocol.JournaledReader):
            at = position.at
            if at is None and position.batches and getattr(reader, "batch", None) is None:
                at = [position.batches, position.rows]  # as an older version has saved it
            entries = journal(self.step.name, count_entries(position))
            if entries is not None:
                self._reader = reader.resume(entries)
                if at is not None:
                    self.n_batches, self.n_rows, self._at = position.batches, position.rows, at
                    self._passed = at
        elif isinstance(reader, protocol.IndexedReader):
            if reader.rows_before(position.batches) == position.rows:
                self.n_batches, self.n_rows = position[:2]
        elif position.at is not None:
            self.n_batches, self.n_rows, self._at = position

    def give_up(self, batch: Any) -> None:
        """Let the files of a batch change before another run reads them: nobody has seen a row of it.

        batch  what could not be read, or its number
        """
        reader = self._reader
        if isinstance(reader, protocol.JournaledReader):
            number = getattr(batch, "number", batch if isinstance(batch, int) else None)
            reader.give_up(number, self._passed, getattr(batch, "position", None))

    def refuse(self, refusal: PenstockError) -> None:
        """Raise this for whatever is read from now on."""
        self._refusal, self.gives_rows = refusal, False

    def next(self) -> Any:
        """Return the next batch, or None at the end."""
        if self.ended:
            return None
        try:
            return self.accept(next(self.open(), None))
        except Exception as cause:
            raise self.read_error(cause) from cause

    def open(self) -> Iterator[Any]:
        """Return the remaining batches; a batch of one plain row may come as that row, a dict.

        The caller passes each item to `accept`, or counts its rows, and passes exceptions to `read_error`.
        """
        if self._batches is None:
            self._batches = self._read()
        return self._batches

    @property
    def last_rows_at(self) -> int:
        """Return when rows came last, by the clock, or when the run began."""
        return self._stage.last_rows_at

    @last_rows_at.setter
    def last_rows_at(self, at: int) -> None:
        self._stage.last_rows_at = at

    def hold_clock(self) -> HeldClock:
        """Return the clock of the source, which can be held from now on."""
        held = HeldClock(self._stage.site.clock)
        self._stage.site = replace(self._stage.site, clock=held)
        return held

    @property
    def live_read(self) -> WaitingRead | None:
        """Return the read that may wait, once it has begun; None if all rows are there."""
        return self._batches if isinstance(self._batches, WaitingRead) else None

    def stamp_at(self, now: int) -> int:
        """Return the time of rows that are read elsewhere, now, if that is their time."""
        return self._stage.stamp_at(now)

    def follow_clock(self) -> None:
        """Move the watermark in a round without a batch, where it follows the clock."""
        self._stage.follow_clock(None if self.live_read is None else self.live_read.first_read_at)

    def _read(self) -> Iterator[Any]:
        reader = self._reader
        # A reader whose batches have no position need not take one.
        at = self.n_batches if self._is_indexed else self._at
        begin = () if at is None else (at,)
        if self.waits:
            if not isinstance(reader, protocol.WaitingReader):
                reader = self._watch()
                return WaitingRead(iter(reader.batches(*begin)), reader)
            stamp = self.stamp if self.follows_clock else None
            return reader.open(stamp, as_rows=self.gives_rows, position=at)
        if isinstance(reader, protocol.RowReader):
            return iter(reader.rows_or_batches(*begin))
        return iter(reader.batches(*begin))

    def _watch(self) -> Any:
        """Return the reader, as one whose wait can be interrupted if it can be."""
        watch = getattr(self._reader, "watch", None)
        self._watched = self._reader if watch is None else watch()
        if self._is_ending:
            self._watched.finish()
        return self._watched

    @property
    def can_finish(self) -> bool:
        """Return whether the source has an end wherever it is told to end, as a log that is followed has."""
        return self.waits and hasattr(self._reader, "finish")

    def request_end(self) -> None:
        """Let a source that can finish end soon, from any thread; what it still gives is to be read."""
        if self.can_finish:
            self._is_ending = True
            if self._watched is not None:  # else it is told when it is opened
                self._watched.finish()

    def finish(self) -> Iterator[Any]:
        """Yield what a source gives that is to end now; nothing if it cannot be told to."""
        if self.can_finish and not self.ended:
            self.open()
            self.request_end()
            while (batch := self.next()) is not None:
                yield batch

    def accept(self, item: Any) -> Any:
        """Count what was read last and return it as a batch; None is the end."""
        if item is None:
            self.ended = True
            return None
        if self._refusal is not None:
            raise self._refusal
        batch = SourceRowBatch((item,), self._reader.schema, self.n_rows) if type(item) is dict else item
        self.n_batches += 1
        self._at = batch.position
        # A batch that Spark will read knows only its number of rows.
        self.n_rows += (
            batch.num_rows + len(batch.bad) if isinstance(batch, protocol.SourceBatch) else batch.n_rows
        )
        return batch

    def rows(self, batch: Any) -> list[tuple[str, Batch]]:
        """Return the batch with times and order, by port: rows that failed are on the errors port."""
        try:
            rows = list(self._stage.on_read(batch))
        except PenstockError as failure:
            self.give_up(batch)
            raise failure.at(self.step.name, self.step.where) from failure.__cause__
        self._passed = batch.position
        return rows

    def end(self) -> None:
        """End the stream: no more rows will come."""
        self._over = True
        self._stage.end()

    def close(self) -> None:
        """Let the reader release what it holds."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def read_error(self, cause: Exception) -> PenstockError:
        """Return the error for an exception of the reader."""
        return _locate_error(self.step, f"could not read {self._reader.describe()}", cause)


def close_all(ends: Iterable[SourceReader | SinkWriter]) -> None:
    """Close readers and writers, whatever happens to one of them; then raise the first error."""
    failures = []
    for end in ends:
        try:
            end.close()
        except Exception as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


class SinkWriter:
    """Writes one sink. A round without rows is not committed.

    write_row  writes and commits a plain row that is all the rows of a round, without counting it; outputs
               in memory have a shorter way of their own (benchmark: `python -m bench runtime`)
    """

    def __init__(self, step: Step, accounts: Accounts) -> None:
        assert isinstance(step.op, Sink), "only sinks write"
        self.step, self._writer, self.accounts = step, step.op.writer, accounts
        self._output: protocol.Output | None = None
        self._schema = step.up.schema
        self._plain: protocol.PlainOutput | None = None
        self.write_row: Callable[[int, Mapping[str, object]], object] = lambda number, row: self._commit(
            number, [RowBatch((row,), self._schema, (0,))]
        )

    def open(self, *, resume: bool, n_written: int = 0, link: protocol.OutputLink | None = None) -> None:
        """Open the output.

        resume     whether a checkpoint says that this run continues an earlier one
        n_written  the number of rows that the earlier run had written
        link       ties the output to that checkpoint
        """
        # A folder knows its sink by the first name that it had.
        name = (*self.step.history.former, self.step.name)[0]
        writer, schema = self._writer, self._schema
        try:
            if link is not None and isinstance(writer, protocol.LinkedWriter):
                self._output = writer.open_linked(schema, name, link, resume=resume)
            else:
                self._output = writer.open(schema, name, resume=resume)
            if isinstance(self._output, protocol.PlainOutput):
                self._plain, self.write_row = self._output, self._output.commit_row
        except Exception as cause:
            raise self._error("could not open", cause) from cause
        # Why: the checkpoint goes on behind those rows, so without them they would stay lost.
        is_lost = isinstance(self._output, protocol.DurableOutput) and self._output.last_committed is None
        if resume and n_written and is_lost:
            self.close()
            raise CheckpointError(
                f"{n_written:,} rows have been written to {self._writer.describe()}, and they are not there",
                step=self.step.name,
                where=self.step.where,
                detail="the checkpoint goes on behind them, so they would stay lost",
                hint="bring the output back as this checkpoint left it; or start anew with an empty "
                "checkpoint folder and an empty output folder, which reads all input again",
            )

    def write(self, number: int, batches: Iterable[Batch | pa.RecordBatch]) -> int:
        """Write and commit the rows of a round; return their number."""
        n_rows = self._commit(number, batches)
        self.accounts.count_passed(n_rows, n_rows)
        return n_rows

    @property
    def is_durable(self) -> bool:
        """Return whether the output knows, also after a crash, which rounds it has."""
        return isinstance(self._output, protocol.DurableOutput)

    @property
    def last_committed(self) -> int:
        """Return the last round whose rows are known to be visible; -1 if none is."""
        output = self._output
        last = output.last_committed if isinstance(output, protocol.DurableOutput) else None
        return -1 if last is None else last

    def publish(self, number: int, files: Sequence[StagedFile], n_rows: int) -> None:
        """Make files visible that tasks have written for the rounds up to `number`, and count their rows."""
        assert isinstance(self._output, protocol.StagedOutput), (
            "only such outputs have files that others wrote"
        )
        try:
            if files:
                self._output.publish(number, files)
                pass_crash_point(COMMITTED)
        except Exception as cause:
            raise self._error("could not write", cause) from cause
        self.accounts.count_passed(n_rows, n_rows)

    def begin_shutdown(self) -> None:
        """Tell an output that waits for somebody else to stop waiting soon; any thread may call it."""
        if isinstance(self._output, protocol.WaitingOutput):
            self._output.begin_shutdown()

    def close(self) -> None:
        """Close the output, if it was opened."""
        output, self._output = self._output, None
        if output is None:
            return
        try:
            output.close()
        except Exception as cause:
            raise self._error("could not close", cause) from cause

    def _commit(self, number: int, batches: Iterable[Batch | pa.RecordBatch]) -> int:
        """Write the rows, commit them if there are any, and return their number."""
        assert self._output is not None, "sinks are opened first"
        n_rows = 0
        try:
            for batch in batches:
                n_rows += batch.num_rows
                if not batch.num_rows:
                    continue
                if not isinstance(batch, Batch):
                    self._output.write(number, batch)
                elif batch.plain is not None and self._plain is not None:
                    self._plain.write_plain(number, batch.plain, batch.schema)
                else:
                    self._output.write(number, batch.rows)
            if n_rows:
                self._output.commit(number)
                pass_crash_point(COMMITTED)
        except Exception as cause:
            raise self._error("could not write", cause) from cause
        return n_rows

    def _error(self, fact: str, cause: Exception) -> PenstockError:
        return _locate_error(self.step, f"{fact} {self._writer.describe()}", cause)


def _locate_error(step: Step, fact: str, cause: Exception) -> PenstockError:
    """Return the error for an exception of a reader or a writer, with the step and its line."""
    failure = cause
    if not isinstance(failure, PenstockError):
        failure = ConnectorError(fact, detail=describe_cause(cause))
    return failure.at(step.name, step.where)
