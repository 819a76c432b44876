"""Seats: the steps of one node, in a line; rows pass from one to the next by a direct call.

A chained step knows where the rows on each of its ports go (`targets`): to the next step, to an output, or
into a collection. Without rounds rows are worked on as they come; with rounds they wait in their step, and
the rows of a round are one batch, whichever way they came, so that functions of batches see the same on
every engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels.channel import ActiveReplicas, ControlMessage
from penstock.engines.local.channels.output import Output
from penstock.engines.local.fast_rows.context import PlainRow, RowContext
from penstock.engines.local.progress import Progress
from penstock.engines.sinks import SinkWriter
from penstock.operators.op import ERRORS, OUT
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch, batches_to_columns
from penstock.stages.rows.order import merge_batches
from penstock.stages.stage import Stage
from penstock.stages.stateless import StatelessStage

if TYPE_CHECKING:
    from penstock.stages.stateless import RowStep

Target = Callable[[Batch], None]
Outputs = Iterable[tuple[str, Batch]]


def discard(batch: Batch) -> None:
    """Where rows go that nobody reads."""


def count_rows(accounts: Accounts, n_in: int, n_out: int) -> None:
    """Rows that came in, and those of them that passed and left."""
    accounts.rows_in += n_in
    accounts.passed += n_out
    accounts.rows_out += n_out


class ChainedStep(ABC):
    """One step at its place in a node."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.targets: dict[str, tuple[Target, ...]] = {}
        self.outputs: list[Output] = []
        self.accounts = Accounts()
        self.told: Progress | None = None
        self.count_row_path: Callable[[Accounts], None] | None = None
        self._late = self._errors = 0

    def connected(self) -> None:
        """All targets are known."""
        return

    def by_row(self) -> RowStep | None:
        """What is made of a single plain row, if the chained takes rows by themselves (`line.py`)."""
        return None

    def total_accounts(self) -> Accounts:
        """What became of the rows, also of those that a line counts (`count_row_path`)."""
        if self.count_row_path is None:
            return self.accounts
        found = replace(self.accounts)
        self.count_row_path(found)
        return found

    @property
    def needs_round_end(self) -> bool:
        """Whether the end of a round means anything here."""
        return True

    @property
    def tells(self) -> bool:
        """Whether somebody else must be told of it."""
        return bool(self.outputs) or self.told is not None

    @abstractmethod
    def feed(self, batch: Batch) -> None:
        """Rows come in."""

    @abstractmethod
    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Handles the end of a round and returns the frontier that is passed on."""

    def end_round(self, round_group: int, number: int, turn: int, frontier: Frontier) -> Frontier:
        """The same, and tells those that read the outputs.

        number  the round of its round_group
        turn    the round as this node counts, under which sinks commit
        """
        frontier = self.advance(turn, frontier)
        for output in self.outputs:
            output.end_round(round_group, number, frontier)
        if self.told is not None:
            self.told.report_counts(self.step, self.accounts, self._late, self._errors, number)
            self._late, self._errors = self.accounts.late, self.accounts.errors
        return frontier

    def forward(self, message: int | ActiveReplicas | ControlMessage) -> None:
        """A numbered batch has been worked on, or the number of replicas has changed."""
        for output in self.outputs:
            output.forward(message)

    def close(self, *, broken: bool) -> None:
        """Nothing more will come; `broken` if some of the round at hand is missing."""
        for output in self.outputs:
            output.close(broken=broken)

    def give(self, made: Outputs) -> None:
        """Rows out, to whoever reads their port."""
        for port, rows in made:
            for target in self.targets.get(port, ()):
                target(rows)


class StageStep(ChainedStep):
    """A stage, fed as rows come.

    held_back  how far results come behind the input's watermark
    """

    def __init__(self, step: Step, stage: Stage, accounts: Accounts, output_delay: int) -> None:
        super().__init__(step)
        self.stage, self.accounts, self._output_delay = stage, accounts, output_delay
        self._on_batch = stage.on_batch
        self._few_rows: Callable[[Batch], Batch | None] | None = getattr(stage, "few_rows", None)
        self.frontier = self._passed_on = Frontier()

    def by_row(self) -> RowStep | None:
        """What the stage makes of it, if it can do so with any."""
        found: Callable[[], RowStep | None] | None = getattr(self.stage, "by_row", None)
        return None if found is None else found()

    def feed(self, batch: Batch) -> None:
        """Work on the rows, judged by the watermark before the round."""
        made = None if self._few_rows is None else self._few_rows(batch)
        if made is not None:
            self.give(((OUT, made),) if made.num_rows else ())
            return
        for port, rows in self._on_batch(batch, self.frontier.watermark):
            for target in self.targets.get(port, ()):
                target(rows)

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Let go what the watermark has passed; marks never go back."""
        if self._few_rows is not None and frontier == self.frontier and not frontier.over:
            return self._passed_on  # state of keys does not look at the clock
        before = self.frontier.watermark
        reached = before if frontier.idle else max(before, frontier.watermark)
        self.frontier = Frontier(reached, frontier.idle, frontier.over)
        self.give(self.stage.drain() if frontier.over else self.stage.on_watermark(reached))
        self._passed_on = Frontier(reached - self._output_delay, frontier.idle, frontier.over)
        return self._passed_on


