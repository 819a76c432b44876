"""Readers of iterables and generator functions, also asynchronous ones: rows that come when they come.

Only a function, or an object that can be iterated again, can be read by a second run: a one-shot iterator is
used up. Rows taken from an iterator cannot be asked for again, so delivery is at most once. A generator
function yields rows, whole batches (a list of rows or a RecordBatch), and its own watermarks. A `Watermark`
ends the batch of the rows collected so far and goes with it, so it holds for what comes after.

A batch is handed on when it is full, or when its first row has waited for `wait`: where the cuts are then
depends on the source's speed. What is in memory already never waits.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect import batching
from penstock.connect.batching import RowRange, SourceRowBatch, check_size, is_batch, to_source_batch
from penstock.connect.conversion import cast_batch, convert_rows
from penstock.connect.protocol import BadRow, Delivery, SourceBatch
from penstock.connect.read_claims import (
    DEFAULT_WAIT,
    AsyncItems,
    Position,
    WaitingRead,
    Watermark,
    check_wait,
)
from penstock.errors import ConnectorError, PenstockError, SchemaError
from penstock.expr.types import parse_schema
from penstock.expr.values import to_numpy
from penstock.timing.units import Duration

DEFAULT_BATCH = 1_000
"""Rows per batch of a lazy source: results wait for the end of a batch, so not too many."""

Items = Iterable[object] | AsyncIterable[object]
RowIterable = Items | Callable[[], Items]
Stamp = Callable[[], int]
"""Returns the time at which a row was read, in microseconds."""
_END = object()
_SIGNS = (Watermark, Position)


class IterableReader:
    """Rows pulled from an iterable; rows that do not fit the schema are bad rows, kept as their repr.

    waits       whether rows may come at any time; not if they are in memory
    wait_us     how long the first row of a batch waits for others; None for ever
    gives_rows  whether a batch is one row, which comes as a dict of plain values
    """

    delivery = Delivery.AT_MOST_ONCE
    keeps_raw = True
    kind = "iterable"
    yields_batches = False
    takes_position = False

    def __init__(
        self, source: RowIterable, schema: pa.Schema, batch: int, bounded: bool, wait_us: int | None
    ) -> None:
        self._source, self.schema, self._batch, self.bounded = source, schema, batch, bounded
        self._used_up, self._converter = False, batching.RowConverter(schema)
        self.wait_us, self.waits = wait_us, not isinstance(source, Sequence)
        self.gives_rows = batch == 1

    def batches(self, position: Sequence[Any] | None = None) -> Iterator[SourceBatch]:
        """Yield rows from the beginning, as they come; no batch is handed on before it is full."""
        if self.takes_position:
            yield from self.open(None, position=position)
            return
        start = 0
        for item in self.rows_or_batches():
            batch = SourceRowBatch((item,), self.schema, start) if type(item) is dict else item
            start += batch.num_rows + len(batch.bad)
            yield batch

    def rows_or_batches(self, position: Sequence[Any] | None = None) -> Iterator[Any]:
        """Yield the same batches; where a batch is one row, and a good one, a dict of plain values."""
        if self.takes_position:
            yield from self.batches(position)
            return
        yield from self.cut(self.open_items())

    def cut(self, items: Iterator[object]) -> Iterator[Any]:
        """Yield what `rows_or_batches` does, of these items."""
        start, size = 0, self._batch
        with self._close_after(items):
            while rows := self._take(items, size, start):
                plain = self._converter.convert(rows[0]) if self.gives_rows else None
                yield plain or self.build_batch(rows, start)
                start += len(rows)

    def open(
        self, stamp: Stamp | None, *, as_rows: bool = False, position: Sequence[Any] | None = None
    ) -> WaitingRead:
        """Begin to read; with `stamp`, batches say when each of their rows was read.

        as_rows   whether batches of one good row may come as that row, a dict, without a stamp
        position  the position that the source gave last, the rows behind it, and all rows
        """
        at, n_behind, n_rows = position or (None, 0, 0)
        items = self.open_items(at)
        if as_rows and self.gives_rows:
            return WaitingRead(self.cut(items), items)
        read = RowRead(self, items, stamp, at, n_rows - n_behind)
        if n_behind:
            read.skip(n_rows)
        return read

    def describe(self) -> str:
        """Return such as `iterable read_sensor`."""
        return f"{self.kind} {self._source_name()}"

    def _take(self, items: Iterator[object], size: int, start: int) -> list[object]:
        """Return the next items; an error names the source, and the rows before it."""
        rows: list[object] = []
        try:
            rows.extend(islice(items, size))  # what came before an error stays in the list
        except PenstockError:
            raise
        except Exception as problem:
            raise self.source_error(problem, start + len(rows)) from problem
        return rows

    @contextmanager
    def _close_after(self, items: Iterator[object]) -> Iterator[None]:
        """Close the items at the end."""
        try:
            yield
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def open_items(self, position: Any = None) -> Iterator[object]:
        """Return the items of a new run, from a position on if the source takes one."""
        source = self._source
        if isinstance(source, Iterator) and not callable(source):
            if self._used_up:
                raise ConnectorError(
                    f"{self._source_name()} was used up by an earlier run",
                    detail="an iterator gives its rows once",
                    hint="give a function that makes a new one: ps.read.iterable(lambda: …, schema=…)",
                )
            self._used_up = True
        try:
            items: Any = source
            if callable(source):
                items = source(**{"position": position} if self.takes_position else {})
            if isinstance(items, AsyncIterable):
                return AsyncItems(items, self._source_name())
            return iter(items)
        except Exception as problem:
            raise self.source_error(problem, 0) from problem

    def source_error(self, problem: Exception, n_rows: int) -> ConnectorError:
        """Return the error for an exception of the user's code, which names it and the rows before it."""
        return ConnectorError(
            f"{self.describe()} raised {type(problem).__name__} after {n_rows} rows: {problem}",
            where=find_definition(self._source) if callable(self._source) else None,
            hint="mend the function, or catch the exception in it",
        )

    def build_batch(self, rows: list[object], start: int) -> SourceBatch:
        """Return a batch of plain rows where there are few and all are good, else of columns."""
        plain = self._converter.batch(rows, start) if len(rows) <= batching.MAX_ROWS else None
        if plain is not None:
            return plain
        converted = convert_rows(rows, self.schema)
        bad = [
            BadRow(f"{rows[at]!r:.1000}", reason, f"row {start + at}") for at, reason in converted.failures
        ]
        return to_source_batch([RowRange.of_converted(converted, bad, start)], self.schema)

    def _source_name(self) -> str:
        return name_of(self._source) if callable(self._source) else type(self._source).__name__


