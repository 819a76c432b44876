"""What a source promises about its own watermark, by an expression or by a function of the batch.

Both can only move the watermark forward. A row on which a watermark expression fails is a row error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.errors import ConnectorError, FunctionError, RowFailure, TimeError, describe_cause
from penstock.expr import Expr
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import numbers_of
from penstock.expr.types import from_python, to_plain
from penstock.expr.values import to_numpy
from penstock.frozen import dataclass
from penstock.operators.function import own_copy
from penstock.operators.op import ERRORS, OUT
from penstock.operators.source import Source, SourceTime, WatermarkFromSource
from penstock.stages.expressions import ExpressionEvaluator
from penstock.stages.functions.errors import ErrorContext, RowErrors
from penstock.stages.rows.batch import Batch, Ints, Mask, RowBatch
from penstock.stages.stage import Site
from penstock.timing.column import LIMIT
from penstock.timing.duration import spell
from penstock.timing.watermark import SourceWatermark


class WatermarkExpression:
    """The watermark expression of a source, computed for all rows."""

    def __init__(self, time: SourceTime, schema: pa.Schema) -> None:
        self._time = time
        self._computing = (
            ExpressionEvaluator([time.rule], schema, "the watermark") if isinstance(time.rule, Expr) else None
        )

    def of(self, rows: pa.RecordBatch) -> tuple[pa.Array | None, Mask | None]:
        """The promise of each row, and on which it fails; None where there is no expression."""
        if self._computing is None:
            return None, None
        (promised,), failed = self._computing.values(rows)
        return promised, failed

    def failure(self, row: dict[str, object]) -> RowFailure | None:
        """Why it fails on a row of plain values."""
        return None if self._computing is None else self._computing.failure(row)

    def greatest(self, promised: pa.Array) -> int | None:
        """The greatest promise of some rows, in microseconds."""
        (most,) = to_plain(pa.array([pc.max(promised)], promised.type))
        return self._time.type.micros(most) if isinstance(most, int) else None


class WatermarkFunction:
    """The user's watermark function of a batch."""

    def __init__(self, time: SourceTime) -> None:
        rule = time.rule
        self._time, self._rule = time, None if isinstance(rule, Expr | WatermarkFromSource) else rule
        self._call = None if self._rule is None else own_copy(self._rule)

    @property
    def is_silent(self) -> bool:
        """Whether there is no such function."""
        return self._call is None

    def of(self, rows: pa.RecordBatch) -> int | None:
        """What it promises, in microseconds; it is not called for an empty batch."""
        if self._call is None or rows.num_rows == 0:
            return None
        try:
            return _micros(self._call(rows), self._time)
        except Exception as cause:
            raise FunctionError(
                f"watermark function {name_of(self._rule)} failed on a batch",
                where=find_definition(self._rule),
                detail=describe_cause(cause),
                hint=f"give a value of type {self._time.type}, or None for no news",
            ) from cause


def _micros(given: object, time: SourceTime) -> int | None:
    """A watermark as the user gave it: a number in the column's unit, a datetime, a date, or None."""
    if isinstance(given, pa.Scalar):
        (given,) = to_plain(pa.array([given.as_py()], time.type.type))
    if isinstance(given, datetime | date):
        given = from_python(given, time.type.type)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise RowFailure(f"gave {given!r:.80}, not a time")
    return time.type.micros(int(given))