class RoundStageStep(StageStep):
    """A stage, fed with all rows of a round at its end.

    flush  gives away what the stage would otherwise have to save; None where it saves what it has
    """

    def __init__(
        self, step: Step, stage: Stage, accounts: Accounts, output_delay: int, schema: pa.Schema
    ) -> None:
        super().__init__(step, stage, accounts, output_delay)
        self._schema = schema
        self._waiting: list[Batch] = []
        self.flush: Callable[[], Outputs] | None = None

    def by_row(self) -> RowStep | None:
        """Rows wait for the others of their round."""
        return None

    def feed(self, batch: Batch) -> None:
        """Rows wait for the end of the round."""
        self._waiting.append(batch)

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """All rows as one batch, then the watermark."""
        batches, self._waiting = self._waiting, []
        if batches:
            whole = batches[0] if len(batches) == 1 else merge_batches(batches, self._schema)
            super().feed(whole)
        frontier = super().advance(number, frontier)
        if self.flush is not None and not frontier.over:
            self.give(self.flush())
        return frontier


# Seats of stages without state, and the runs of them that a batch goes down in one loop.


class StatelessStep(ChainedStep):
    """A stage without state, fed as rows come: it gives what a batch becomes at once; no mark concerns it.

    A batch goes down a run of such chain in one loop, because this is what fused steps pay per batch. As
    long as the steps hand on what they get, it is counted once for all of them, where it came in.

    run      this chained and those behind it, as far as all rows go to the next and it is as plain
    heads    the chain whose runs this one is in
    n_whole  rows that came in here and were handed on by the whole run
    """

    def __init__(self, step: Step, stage: StatelessStage, accounts: Accounts) -> None:
        super().__init__(step)
        self.stage, self.accounts = stage, accounts
        self.run: tuple[StatelessStep, ...] = (self,)
        self.heads, self.n_whole = [self], 0
        self._steps: tuple[tuple[int, Callable[[Batch], Batch | None]], ...] = ((0, stage.at_once),)
        self._out: Target = discard
        self._end: Target = discard

    def connected(self) -> None:
        """The main port is looked up once."""
        targets = self.targets.get(OUT, ())
        self._out = self._end = targets[0] if len(targets) == 1 else self._to_all

    def follow(self, behind: StatelessStep) -> None:
        """All rows of the main port go to a chained: it and the run behind it do their part in one loop."""
        self.run = (self, *behind.run)
        self._steps = tuple(enumerate(chained.stage.at_once for chained in self.run))
        self._end = behind._end
        for chained in behind.run:
            chained.heads.append(self)

    def by_row(self) -> RowStep | None:
        """What the stage makes of it."""
        return self.stage.by_row()

    def total_accounts(self) -> Accounts:
        """What became of the rows, also of those that were handed on by a whole run."""
        found = replace(super().total_accounts())
        n_rows = sum(head.n_whole for head in self.heads)
        count_rows(found, n_rows, n_rows)
        return found

    def feed(self, batch: Batch) -> None:
        """Work on the rows, and let the chain of the run do so."""
        n_rows, at, made = batch.num_rows, 0, None
        if not n_rows:
            return
        try:
            for at, at_once in self._steps:  # noqa: B007  # which chained it was is asked below
                made = at_once(batch)
                if made is not batch:
                    break
        except BaseException:
            self._passed(at, n_rows)
            self.run[at].accounts.rows_in += n_rows
            raise
        if made is batch:
            self.n_whole += n_rows
            self._end(batch)
        else:
            self._passed(at, n_rows)
            self.run[at].emit_result(batch, made)

    def _passed(self, end: int, n_rows: int) -> None:
        """The chain of the run before one of them have handed rows on."""
        for chained in self.run[:end]:
            count_rows(chained.accounts, n_rows, n_rows)

    def emit_result(self, batch: Batch, made: Batch | None) -> None:
        """What the rows became, if that is known already, to whoever reads it."""
        if made is not None:
            count_rows(self.accounts, batch.num_rows, made.num_rows)
            self.accounts.filtered += batch.num_rows - made.num_rows
            if made.num_rows:
                self._out(made)
            return
        self.accounts.rows_in += batch.num_rows
        for port, rows in self.stage.made(batch):
            if rows.num_rows:
                self.accounts.rows_out += rows.num_rows if port != ERRORS else 0
                self.give(((port, rows),))

    @property
    def needs_round_end(self) -> bool:
        """Only if somebody else must be told."""
        return self.tells

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Nothing waits here."""
        return frontier

    def _to_all(self, batch: Batch) -> None:
        for target in self.targets.get(OUT, ()):
            target(batch)


def link_stateless_steps(chain: Sequence[ChainedStep]) -> None:
    """Join plain chain to runs: where all rows of one go to the next."""
    for chained, behind in reversed(list(pairwise(chain))):
        joined = chained.targets.get(OUT) == (behind.feed,)
        if joined and isinstance(chained, StatelessStep) and isinstance(behind, StatelessStep):
            chained.follow(behind)


# Seats where rows leave the steps of a node: sinks, rows wanted in hand, rows that are only dealt.


class SinkStep(ChainedStep):
    """Writes and commits the rows of each round under its number; also a `context.Tail` of single rows.

    written  rows of the last round
    """

    every_round: ClassVar[bool] = False

    def __init__(self, step: Step, writer: SinkWriter) -> None:
        super().__init__(step)
        self.writer, self.accounts = writer, writer.accounts
        self._waiting: list[Batch] = []
        self.written = self._n_alone = 0
        self._write_row: Callable[[int, PlainRow], object] = writer.write_row
        self.count_row_path = self._count_alone

    def feed(self, batch: Batch) -> None:
        """Rows wait for the end of the round."""
        self._waiting.append(batch)

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Write and commit."""
        batches, self._waiting = self._waiting, []
        self.written = self.writer.write(number, batches)
        return frontier

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """The output is open by now."""
        self._write_row = self.writer.write_row

    def moved(self, frontier: Frontier) -> None:
        """No mark concerns it."""

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """Write and commit a row that is all of a round."""
        if values is not None:
            self._write_row(number, values)
            self._n_alone += 1
        return False

    def end(self, number: int) -> int:
        """Nothing is behind it."""
        return 0

    def _count_alone(self, accounts: Accounts) -> None:
        """Add the rows that came by themselves."""
        count_rows(accounts, self._n_alone, self._n_alone)