class GeneratorReader(IterableReader):
    """The batches that a generator function yields."""

    kind = "generator"
    yields_batches = True

    def __init__(
        self,
        source: Callable[..., Items],
        schema: pa.Schema,
        batch: int,
        bounded: bool,
        wait_us: int | None,
    ) -> None:
        super().__init__(source, schema, batch, bounded, wait_us)
        self.takes_position = "position" in inspect.signature(source).parameters
        if self.takes_position:
            # Why: what can be asked for again is given again in the same batches, so no clock cuts them.
            self.gives_rows, self.delivery = False, Delivery.EXACTLY_ONCE

    def cut(self, items: Iterator[object]) -> Iterator[Any]:
        """Cut what the function yields; a batch of one good row is a dict of plain values."""
        if not self.gives_rows:
            yield from RowRead(self, items, None)
            return
        start = 0
        item: Any
        with self._close_after(items):
            while next_items := self._take(items, 1, start):
                (item,) = next_items
                is_list = type(item) is list and len(item) == 1
                plain = self._converter.convert(item[0] if is_list else item)
                if plain:
                    start += 1
                    yield plain
                    continue
                batch = self.build_item(item, start)
                start += batch.num_rows + len(batch.bad)
                yield batch

    def build_item(self, item: Any, start: int) -> SourceBatch:
        """Return the batch of one item: a row, a list of rows, a RecordBatch, or a watermark without rows."""
        if isinstance(item, Watermark):
            return self.build_batch([], start).with_watermark(item.value)
        if not is_batch(item):
            return self.build_batch([item], start)
        if not isinstance(item, pa.RecordBatch):
            return self.build_batch(list(item), start)
        try:
            good = RowRange.of_good(cast_batch(item, self.schema), start)
        except SchemaError as problem:
            raise ConnectorError(
                f"{self.describe()} yielded a RecordBatch that does not fit: {problem.fact}",
                detail=problem.detail,
                hint=f"yield the columns {', '.join(self.schema.names)}",
            ) from problem
        return to_source_batch([good], self.schema)


