"""Source: rows get their time and their place here, and the watermark is followed here.

Reading is the engine's affair; it hands over batches as their reader cut them. Nothing needs to be saved but
the watermark: a source that goes on from a checkpoint is promised the one it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import ConnectorError, TimeError
from penstock.expr.arrays import to_numpy
from penstock.expr.failure import RowFailure
from penstock.operators.op import ERRORS, OUT
from penstock.operators.source import Source, Yielded
from penstock.stages.batch import Batch, Ints
from penstock.stages.row_errors import Blame, RowErrors
from penstock.stages.site import Site
from penstock.stages.source_promises import BatchPromise, RowPromises
from penstock.stages.source_times import either, plain_times, times_of, why_failed
from penstock.timing.watermark import SourceWatermark

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
        self._time = op.resolved()
        self._watermark = SourceWatermark(self._time.delay if self._time else None)
        self._by_row = RowPromises(self._time, self._schema) if self._time else None
        self._by_batch = BatchPromise(self._time) if self._time else None
        self._looks = self._time is not None and not isinstance(self._time.rule, Yielded | None)
        self._told = op.outputs({}).get(ERRORS)
        self._errors = RowErrors(site, op.on_error, self._schema, self._blame)
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
        times = times_of(cut.rows, self._time, self._now)
        promised, wrong = (None, None) if self._by_row is None else self._by_row.of(cut.rows)
        batch = Batch(cut.rows, times.micros, self._order(cut))
        failed = either(times.failed, wrong)
        if failed is None:
            yield from self._all(cut, batch, times.greatest, promised)
            return
        letters = self._errors.take(batch, failed) if failed.any() else None
        if letters is not None:
            yield ERRORS, self._fitted(letters)
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
        times = plain_times((row,), self._time, now)
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
        times = plain_times(plain, self._time, self._now)
        if times is None:
            return None
        start: int = getattr(cut, "start", 0)
        order: tuple[Sequence[int], ...] = (range(start, start + len(plain)),)
        if self.rank is not None:
            order = ([self.rank] * len(plain), *order)
        self.site.accounts.passed += len(plain)
        self.site.accounts.rows_out += len(plain)
        self._follow(cut, max(times), None)
        return Batch.of_plain(plain, self._schema, times, order)

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

    def _blame(self, row: dict[str, object]) -> Blame:
        assert self._time is not None, "rows without time do not fail"
        assert self._by_row is not None, "a source with time looks for promises"
        failure: RowFailure | None = None
        if self._time.column is not None:
            failure = why_failed(row[self._time.column], self._time, self._now)
        failure = failure or self._by_row.failure(row)
        assert failure is not None, "the watermark fails on columns and not in plain Python"
        return Blame("the time of a source", None, failure, failure.reason, TimeError)

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
        blames = [Blame("the reader", None, each, each.reason, ConnectorError) for each in failures]
        batch, failed = Batch(rows, np.zeros(len(bad), np.int64)), np.ones(len(bad), np.bool_)
        letters = self._unreadable.take(batch, failed, blames)
        if letters is not None:
            yield ERRORS, self._fitted(letters)

    def _fitted(self, letters: Batch) -> Batch:
        """Failed rows in the columns of `.errors`, nulls where they have none."""
        assert self._told is not None, "letters are written only where somebody may read them"
        names, n = letters.rows.schema.names, letters.num_rows
        columns = [
            letters.rows.column(field.name) if field.name in names else pa.nulls(n, field.type)
            for field in self._told.schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._told.schema)
        return Batch(rows, letters.times, letters.order)