class CollectedRows:
    """Rows that are wanted in hand."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[Batch] = []
        self._n_taken = 0

    def feed(self, batch: Batch) -> None:
        """Keep the rows."""
        self._batches.append(batch)

    def table(self) -> pa.Table:
        """All rows so far."""
        return self._from(0)

    def take(self) -> pa.Table:
        """The rows since the last take."""
        first, self._n_taken = self._n_taken, len(self._batches)
        return self._from(first)

    def _from(self, first: int) -> pa.Table:
        return pa.Table.from_batches(batches_to_columns(self._batches[first:]), schema=self._schema)


class ForwardStep(ChainedStep):
    """Rows of a port as they come: where a node of its own deals them."""

    def __init__(self, step: Step, port: str) -> None:
        super().__init__(step)
        self._port = port

    def feed(self, batch: Batch) -> None:
        """Pass them on."""
        for target in self.targets.get(self._port, ()):
            target(batch)

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Nothing waits here."""
        return frontier


class CollectStep(ChainedStep):
    """Collects the rows of several replicas in a node of its own."""

    def __init__(self, step: Step, collection: CollectedRows) -> None:
        super().__init__(step)
        self.feed = collection.feed  # type: ignore[method-assign]  # one call less per batch

    def feed(self, batch: Batch) -> None:
        """Keep the rows."""

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Nothing happens at the end of a round."""
        return frontier