class RowRead(WaitingRead):
    """Reads items and cuts their rows into batches; another thread may take those that have come so far.

    stamp  where it is given, batches say when each row was read
    """

    def __init__(
        self,
        reader: IterableReader,
        items: Iterator[object],
        stamp: Stamp | None,
        position: Any = None,
        start: int = 0,
    ) -> None:
        super().__init__(items)
        self._reader, self._stamp, self._size = reader, stamp, reader._batch
        self._rows: list[object] = []
        self._stamps: list[int] = []
        self._ready = deque[SourceBatch]()
        self._start = self._position_at = start  # the latter: all rows up to the position that was given last
        self._position = position
        self._ended = False

    def __next__(self) -> SourceBatch:
        while not self._ready:
            if self._ended:
                raise StopIteration
            try:
                self._read_batch()
            except BaseException as problem:
                if not self.reading:
                    raise
                self._end_wait()
                self._ended = True
                if isinstance(problem, PenstockError) or not isinstance(problem, Exception):
                    raise
                raise self._reader.source_error(problem, self._start + len(self._rows)) from problem
        return self._ready.popleft()

    def _end_wait(self) -> None:
        """Say that the source is not waited for; wait for who acts in place of this thread."""
        self.reading = False
        if self.claimed:
            self.wait_turn()

    def _read_batch(self) -> None:
        """Read items until there is a batch, or no more of them."""
        # Why a loop that looks at little: it is most of what a row of an iterable costs.
        yields_batches, stamp, size = self._reader.yields_batches, self._stamp, self._size
        self.reading = True
        for item in self.items:
            self.reading = False
            if self.claimed:
                self.wait_turn()
            if yields_batches and type(item) is not dict and (is_batch(item) or isinstance(item, _SIGNS)):
                self._add_batch(item)
                if self._ready:
                    return
            else:
                # Invariant: a row is stamped when nobody acts in place of this thread, and is there before
                # anybody can again, so that the watermark does not pass it.
                if stamp is not None:
                    self._stamps.append(stamp())
                rows = self._rows  # never those of before: another thread may have taken them
                rows.append(item)
                if len(rows) >= size:
                    self._cut()
                    return
            self.reading = True
        self._end_wait()
        self._ended = True
        if self._rows:
            self._cut()

    def _add_batch(self, item: Any) -> None:
        """Add a batch of its own, or the watermark that ends the batch so far."""
        reader = self._reader
        assert isinstance(reader, GeneratorReader), "only generators yield batches"
        if isinstance(item, Position):
            if not reader.takes_position:
                raise ConnectorError(
                    f"{reader.describe()} yields a Position and takes none",
                    where=find_definition(reader._source),
                    hint="give the function a parameter: def read(position=None)",
                )
            self._position, self._position_at = item.at, self._start + len(self._rows)
            return
        if isinstance(item, Watermark) and self._rows:
            self._cut()
            self._ready.append(self._ready.pop().with_watermark(item.value))
            return
        if self._rows:
            self._cut()
        batch = reader.build_item(item, self._start)
        n_rows = batch.num_rows + len(batch.bad)
        if self._stamp is not None:
            batch = batch.with_read_at(np.full(batch.num_rows, self._stamp(), np.int64))
        self._start += n_rows
        self._ready.append(self._with_position(batch))

    def _cut(self) -> None:
        """End the batch of the rows so far."""
        rows, stamps = self._rows, self._stamps
        self._rows, self._stamps = [], []
        batch = self._reader.build_batch(rows, self._start)
        if self._stamp is not None:
            read_at = np.array(stamps, np.int64)
            if batch.bad:
                assert batch.seq is not None, "rows of iterables are numbered"
                read_at = read_at[to_numpy(batch.seq) - self._start]
            batch = batch.with_read_at(read_at)
        self._start += len(rows)
        self._ready.append(self._with_position(batch))

    def _with_position(self, batch: SourceBatch) -> SourceBatch:
        """Return a batch with the position behind it, where the source can go on at one."""
        if not self._reader.takes_position:
            return batch
        return batch.with_position([self._position, self._start - self._position_at, self._start])

    @property
    def first_number(self) -> int | None:
        """Return the number of the first row that has come and waits for others; None if there is none."""
        return self._start if self._rows else None

    @property
    def first_read_at(self) -> int | None:
        """Return when the first row was read that was not handed on; None without one, or without stamps."""
        stamps = self._ready[0].read_at if self._ready else self._stamps
        return int(stamps[0]) if stamps is not None and len(stamps) else None

    def take(self) -> SourceBatch | None:
        """Return the rows that have come, as a batch; None if there are none. Only with a claim."""
        if not self._ready and self._rows:
            self._cut()
        return self._ready.popleft() if self._ready else None

    def skip(self, n_rows: int) -> int:
        """Drop the first rows, which an earlier run has read, however they were cut then."""
        item: Any
        while self._start < n_rows and (item := next(self.items, _END)) is not _END:
            if self._reader.yields_batches and is_batch(item):
                self._start += item.num_rows if isinstance(item, pa.RecordBatch) else len(item)
            elif isinstance(item, Position):
                self._position, self._position_at = item.at, self._start
            else:
                self._start += not isinstance(item, Watermark)
        return self._start


