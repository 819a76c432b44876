"""Readers and writers: the seam between Penstock and the outside world.

A reader knows its schema before it reads, cuts its rows into batches (the cut is part of the program's
meaning: a row is late or not by the watermark of the batches before its own), and says what can be relied on
after a crash. A writer opens an output for one sink; the output takes numbered batches and makes each visible
at most once. Neither knows an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import ConnectorError
from penstock.frozen import Frozen, dataclass

if TYPE_CHECKING:
    from penstock.connect.read_claims import WaitingRead
    from penstock.connect.readers.file_journal import Journal
    from penstock.connect.writers.staged_files import FolderStage, StagedFile


STOP_REQUESTED: ContextVar[Callable[[], bool]] = ContextVar("STOP_REQUESTED", default=lambda: False)
"""Returns whether the run of this thread has been asked to stop: for what takes long before the first row."""


class OpeningStopped(BaseException):
    """The run was asked to stop while an output was still being opened; nothing was written to it.

    It is no error, so nothing that handles errors catches it.
    """


class Delivery(StrEnum):
    """How often a row arrives after failures, stated for each source and sink."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"


class BadRow(Frozen):
    """Input that could not be read as a row: the raw text, the reason, and its place (`file:line`).

    failure  of a whole file that could not be read, the error that stops a run if nobody said otherwise; its
             raw text is its path
    """

    raw: str
    error: str
    place: str
    failure: ConnectorError | None = None


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """One batch of a reader.

    rows       columns in the reader's schema
    seq        int64[n], the reader's own order of rows, or None when it has none
    watermark  a promise made by the source itself, in the time column's unit; None for no promise
    bad        input that could not be read; the source step's `on_error` decides what becomes of it
    read_at    int64[n], when each row was read, in microseconds of the clock; None if that was just now
    position   where a later run goes on behind this batch, as plain data that JSON can hold; None if the
               reader has to read again what was read
    """

    rows: pa.RecordBatch
    seq: pa.Int64Array | None = None
    watermark: int | None = None
    bad: tuple[BadRow, ...] = field(default=())
    read_at: npt.NDArray[np.int64] | None = None
    position: Any = None

    @property
    def num_rows(self) -> int:
        """Return the number of rows that could be read."""
        return int(self.rows.num_rows)

    def with_watermark(self, watermark: int) -> SourceBatch:
        """Return the same batch with a promise of the source."""
        return replace(self, watermark=watermark)

    def with_position(self, position: Any) -> SourceBatch:
        """Return the same batch with a position behind it."""
        return replace(self, position=position)

    def with_read_at(self, read_at: npt.NDArray[np.int64]) -> SourceBatch:
        """Return the same batch with the times at which its rows were read."""
        return replace(self, read_at=read_at)


class SourcePosition(NamedTuple):
    """How far a source has been read: batches, the rows in them, and the reader's own position behind them.

    at  plain data; None if the reader has no positions, and has to read all from the beginning
    """

    batches: int = 0
    rows: int = 0
    at: Any = None


@runtime_checkable
class Reader(Protocol):
    """A place that rows are read from."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns, in canonical types, known before anything is read."""

    @property
    def bounded(self) -> bool:
        """Return whether the input ends by itself."""

    @property
    def delivery(self) -> Delivery:
        """Return what holds after a crash and a restart."""

    @property
    def keeps_raw(self) -> bool:
        """Return whether input can be bad, and its raw text is kept (text formats)."""

    @property
    def batches(self) -> Callable[..., Iterator[SourceBatch]]:
        """Return `batches(position=None)`, a method: reads from the beginning, or behind a batch.

        It is called once per run, with the position of the last batch that is done, and raises ConnectorError
        when it cannot read. A reader whose batches have no position need not take one: after a crash, what
        was read before is read again and left out.
        """

    def describe(self) -> str:
        """Return one line for explain(): `parquet events/ (3 files)`."""


@runtime_checkable
class RowReader(Protocol):
    """A reader that can give single rows as plain Python values, so that they never become columns."""

    @property
    def gives_rows(self) -> bool:
        """Return whether every batch is one row, and a good row comes as a dict."""

    def rows_or_batches(self, position: Any = None) -> Iterator[Any]:
        """Read as `batches` does; a batch of one good row may come as a dict of plain values."""


@runtime_checkable
class WaitingReader(Protocol):
    """A reader whose rows may come at any time, and which hands on those that have waited long enough."""

    @property
    def waits(self) -> bool:
        """Return whether rows may come at any time; False where all of them are there."""

    @property
    def wait_us(self) -> int | None:
        """Return how long the first row of a batch waits for others, in microseconds; None for ever."""

    def open(
        self, stamp: Callable[[], int] | None, *, as_rows: bool = False, position: Any = None
    ) -> WaitingRead:
        """Begin to read; with `stamp`, batches say when each of their rows was read.

        as_rows   whether batches of one good row may come as that row, a dict, without a stamp
        position  where to go on; None for the beginning
        """


