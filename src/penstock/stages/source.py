"""Source: rows get their time and their place here, and the watermark is followed here.

Reading is the engine's affair; it hands over batches as their reader cut them. Nothing needs to be saved but
the watermark: a source that goes on from a checkpoint is promised the one it had.

A time that is null, further than 2^61 us from 1970, or too far ahead of the clock is a row error of the
source, and so is a row on which a watermark expression fails; such rows go no further and do not move the
watermark. Promises, by an expression or by a function of the batch, can only move it forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect.batching import NumberedBatch, RowLists, SourceRowBatch, values_of
from penstock.connect.protocol import BadRow, SourceBatch
from penstock.errors import ConnectorError, FunctionError, RowFailure, TimeError, describe_cause
from penstock.expr import Expr
from penstock.expr import compute as pc
from penstock.expr.values import from_python, numbers_of, to_numpy, to_plain
from penstock.frozen import Frozen
from penstock.operators.ends import Source, SourceTime, WatermarkFromSource
from penstock.operators.function import own_copy
from penstock.operators.op import ERRORS, OUT, OnError
from penstock.stages.expressions import ExpressionEvaluator
from penstock.stages.rows.batch import Batch, Ints, Mask, RowBatch
from penstock.stages.stage import ErrorContext, Outputs, PlainRow, RowErrors, StageContext
from penstock.timing.units import LIMIT, spell
from penstock.timing.windows import SourceWatermark

_RAW = pa.field("raw", pa.string())


class SourceStage:
    """One source.

    rank  the number of the source in the program, by which rows of equal time are ordered before all else;
          None in a graph with one source, whose rows then have the reader's number alone

    last_rows_at  when rows came last, by the clock, or when the run began
    """

    def __init__(self, op: Source, site: StageContext, *, rank: int | None = None) -> None:
        self.site, self.rank, self._schema = site, rank, op.reader.schema
        self._time = op.resolve()
        self._watermark = SourceWatermark(self._time.delay if self._time else None)
        rule = None if self._time is None else self._time.rule
        self._has_rule = not isinstance(rule, WatermarkFromSource | None)
        self._expression, self._function = None, None
        if isinstance(rule, Expr):
            self._expression = ExpressionEvaluator([rule], self._schema)
        elif not isinstance(rule, WatermarkFromSource | None):
            self._function, self._call = rule, own_copy(rule)
        self._fails = op.on_error == OnError.FAIL
        self._error_stream = op.outputs({}).get(ERRORS)
        self._errors = RowErrors(site, op.on_error, self._schema, self._error_context)
        self._raw_schema = self._schema if "raw" in self._schema.names else self._schema.append(_RAW)
        self._read_errors = RowErrors(site, op.on_error, self._raw_schema)
        self._now = self.last_rows_at = site.clock.now()
        # Why: rows of ingest time come in the order of their stamps, also when the clock is set back.
        self._last_stamp = -LIMIT
        self._is_stamped = self._time is not None and self._time.column is None

    @property
    def watermark(self) -> float:
        """Return the watermark after the batches read so far; minus infinity on a stream without time."""
        return self._watermark.now

    @property
    def idle(self) -> bool:
        """Return whether the source has been silent for so long that others need not wait for it."""
        if self._time is None or self._time.idle is None:
            return False
        return self.site.clock.now() - self.last_rows_at >= self._time.idle

    def promise(self, watermark: int) -> None:
        """Move the watermark as if the source had promised it, in microseconds."""
        self._watermark.promise(watermark)

    def resume(self, watermark: int) -> None:
        """Continue where an earlier run has come to; a clock that was set back since then changes nothing."""
        self._watermark.promise(watermark)
        if self._is_stamped and self._time is not None:
            self._last_stamp = max(self._last_stamp, watermark + (self._time.delay or 0))

    def stamp_at(self, now: int) -> int:
        """Return the time of rows that are read now: of ingest time, none before that of earlier rows."""
        return max(now, self._last_stamp) if self._is_stamped else now

    def follow_clock(self, first_read_at: int | None = None) -> None:
        """Move the watermark of ingest time in a round without rows: those to come are not older than now.

        first_read_at  when the first row was read that has not been handed on; None if there is none
        """
        if self._time is None or not self._time.follows_clock:
            return
        now = self.site.clock.now()
        self._last_stamp = max(self._last_stamp, now if first_read_at is None else min(now, first_read_at))
        self._watermark.observe(self._last_stamp)

    def take_over(self, n_rows: int, watermark: int | None) -> None:
        """Follow a batch that others have read: how many rows it had, and how far they move the watermark."""
        if n_rows:
            self.last_rows_at = self.site.clock.now()
        if watermark is not None:
            self.resume(watermark)

    def end(self) -> None:
        """End the stream: the source no longer holds anything back."""
        self._watermark.end()

    def on_read(self, read: SourceBatch) -> Outputs:
        """Emit the rows of a batch with time and place, and those that failed; moves the watermark."""
        self._now = self.site.clock.now()
        if read.num_rows or read.bad:
            self.last_rows_at = self._now
        self.site.accounts.rows_in += read.num_rows + len(read.bad)
        plain = self._plain_batch(read) if isinstance(read, SourceRowBatch) else None
        if plain is not None:
            yield OUT, plain
            return
        if read.bad:
            yield from self._unreadable_rows(read.bad)
        times = self._stamp(read) if self._is_stamped else read_times(read.rows, self._time, self._now)
        promised, wrong = None, None
        if self._expression is not None:
            (promised,), wrong = self._expression.values(read.rows)
        order: Any = () if self.rank is None else (np.full(read.rows.num_rows, self.rank, np.int64),)
        if isinstance(read, NumberedBatch):
            order = (*order, read.numbers)
        elif read.seq is not None:
            order = (*order, to_numpy(read.seq))
        batch = Batch(read.rows, times.micros, order)
        failed = times.failed if wrong is None else wrong if times.failed is None else times.failed | wrong
        greatest = times.greatest
        if failed is not None:
            yield from self._emit_errors(self._errors.handle(batch, failed) if failed.any() else None)
            promised = None if promised is None else promised.take(pa.array(np.flatnonzero(~failed)))
            batch, greatest = batch.where(~failed), None
        n_rows = batch.num_rows
        self.site.accounts.passed += n_rows
        self.site.accounts.rows_out += n_rows
        if n_rows and greatest is None:
            greatest = int(batch.times.max())
        self._move_watermark(read, greatest if n_rows else None, promised)
        if n_rows:
            yield OUT, batch

    def time_of(self, row: PlainRow) -> int | None:
        """Return the time of a plain row that is all of a batch, and moves the watermark.

        None where the row needs a closer look: then nothing has happened. The caller counts the row.
        """
        if self._time is None:
            return 0
        if self._has_rule:
            return None
        now = self.site.clock.now()
        if self._is_stamped:
            times: list[int] | None = [max(now, self._last_stamp)]
            self._last_stamp = max(now, self._last_stamp)
        else:
            times = read_plain_times((row,), self._time, now)
        if times is None:
            return None
        self._now = self.last_rows_at = now
        self._watermark.observe(times[0])
        return times[0]

    def _plain_batch(self, read: SourceRowBatch) -> Batch | None:
        """Return a batch of plain rows that are all good, without columns; None for a closer look."""
        plain = read.plain
        if not plain or self._has_rule:
            return None
        n_rows = len(plain)
        is_many = isinstance(plain, RowLists)  # those who ask for times and places of many want arrays
        times: Ints | list[int] | None
        if self._is_stamped:
            times = self._stamp(read).micros
        elif self._time is None:
            times = np.zeros(n_rows, np.int64) if is_many else [0] * n_rows
        else:
            times = read_plain_times(plain, self._time, self._now)
        if times is None:
            return None
        numbers = range(read.start, read.start + n_rows)
        order: Any = (np.arange(read.start, read.start + n_rows),) if is_many else (numbers,)
        if self.rank is not None:
            order = (np.full(n_rows, self.rank) if is_many else [self.rank] * n_rows, *order)
        greatest = int(times[0] if self._time is None else max(times))
        self.site.accounts.passed += len(plain)
        self.site.accounts.rows_out += len(plain)
        self._move_watermark(read, greatest, None)
        return RowBatch(plain, self._schema, times, order)

    def _stamp(self, read: SourceBatch) -> RowTimes:
        """Return when the rows of a batch were read, never before others that were read earlier."""
        n_rows, last = read.num_rows, self._last_stamp
        if read.read_at is None:
            micros = np.full(n_rows, max(self._now, last), np.int64)
        else:
            micros = np.maximum.accumulate(np.maximum(read.read_at, last))
        if n_rows:
            self._last_stamp = int(micros[-1])
        return RowTimes(micros, None, self._last_stamp)

    def _move_watermark(self, read: SourceBatch, greatest: int | None, promised: pa.Array | None) -> None:
        """Move the watermark by what the batch shows and by what the source promises."""
        if self._time is None:
            return
        micros = self._time.type.micros
        self._watermark.observe(greatest)
        if promised is not None:
            (most,) = to_plain(pa.array([pc.max(promised)], promised.type))
            if isinstance(most, int):
                self._watermark.promise(micros(most))
        if self._function is not None and read.num_rows:
            try:
                returned = _to_micros(self._call(read.rows), self._time)
            except Exception as cause:
                raise FunctionError(
                    f"watermark function {name_of(self._function)} failed on a batch",
                    where=find_definition(self._function),
                    detail=describe_cause(cause),
                    hint=f"give a value of type {self._time.type}, or None for no news",
                ) from cause
            if returned is not None:
                self._watermark.promise(returned)
        if read.watermark is not None:
            self._watermark.promise(micros(read.watermark))

    def _error_context(self, row: dict[str, object]) -> ErrorContext:
        assert self._time is not None, "rows without time do not fail"
        failure: RowFailure | None = None
        if self._time.column is not None:
            failure = time_failure(row[self._time.column], self._time, self._now)
        if failure is None and self._expression is not None:
            failure = self._expression.failure(row)
        assert failure is not None, "the watermark fails on columns and not in plain Python"
        return ErrorContext("the time of a source", None, failure, failure.reason, TimeError)

    def _unreadable_rows(self, bad: Sequence[BadRow]) -> Outputs:
        """Emit what could not be read, as rows of nulls with the raw text."""
        first = bad[0].failure
        if first is not None and self._fails:
            raise first
        texts = pa.array([row.raw for row in bad], pa.string())
        columns = [
            texts if field.name == _RAW.name else pa.nulls(len(bad), field.type) for field in self._raw_schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, names=self._raw_schema.names)
        failures = [RowFailure(f"{row.place}: {row.error}") for row in bad]
        contexts = [
            ErrorContext("the reader", None, cause, cause.reason, ConnectorError) for cause in failures
        ]
        batch, failed = Batch(rows, np.zeros(len(bad), np.int64)), np.ones(len(bad), np.bool_)
        yield from self._emit_errors(self._read_errors.handle(batch, failed, contexts))

    def _emit_errors(self, dead_letters: Batch | None) -> Outputs:
        """Emit failed rows in the columns of `.errors`, nulls where they have none."""
        if dead_letters is None:
            return
        assert self._error_stream is not None, "dead letters are written only where somebody may read them"
        schema, n_rows = self._error_stream.schema, dead_letters.num_rows
        names = dead_letters.rows.schema.names
        columns = [
            dead_letters.rows.column(field.name) if field.name in names else pa.nulls(n_rows, field.type)
            for field in schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        yield ERRORS, Batch(rows, dead_letters.times, dead_letters.order)


class RowTimes(Frozen):
    """The time of each row, 0 for a row that has none, and which rows have no valid time.

    failed    None when no row can have failed
    greatest  of all times, where that is known and no row can have failed
    """

    micros: Ints
    failed: Mask | None
    greatest: int | None = None


def read_times(rows: pa.RecordBatch, spec: SourceTime | None, now: int) -> RowTimes:
    """Return the times of a batch that came when the clock said `now`; zeros on a stream without time.

    Times out of range are held at the limit, so that they stay in int64.
    """
    if spec is None or spec.column is None:
        time = 0 if spec is None else now
        return RowTimes(np.full(rows.num_rows, time, np.int64), None, time)
    column = rows.column(spec.column)
    values = numbers_of(column).astype(np.int64, copy=False)
    if spec.type.unit == "ns":
        micros, far = values // 1_000, np.zeros(len(values), np.bool_)
    else:
        step = spec.type.step
        most = LIMIT // step
        if len(values) and not column.null_count and spec.max_future is None:
            # Why: the least and the greatest show that no row can fail, without a mask.
            least, greatest = int(values.min()), int(values.max())
            if least >= -most and greatest <= most:
                return RowTimes(values if step == 1 else values * step, None, greatest * step)
        far = (values > most) | (values < -most)
        micros = np.clip(values, -most - 1, most + 1) * step
    failed = far | column.is_null().to_numpy(zero_copy_only=False)
    if spec.max_future is not None:
        failed |= micros > now + spec.max_future
    return RowTimes(micros, np.asarray(failed, np.bool_))


def read_plain_times(rows: Sequence[PlainRow], spec: SourceTime, now: int) -> list[int] | None:
    """Return the times of plain rows; None where one of them may not be valid."""
    if spec.column is None:
        return [now] * len(rows)
    if spec.type.unit == "ns" or spec.max_future is not None:
        return None
    step, times = spec.type.step, []
    for value in values_of(rows, spec.column):
        if not isinstance(value, int) or abs(value) * step > LIMIT:
            return None
        times.append(value * step)
    return times


def time_failure(value: object, spec: SourceTime, now: int) -> RowFailure | None:
    """Return why a row with this value in its time column fails; None if it does not."""
    if not isinstance(value, int):
        return RowFailure(f'time column "{spec.column}" is null')
    micros = spec.type.micros(value)
    if abs(micros) > LIMIT:
        return RowFailure(f'time column "{spec.column}" is {micros} us, further than 2^61 us from 1970')
    if spec.max_future is not None and micros > now + spec.max_future:
        ahead, most = spell(micros - now), spell(spec.max_future)
        return RowFailure(f"the time is {ahead} ahead of the clock, and max_future is {most}")
    return None


def _to_micros(returned: object, time: SourceTime) -> int | None:
    """Return a watermark as microseconds: a number in the column's unit, a datetime, a date, or None."""
    if isinstance(returned, pa.Scalar):
        (returned,) = to_plain(pa.array([returned.as_py()], time.type.type))
    if isinstance(returned, datetime | date):
        returned = from_python(returned, time.type.type)
    if returned is None:
        return None
    if isinstance(returned, bool) or not isinstance(returned, int | np.integer):
        raise RowFailure(f"gave {returned!r:.80}, not a time")
    return time.type.micros(int(returned))