# The times of a source's rows, on columns: microseconds, and which rows may not have the time they have.
#
# A time that is null, further than 2^61 us from 1970, or too far ahead of the clock is a row error of the
# source; such rows go no further and do not move the watermark.


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The time of each row, 0 for a row that has none, and which rows have none they may have.

    failed    None when no row can have failed
    greatest  of all times, where that is known and no row can have failed
    """

    micros: Ints
    failed: Mask | None
    greatest: int | None = None


def read_times(rows: pa.RecordBatch, spec: SourceTime | None, now: int) -> RowTimes:
    """The times of a batch that came when the clock said `now`; a stream without time has zeros.

    Times out of range are held at the limit, so that they stay in int64.
    """
    if spec is None or spec.column is None:
        micros = np.full(rows.num_rows, 0 if spec is None else now, np.int64)
        return RowTimes(micros, None, 0 if spec is None else now)
    column = rows.column(spec.column)
    values = numbers_of(column).astype(np.int64, copy=False)
    good = _times_in_range(column, values, spec)
    if good is not None:
        return good
    if spec.type.unit == "ns":
        micros, far = values // 1_000, np.zeros(len(values), np.bool_)
    else:
        most = LIMIT // spec.type.step
        far = (values > most) | (values < -most)
        micros = np.clip(values, -most - 1, most + 1) * spec.type.step
    failed = far | column.is_null().to_numpy(zero_copy_only=False)
    if spec.max_future is not None:
        failed |= micros > now + spec.max_future
    return RowTimes(micros, np.asarray(failed, np.bool_))


def _times_in_range(column: pa.Array, values: Ints, spec: SourceTime) -> RowTimes | None:
    """The times where a look at the least and the greatest shows that none can fail; None otherwise."""
    if column.null_count or not len(values) or spec.type.unit == "ns" or spec.max_future is not None:
        return None
    least, greatest = int(values.min()), int(values.max())
    most, step = LIMIT // spec.type.step, spec.type.step
    if least < -most or greatest > most:
        return None
    return RowTimes(values if step == 1 else values * step, None, greatest * step)


def read_plain_times(
    rows: Sequence[Mapping[str, object]], spec: SourceTime | None, now: int
) -> list[int] | None:
    """The times of plain rows; None where one of them may not have the time it has."""
    if spec is None or spec.column is None:
        return [0 if spec is None else now] * len(rows)
    if spec.type.unit == "ns" or spec.max_future is not None:
        return None
    step, found = spec.type.step, []
    for row in rows:
        value = row[spec.column]
        if not isinstance(value, int) or abs(value) * step > LIMIT:
            return None
        found.append(value * step)
    return found


def time_failure(value: object, spec: SourceTime, now: int) -> RowFailure | None:
    """Why a row with this value in its time column fails; None if it does not."""
    if not isinstance(value, int):
        return RowFailure(f'time column "{spec.column}" is null')
    micros = spec.type.micros(value)
    if abs(micros) > LIMIT:
        return RowFailure(f'time column "{spec.column}" is {micros} us, further than 2^61 us from 1970')
    if spec.max_future is not None and micros > now + spec.max_future:
        ahead, most = spell(micros - now), spell(spec.max_future)
        return RowFailure(f"the time is {ahead} ahead of the clock, and max_future is {most}")
    return None


def merge_masks(one: Mask | None, other: Mask | None) -> Mask | None:
    """The rows that failed for one reason or the other; None if none can have."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


# Source: rows get their time and their place here, and the watermark is followed here.
#
# Reading is the engine's affair; it hands over batches as their reader cut them. Nothing needs to be saved
# but the watermark: a source that goes on from a checkpoint is promised the one it had.

_RAW = pa.field("raw", pa.string())


class Bad(Protocol):
    """Input that could not be read as a row (`connect.protocol.BadRow`)."""

    @property
    def raw(self) -> str:
        """The text as it was."""

    @property
    def error(self) -> str:
        """Why it is no row."""

    @property
    def place(self) -> str:
        """Where it stood."""


class Cut(Protocol):
    """A batch as a reader cut it (`connect.protocol.SourceBatch`)."""

    @property
    def rows(self) -> pa.RecordBatch:
        """The columns."""

    @property
    def num_rows(self) -> int:
        """How many rows."""

    @property
    def seq(self) -> pa.Int64Array | None:
        """The reader's own number of each row, if it has them."""

    @property
    def watermark(self) -> int | None:
        """What the reader promises, in the time column's unit."""

    @property
    def bad(self) -> Sequence[Bad]:
        """What could not be read."""


