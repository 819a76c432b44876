"""Sources: batches as their readers cut them, with time and place, and the marks they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.rows import table
from penstock.connect.row_batch import RowBatch
from penstock.engines.frontiers import OVER, Frontier
from penstock.errors import CheckpointError, ConnectorError, PenstockError, describe_cause
from penstock.operators.source import Source
from penstock.operators.static_join import StaticJoin
from penstock.plan.plan import Plan, Step
from penstock.stages.rows.batch import Batch
from penstock.stages.source import SourceStage
from penstock.stages.stage import Site
from penstock.timing.watermark import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from penstock.connect.readers.file_journal import Journal

JournalOf = Callable[[str, int], "Journal | None"]
"""Gives a source's journal, by name and batches that are done; None where there is none."""
_UNTIMED = Frontier()


def no_journal(source: str, done: int) -> None:
    """For runs without a checkpoint."""


class SourceReader:
    """One source at work."""

    def __init__(self, plan: Plan, step: Step, clock: Clock, accounts: Accounts) -> None:
        assert isinstance(step.op, Source), "only sources read"
        self.step, self._reader = step, step.op.reader
        several = len(plan.sources) > 1
        rank = plan.sources.index(step) if several else None
        self.reasons: list[str] = []
        site = Site(step.name, step.where, accounts, clock, reasons=self.reasons)
        self._stage = SourceStage(step.op, site, rank=rank)
        self._timed = step.op.resolved() is not None
        self._batches: Iterator[Any] | None = None
        self.ended = self._over = False
        self.n_batches = self.n_rows = 0
        self._frontier = Frontier()

    @property
    def bounded(self) -> bool:
        """Whether the input ends by itself."""
        return self._reader.bounded

    @property
    def watermark(self) -> float:
        """How far it has come."""
        return self._stage.watermark

    @property
    def frontier(self) -> Frontier:
        """How far it has come, for those that read it."""
        if self._over:
            return OVER
        if not self._timed:
            return _UNTIMED
        watermark, idle = self._stage.watermark, self._stage.idle
        if watermark != self._frontier.watermark or idle != self._frontier.idle:
            self._frontier = Frontier(watermark, idle=idle)
        return self._frontier

    @property
    def timed(self) -> bool:
        """Whether rows have a time."""
        return self._timed

    def time_of(self, row: Mapping[str, object]) -> int | None:
        """The time of a plain row that is all of a batch (`SourceStage.time_of`)."""
        return self._stage.time_of(row)

    @property
    def rank(self) -> int | None:
        """The number of the source among several, by which rows of equal time are ordered before all else."""
        return self._stage.rank

    @property
    def position(self) -> tuple[int, int]:
        """How many batches have been read, and how many rows in them."""
        return self.n_batches, self.n_rows

    def resume(self, position: tuple[int, int], watermark: float, journal: JournalOf = no_journal) -> None:
        """Go on from where another run had come to: (batches, rows) before that are passed over."""
        self._restore(position, journal)
        while self.position[0] < position[0] and self.next() is not None:
            continue
        if self.position != position:
            raise self._input_changed(position)
        if BEFORE_ALL < watermark < AFTER_ALL:
            self._stage.promise(int(watermark))

    def _restore(self, position: tuple[int, int], journal: JournalOf) -> None:
        """Files are read behind the position, by the journal of earlier runs."""
        reader: Any = self._reader
        noted_files = journal(self.step.name, position[0]) if getattr(reader, "by_files", False) else None
        if noted_files is not None:
            self._reader = reader.going_on(noted_files, position)
            self.n_batches, self.n_rows = position

    def next(self) -> Any:
        """The next batch; None when there is none any more."""
        if self.ended:
            return None
        try:
            return self.accept(next(self.open(), None))
        except Exception as cause:
            raise self.read_error(cause) from cause

    def open(self) -> Iterator[Any]:
        """The batches that are left; one that is a single plain row may be the row itself, a dict.

        The caller passes each item to `accept` (rows: `count_row_batches`), and exceptions to `read_error`.
        """
        if self._batches is None:
            self._batches = self._read()
        return self._batches

    def accept(self, read: Any) -> Any:
        """What was read last, as a batch; None is the end."""
        if read is None:
            self.ended = True
            return None
        batch = RowBatch((read,), self._reader.schema, self.n_rows) if type(read) is dict else read
        self.n_batches += 1
        self.n_rows += _n_rows(batch)
        return batch

    def count_row_batches(self, n_rows: int) -> None:
        """So many rows were read, each a batch of its own."""
        self.n_batches += n_rows
        self.n_rows += n_rows

    def _read(self) -> Iterator[Any]:
        """The batches from the first; readers of single rows may give these as they are."""
        of_rows: Callable[[], Iterable[Any]] | None = getattr(self._reader, "rows_or_batches", None)
        return iter(self._reader.batches() if of_rows is None else of_rows())

    def rows(self, batch: Any) -> list[tuple[str, Batch]]:
        """The batch with times and places; rows that failed on their own port."""
        return list(self._stage.on_read(batch))

    def promise(self, watermark: int) -> None:
        """Move the watermark as if the source had said so, in microseconds."""
        self._stage.promise(watermark)

    def end(self) -> None:
        """Nothing more will come."""
        self._over = True
        self._stage.end()

    def close(self) -> None:
        """Let the reader release what it holds."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def _input_changed(self, position: tuple[int, int]) -> PenstockError:
        """Batches are counted, so input that is cut otherwise now would lose rows or bring some twice."""
        told = "{:,} batches of {:,} rows in all".format
        return CheckpointError(
            f'source "{self.step.name}" does not begin with what has been read of it before',
            step=self.step.name,
            where=self.step.where,
            detail=f"read before: {told(*position)}; there now: {told(*self.position)}",
            hint="bring the input back as it was, or start with an empty checkpoint folder; "
            "input that grows is best cut by files",
        )

    def read_error(self, cause: Exception) -> PenstockError:
        """The error of a reader that raised."""
        failure = cause
        if not isinstance(failure, PenstockError):
            failure = ConnectorError(
                f"could not read {self._reader.describe()}", detail=describe_cause(cause)
            )
        return failure.at(self.step.name, self.step.where)


def _n_rows(batch: Any) -> int:
    """Rows of a batch, good and bad: read here, or to be read by Spark, where only their number is known."""
    if isinstance(batch, SourceBatch):
        return batch.num_rows + len(batch.bad)
    n_rows: int = batch.n_rows
    return n_rows


# Joined tables are read once and travel with the steps that look rows up in them.
#
# A worker need not see the file, and all replicas look into the same table.


def load_tables(plan: Plan) -> Plan:
    """The plan with every joined table in hand."""
    return replace(plan, steps=tuple(_with_table(step) for step in plan))


def _with_table(step: Step) -> Step:
    if not isinstance(step.op, StaticJoin):
        return step
    try:
        return replace(step, op=replace(step.op, table=table(step.op.load())))
    except PenstockError as problem:
        raise problem.at(step.name, step.where) from None