def may_wait(reader: Reader) -> bool:
    """Return whether the rows of a reader may come at any time: if it says so, or does not end by itself."""
    return bool(getattr(reader, "waits", not reader.bounded))


@runtime_checkable
class JournaledReader(Protocol):
    """A reader whose input is not always the same, so that a journal says which files it read."""

    def resume(self, journal: Journal) -> Reader:
        """Return a reader that goes by the journal of earlier runs."""

    def give_up(self, number: int | None, before: Any, after: Any) -> None:
        """Record that a batch, between two positions, could not be read, so that its files may change.

        number  of the batch, if it is known
        """


@runtime_checkable
class CheckedReader(Protocol):
    """A reader that can tell before a run whether its files can be read."""

    def check_files(self) -> None:
        """Raise ConnectorError unless all files that are there now can be read."""


@runtime_checkable
class IndexedReader(Protocol):
    """A reader that knows where each of its batches is: its position is their number."""

    def rows_before(self, n_batches: int) -> int | None:
        """Return the number of rows in the first batches; None if there are not so many."""


class Output(Protocol):
    """One opened sink of one run."""

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Take rows of a batch; several calls may have one number. Nothing is visible yet."""

    def commit(self, batch: int) -> None:
        """Make everything of this batch visible, unless its number has been committed before."""

    def close(self) -> None:
        """Release files and sockets; rows that were not committed are dropped."""


@runtime_checkable
class DurableOutput(Output, Protocol):
    """An output that finds what an earlier run has committed."""

    @property
    def last_committed(self) -> int | None:
        """Return the number of the last batch that was committed; None if there was none."""


@runtime_checkable
class PlainOutput(Output, Protocol):
    """An output that takes plain Python rows as they are, so that single rows never become columns."""

    def write_plain(self, batch: int, rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> None:
        """Take rows of a batch, as `write` does."""

    commit_row: Callable[[int, Mapping[str, object]], object]
    """Takes and commits a single row that is all of a batch, once."""


@runtime_checkable
class WaitingOutput(Output, Protocol):
    """An output that may wait for somebody else while it commits."""

    def begin_shutdown(self) -> None:
        """Stop waiting soon; any thread may call it."""


@runtime_checkable
class StagedOutput(Output, Protocol):
    """An output that makes files visible which others have written."""

    def publish(self, batch: int, files: Sequence[StagedFile]) -> None:
        """Make the files visible as those of a batch, all or none, unless it has been committed before."""


class OutputRecord(Frozen):
    """What an output records of itself, durably.

    run        the identity of the checkpoint that it belongs to; empty without one
    committed  the last batch that is committed
    head       how far that checkpoint was then
    """

    run: str
    committed: int | None
    head: Mapping[str, Any] = field(default_factory=dict)


class OutputLink(Protocol):
    """What ties an output to a checkpoint, so that one that is older or foreign is found."""

    run: str
    read_head: Callable[[], Mapping[str, Any]]

    def check(self, file: Path, saved: OutputRecord | None) -> None:
        """Raise CheckpointError if the record in a file, or that there is none, does not fit."""

    def record(self, batch: int) -> None:
        """Take note that a batch is committed, durably."""


@runtime_checkable
class LinkedWriter(Protocol):
    """A writer whose outputs belong to a checkpoint, wherever they are."""

    def open_linked(self, schema: pa.Schema, sink: str, link: OutputLink, *, resume: bool) -> Output:
        """Begin a run with a checkpoint, as `Writer.open` does."""


@runtime_checkable
class Writer(Protocol):
    """A place that rows are written to."""

    @property
    def delivery(self) -> Delivery:
        """Return what holds after a crash and a restart."""

    @property
    def accepts_updates(self) -> bool:
        """Return whether a later row may replace an earlier one, as early results need."""

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> Output:
        """Begin a run; raise ConnectorError when the place cannot be written.

        With `resume` the run continues from a checkpoint: what is committed stays, and is not committed
        again. Without it, a place that holds another run's output is refused.
        """

    def describe(self) -> str:
        """Return one line for explain(): `jsonl late/`."""


@runtime_checkable
class StagingWriter(Protocol):
    """A writer whose files can be written by many processes; its output publishes them."""

    def stage(self, schema: pa.Schema, tag: str) -> FolderStage:
        """Begin the files of one task; `tag` is in their names, and no other task ever has it."""


@runtime_checkable
class ScratchWriter(Protocol):
    """A writer whose tasks need a folder of the run, for rows that somebody else takes from there."""

    def in_folder(self, folder: str) -> Writer:
        """Return the writer with a folder that the driver and all executors reach."""


@runtime_checkable
class SelectiveWriter(Protocol):
    """A writer that cannot take every schema."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise SchemaError for columns that it cannot write; called when the graph is built."""