class SourceStage:
    """One source.

    rank  the number of the source in the program, by which rows of equal time are ordered before all else;
          None in a graph with one source, whose rows then have the reader's number alone
    """

    def __init__(self, op: Source, site: Site, *, rank: int | None = None) -> None:
        self.site, self.rank, self._schema = site, rank, op.reader.schema
        self._time = op.resolve()
        self._watermark = SourceWatermark(self._time.delay if self._time else None)
        self._by_row = WatermarkExpression(self._time, self._schema) if self._time else None
        self._by_batch = WatermarkFunction(self._time) if self._time else None
        self._looks = self._time is not None and not isinstance(self._time.rule, WatermarkFromSource | None)
        self._told = op.outputs({}).get(ERRORS)
        self._errors = RowErrors(site, op.on_error, self._schema, self._error_context)
        self._raw = self._schema if "raw" in self._schema.names else self._schema.append(_RAW)
        self._unreadable = RowErrors(site, op.on_error, self._raw)
        self._now = self._last_rows_at = site.clock.now()

    @property
    def watermark(self) -> float:
        """W: judges what comes after the batches read so far; minus infinity on a stream without time."""
        return self._watermark.now

    @property
    def idle(self) -> bool:
        """Whether the source has been silent for so long, by the clock, that others need not wait for it."""
        if self._time is None or self._time.idle is None:
            return False
        return self.site.clock.now() - self._last_rows_at >= self._time.idle

    def promise(self, watermark: int) -> None:
        """Move the watermark as if the source had said so, in microseconds."""
        self._watermark.promise(watermark)

    def end(self) -> None:
        """No more batches will come: the source no longer holds anything back."""
        self._watermark.end()

    def on_read(self, cut: Cut) -> Iterator[tuple[str, Batch]]:
        """The rows of a batch with time and place, and those that failed; moves the watermark on."""
        self._now = self.site.clock.now()
        if cut.num_rows or cut.bad:
            self._last_rows_at = self._now
        self.site.accounts.rows_in += cut.num_rows + len(cut.bad)
        few = self._few(cut)
        if few is not None:
            yield OUT, few
            return
        yield from self._unread(cut.bad)
        times = read_times(cut.rows, self._time, self._now)
        promised, wrong = (None, None) if self._by_row is None else self._by_row.of(cut.rows)
        batch = Batch(cut.rows, times.micros, self._order(cut))
        failed = merge_masks(times.failed, wrong)
        if failed is None:
            yield from self._all(cut, batch, times.greatest, promised)
            return
        dead_letters = self._errors.take(batch, failed) if failed.any() else None
        if dead_letters is not None:
            yield ERRORS, self._fitted(dead_letters)
        good = np.flatnonzero(~failed)
        self.site.accounts.passed += len(good)
        self.site.accounts.rows_out += len(good)
        greatest = int(times.micros[good].max()) if len(good) else None
        self._follow(cut, greatest, None if promised is None else promised.take(pa.array(good)))
        if len(good):
            yield OUT, batch.where(~failed)

    def _all(
        self, cut: Cut, batch: Batch, greatest: int | None, promised: pa.Array | None
    ) -> Iterator[tuple[str, Batch]]:
        """A batch of which no row failed."""
        self.site.accounts.passed += batch.num_rows
        self.site.accounts.rows_out += batch.num_rows
        if batch.num_rows and greatest is None:
            greatest = int(batch.times.max())
        self._follow(cut, greatest if batch.num_rows else None, promised)
        if batch.num_rows:
            yield OUT, batch

    def time_of(self, row: Mapping[str, object]) -> int | None:
        """The time of a plain row that is all of a batch, and moves the watermark on.

        None where the row needs a closer look: then nothing has happened. The row is counted by who asks.
        """
        if self._time is None:
            return 0
        if self._looks:
            return None
        now = self.site.clock.now()
        times = read_plain_times((row,), self._time, now)
        if times is None:
            return None
        self._now = self._last_rows_at = now
        self._watermark.saw(times[0])
        return times[0]

    def _few(self, cut: Cut) -> Batch | None:
        """A batch of plain rows that are all good, without columns; None where they need a closer look."""
        plain: Sequence[Mapping[str, object]] | None = getattr(cut, "plain", None)
        if not plain or self._looks:
            return None
        times = read_plain_times(plain, self._time, self._now)
        if times is None:
            return None
        start: int = getattr(cut, "start", 0)
        order: tuple[Sequence[int], ...] = (range(start, start + len(plain)),)
        if self.rank is not None:
            order = ([self.rank] * len(plain), *order)
        self.site.accounts.passed += len(plain)
        self.site.accounts.rows_out += len(plain)
        self._follow(cut, max(times), None)
        return RowBatch(plain, self._schema, times, order)

    def _order(self, cut: Cut) -> tuple[Ints, ...]:
        ranks = () if self.rank is None else (np.full(cut.rows.num_rows, self.rank, np.int64),)
        return ranks if cut.seq is None else (*ranks, to_numpy(cut.seq))

    def _follow(self, cut: Cut, greatest: int | None, promised: pa.Array | None) -> None:
        """Move the watermark on by what the batch shows and by what the source promises."""
        if self._time is None or self._by_row is None or self._by_batch is None:
            return
        self._watermark.saw(greatest)
        promises = [None if promised is None else self._by_row.greatest(promised)]
        promises.append(None if self._by_batch.is_silent else self._by_batch.of(cut.rows))
        if cut.watermark is not None:
            promises.append(self._time.type.micros(cut.watermark))
        for each in promises:
            if each is not None:
                self._watermark.promise(each)

    def _error_context(self, row: dict[str, object]) -> ErrorContext:
        assert self._time is not None, "rows without time do not fail"
        assert self._by_row is not None, "a source with time looks for promises"
        failure: RowFailure | None = None
        if self._time.column is not None:
            failure = time_failure(row[self._time.column], self._time, self._now)
        failure = failure or self._by_row.failure(row)
        assert failure is not None, "the watermark fails on columns and not in plain Python"
        return ErrorContext("the time of a source", None, failure, failure.reason, TimeError)

    def _unread(self, bad: Sequence[Bad]) -> Iterator[tuple[str, Batch]]:
        """What could not be read, as rows of nulls with the raw text."""
        if not bad:
            return
        texts = pa.array([each.raw for each in bad], pa.string())
        columns = [
            texts if field.name == _RAW.name else pa.nulls(len(bad), field.type) for field in self._raw
        ]
        rows = pa.RecordBatch.from_arrays(columns, names=self._raw.names)
        failures = [RowFailure(f"{each.place}: {each.error}") for each in bad]
        contexts = [ErrorContext("the reader", None, each, each.reason, ConnectorError) for each in failures]
        batch, failed = Batch(rows, np.zeros(len(bad), np.int64)), np.ones(len(bad), np.bool_)
        dead_letters = self._unreadable.take(batch, failed, contexts)
        if dead_letters is not None:
            yield ERRORS, self._fitted(dead_letters)

    def _fitted(self, dead_letters: Batch) -> Batch:
        """Failed rows in the columns of `.errors`, nulls where they have none."""
        assert self._told is not None, "dead_letters are written only where somebody may read them"
        names, n = dead_letters.rows.schema.names, dead_letters.num_rows
        columns = [
            dead_letters.rows.column(field.name) if field.name in names else pa.nulls(n, field.type)
            for field in self._told.schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._told.schema)
        return Batch(rows, dead_letters.times, dead_letters.order)
