"""Sources and sinks: rows get their time and order at a source, and are committed by round at a sink.

A row whose time is null, out of range, or too far ahead of the clock is a row error of the source: it
goes no further and does not move the watermark. So is input that the reader could not read. Imports no stage
and no kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect.protocol import Output, SourceBatch
from penstock.engines.reference.node import OVER, ErrorContext, Frontier, Node, Outputs, RoundInput, Site
from penstock.engines.rows import TimedRow, batch_to_rows, rows_to_batch
from penstock.errors import (
    ConnectorError,
    FunctionError,
    PenstockError,
    RowFailure,
    TimeError,
    describe_cause,
)
from penstock.expr import Expr, lower_python
from penstock.expr.values import from_python, to_plain
from penstock.operators.ends import Sink, Source, SourceTime, WatermarkFromSource
from penstock.operators.function import own_copy
from penstock.operators.op import OUT, OnError
from penstock.timing.units import LIMIT, spell
from penstock.timing.windows import SourceWatermark

_READER = ErrorContext("the reader", error=ConnectorError, catches=RowFailure)
_TIME = ErrorContext("the time of a source", error=TimeError, catches=RowFailure)


class SourceNode(Node):
    """Takes batches as they were cut; `rank` orders rows of equal time from different sources, if any."""

    def __init__(self, site: Site, op: Source, rank: int | None) -> None:
        super().__init__(site)
        self._schema = op.reader.schema
        self._order = () if rank is None else (rank,)
        self._time = op.resolve()
        self._watermark = SourceWatermark(self._time.delay if self._time else None)
        rule: Any = self._time.rule if self._time else None
        self._row_rule = lower_python(rule, self._schema) if isinstance(rule, Expr) else None
        is_function = rule is not None and not isinstance(rule, Expr | WatermarkFromSource)
        self._batch_rule: Callable[[pa.RecordBatch], Any] | None = own_copy(rule) if is_function else None
        self._last_rows_at = site.clock.now()
        self._last_stamp: int | None = None
        self._over = False

    def round(self, inputs: RoundInput) -> Outputs:
        """Raise: a source has no input, see `read`."""
        raise AssertionError("sources are read, not fed")

    def read(self, batch: SourceBatch | None) -> Outputs:
        """Return the rows of one batch, with time and place; None is a round in which nothing came."""
        if batch is None:
            return {}
        now = self.site.clock.now()
        if batch.rows.num_rows or batch.bad:
            self._last_rows_at = now
        self.accounts.rows_in += len(batch.bad) + batch.rows.num_rows
        empty, schema = dict.fromkeys(self._schema.names), self._schema
        if "raw" not in empty:
            schema = schema.append(pa.field("raw", pa.string()))
        for bad in batch.bad:
            if bad.failure is not None and self.site.step.op.on_error == OnError.FAIL:
                raise bad.failure
            row = TimedRow({**empty, "raw": bad.raw}, None)
            self.failed_rows.add(row, schema, _READER, RowFailure(f"{bad.place}: {bad.error}"))
        good = [row for row in self._rows(batch, now) if self._has_valid_time(row, now)]
        self.accounts.passed += len(good)
        if self._time is not None:
            self._advance_watermark(batch, good, self._time)
        return {OUT: good}

    def follow_clock(self, first_read_at: int | None) -> None:
        """Move the watermark of ingest time to the clock: rows that are read from now on are not older.

        first_read_at  when the first row was read that is not handed on yet; None if there is none
        """
        if self._time is not None and self._time.follows_clock:
            now = self.site.clock.now()
            stamp = now if first_read_at is None else min(now, first_read_at)
            self._last_stamp = stamp if self._last_stamp is None else max(stamp, self._last_stamp)
            self._watermark.observe(self._last_stamp)

    def promise(self, watermark: int) -> None:
        """Move the watermark as if the source had said so, in microseconds."""
        self._watermark.promise(watermark)

    def end(self) -> None:
        """End the stream: no more batches will come."""
        self._over = True

    @property
    def frontier(self) -> Frontier:
        """Return how far the source has come, after the round."""
        if self._over:
            return OVER
        if self._time is None:
            return Frontier()
        silent = self.site.clock.now() - self._last_rows_at
        idle = self._time.idle is not None and silent >= self._time.idle
        return Frontier(self._watermark.now, idle=idle)

    def _rows(self, batch: SourceBatch, now: int) -> list[TimedRow]:
        seqs = [None] * batch.rows.num_rows if batch.seq is None else to_plain(batch.seq)
        rows = []
        read_at = [now] * len(seqs) if batch.read_at is None else batch.read_at.tolist()
        for values, seq, stamp in zip(batch_to_rows(batch.rows), seqs, read_at, strict=True):
            time = None
            if self._time is not None and self._time.column is None:
                time = stamp if self._last_stamp is None else max(stamp, self._last_stamp)
                self._last_stamp = time
            elif self._time is not None and self._time.column is not None:
                value = values[self._time.column]
                time = self._time.type.micros(value) if isinstance(value, int) else None
            order = (*self._order, seq) if isinstance(seq, int) else self._order
            rows.append(TimedRow(values, time, order))
        return rows

    def _has_valid_time(self, row: TimedRow, now: int) -> bool:
        """Return whether the row has a time it may have; reports it otherwise."""
        try:
            if self._time is not None:
                _check_time(row.time, self._time, now)
                if self._row_rule is not None:
                    self._row_rule(row.values)  # a row that the watermark fails on is an error
        except RowFailure as cause:
            self.failed_rows.add(row, self._schema, _TIME, cause)
            return False
        return True

    def _advance_watermark(self, batch: SourceBatch, good: list[TimedRow], time: SourceTime) -> None:
        """Move the watermark on by what the batch shows and by what the source promises."""
        self._watermark.observe(max((row.at() for row in good), default=None))
        rule = self._row_rule
        values: list[object] = [] if rule is None else [rule(row.values) for row in good]
        promises: list[int | None] = [time.type.micros(value) for value in values if isinstance(value, int)]
        if self._batch_rule is not None and batch.rows.num_rows:
            try:
                promises.append(_to_micros(self._batch_rule(batch.rows), time))
            except Exception as cause:
                raise FunctionError(
                    f"watermark function {name_of(time.rule)} failed on a batch",
                    where=find_definition(time.rule),
                    detail=describe_cause(cause),
                    hint=f"give a value of type {time.type}, or None for no news",
                ) from cause
        if batch.watermark is not None:
            promises.append(time.type.micros(batch.watermark))
        for promise in promises:
            if promise is not None:
                self._watermark.promise(promise)


def _check_time(time: int | None, spec: SourceTime, now: int) -> None:
    """Raise RowFailure unless the time is there, in range, and not too far ahead."""
    if time is None:
        raise RowFailure(f'time column "{spec.column}" is null')
    if abs(time) > LIMIT:
        raise RowFailure(f'time column "{spec.column}" is {time} us, further than 2^61 us from 1970')
    if spec.max_future is not None and time > now + spec.max_future:
        ahead, most = spell(time - now), spell(spec.max_future)
        raise RowFailure(f"the time is {ahead} ahead of the clock, and max_future is {most}")


def _to_micros(value: object, time: SourceTime) -> int | None:
    """Return a watermark as the user gave it: a number in the column's unit, a datetime, a date, or None."""
    if isinstance(value, pa.Scalar):
        (value,) = to_plain(pa.array([value.as_py()], time.type.type))
    if isinstance(value, datetime | date):
        value = from_python(value, time.type.type)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise RowFailure(f"gave {value!r:.80}, not a time")
    return time.type.micros(int(value))