def iterable(
    source: RowIterable,
    *,
    schema: object,
    batch: int | None = None,
    wait: Duration | None = DEFAULT_WAIT,
    bounded: bool = True,
) -> IterableReader:
    """Read rows lazily, `batch` at a time (default 1,000), or those that came within `wait` of the first.

    A function that returns a new iterable can be read by every run, a one-shot iterator only by the first.
    An asynchronous iterable is read by an event loop of its own. `wait=None` waits until a batch is full.
    `bounded=False` says that it never ends.
    """
    if not callable(source) and not isinstance(source, Iterable | AsyncIterable):
        raise ConnectorError(
            f"{type(source).__name__} {source!r:.80} cannot be iterated",
            hint="give an iterable of rows, or a function that returns one",
        )
    size = check_size("batch", batch) or DEFAULT_BATCH
    wait_us = None if wait is None else check_wait(wait)
    return IterableReader(source, parse_schema(schema), size, bounded, wait_us)


def generator(
    function: Callable[..., Items],
    *,
    schema: object,
    batch: int | None = None,
    wait: Duration | None = DEFAULT_WAIT,
    bounded: bool = True,
) -> GeneratorReader:
    """Read what a generator function yields: rows, lists of rows, RecordBatches and `Watermark(t)`.

    Single rows are cut every `batch` rows (default 1,000), or `wait` after the first of them (None: never);
    a list or a RecordBatch is a batch of its own. An `async def` generator has an event loop of its own.

    A function with a parameter `position` may also yield `Position(at)`. A run that resumes calls it with
    the last one of what was saved, and it yields from there on what it would have yielded, in the same lists;
    then every row arrives exactly once. With a checkpoint single rows wait until their batch is full.
    """
    if not callable(function):
        raise ConnectorError(
            f"{type(function).__name__} {function!r:.80} is not a generator function",
            hint="give the function itself, without calling it: ps.read.generator(sensor, schema=…)",
        )
    if inspect.iscoroutinefunction(function):
        raise ConnectorError(
            f"{name_of(function)} is a coroutine function: it returns, and yields nothing",
            hint="yield rows in it, which makes it an asynchronous generator",
        )
    size = check_size("batch", batch) or DEFAULT_BATCH
    wait_us = None if wait is None else check_wait(wait)
    return GeneratorReader(function, parse_schema(schema), size, bounded, wait_us)
