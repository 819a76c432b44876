"""What a reader and a writer are: the seam between Penstock and the outside.

A reader knows its schema before it reads, cuts its rows into batches (the cut is part of the program's
meaning: batch n is judged by the watermark of the batches before it), and says how far it can be
trusted after a crash. A writer opens an output for one sink; the output takes numbered batches and
makes each visible at most once. Neither knows an engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from enum import StrEnum
from typing import Protocol, runtime_checkable

import pyarrow as pa

from penstock.frozen import dataclass


class Delivery(StrEnum):
    """How often a row arrives after failures, stated per source and sink (never per product)."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"


@dataclass(frozen=True, slots=True)
class BadRow:
    """Input that could not be read as a row: the raw text, why, and its place (`file:line`)."""

    raw: str
    error: str
    place: str


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """One batch as a reader cut it.

    rows       columns in the reader's schema
    seq        int64[n], the reader's own order of rows, or None when it has none
    watermark  a promise made by the source itself, in the time column's unit; None for no promise
    bad        what could not be read; the source step's `on_error` decides what becomes of it
    """

    rows: pa.RecordBatch
    seq: pa.Int64Array | None = None
    watermark: int | None = None
    bad: tuple[BadRow, ...] = field(default=())

    @property
    def num_rows(self) -> int:
        """How many rows could be read."""
        return int(self.rows.num_rows)

    def promising(self, watermark: int) -> SourceBatch:
        """The same with a promise of the source."""
        return replace(self, watermark=watermark)


@runtime_checkable
class Reader(Protocol):
    """Where rows come from."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, in canonical types, known before anything is read."""

    @property
    def bounded(self) -> bool:
        """Whether the input ends by itself."""

    @property
    def delivery(self) -> Delivery:
        """What holds after a crash and a restart."""

    @property
    def keeps_raw(self) -> bool:
        """Whether bad input can occur and its raw text is kept (text formats)."""

    def batches(self) -> Iterator[SourceBatch]:
        """Read from the beginning. Called once per run; raises ConnectorError when it cannot."""

    def describe(self) -> str:
        """One line for explain(): `parquet events/ (3 files)`."""


class Output(Protocol):
    """One opened sink of one run."""

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Take rows of a batch; several calls may carry one number. Nothing is visible yet."""

    def commit(self, batch: int) -> None:
        """Make everything of this batch visible, once: a number already committed is not shown again."""

    def close(self) -> None:
        """Release files and sockets; uncommitted rows are dropped."""


@runtime_checkable
class Writer(Protocol):
    """Where rows go."""

    @property
    def delivery(self) -> Delivery:
        """What holds after a crash and a restart."""

    @property
    def accepts_updates(self) -> bool:
        """Whether a later row may replace an earlier one, as early results need."""

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> Output:
        """Begin a run; raises ConnectorError when the place cannot be written.

        `resume` says that the run goes on from a checkpoint: what is already committed stays, and is
        not committed again. Without it, a place that holds another run's output is refused.
        """

    def describe(self) -> str:
        """One line for explain(): `jsonl late/`."""