class SinkNode(Node):
    """Writes what comes, in the order it comes. A round that brings nothing is not committed."""

    def __init__(self, site: Site, op: Sink) -> None:
        super().__init__(site)
        self._op = op
        self._output: Output | None = None
        self._next = 0
        self.written = 0

    def open(self) -> None:
        """Open the output; the interpreter opens all sinks before anything is read."""
        step = self.site.step
        try:
            self._output = self._op.writer.open(step.up.schema, step.name)
        except Exception as cause:
            raise self._write_error("could not open", cause) from cause

    def round(self, inputs: RoundInput) -> Outputs:
        """Write the rows under this round's number and make them visible."""
        number, self._next = self._next, self._next + 1
        self.written = len(inputs.only)
        if inputs.only:
            assert self._output is not None, "the interpreter opens sinks first"
            try:
                self._output.write(number, rows_to_batch(inputs.only, self.site.step.up.schema))
                self._output.commit(number)
            except Exception as cause:
                raise self._write_error("could not write", cause) from cause
        self.accounts.passed += self.written
        self.accounts.rows_out += self.written
        return {}

    def close(self) -> None:
        """Close the output, if it was opened."""
        output, self._output = self._output, None
        if output is None:
            return
        try:
            output.close()
        except Exception as cause:
            raise self._write_error("could not close", cause) from cause

    def _write_error(self, fact: str, cause: Exception) -> PenstockError:
        """Return a writer's own error as it is; anything else with the step that it happened in."""
        if isinstance(cause, PenstockError):
            return cause
        return ConnectorError(f"{fact} {self._op.writer.describe()}", detail=describe_cause(cause))
