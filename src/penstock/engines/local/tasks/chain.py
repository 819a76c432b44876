"""Chained steps: the steps of one task, one behind the other; rows pass to the next by a direct call.

A chained step knows where the rows on each of its ports go (`targets`): to the next step, to an output, or
into a collection. Without rounds rows are processed as they come; with rounds they wait in their step, and
the rows of a round are one batch, whichever way they came, so that functions of batches see the same on every
engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.engines.ends import SinkWriter
from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels import Output
from penstock.engines.local.direct_call import RowContext, RowOutput
from penstock.engines.local.progress import Progress
from penstock.operators.op import ERRORS
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch, batches_to_columns
from penstock.stages.rows.order import merge_batches
from penstock.stages.snapshot import BucketedStage
from penstock.stages.stage import PlainRow, RowStage, RowStep, Stage, StatelessStage

Target = Callable[[Batch], None]
Outputs = Iterable[tuple[str, Batch]]


class ChainedStep:
    """One step at its place in a task.

    By itself it passes rows on: it stands for a source and for an operator with its own loop, whose tasks
    emit the rows, and for the step whose rows a task of its own partitions or collects.

    stage           what it does; None if that is done elsewhere
    is_stateless    whether the end of a round means nothing here, unless somebody must hear of it
    listener        where late and failed rows are reported; None if nobody listens
    count_row_path  adds the rows that came singly (`row_path.py`) to accounts
    """

    is_stateless = True

    def __init__(self, step: Step, accounts: Accounts, stage: Stage | None = None) -> None:
        self.step, self.accounts, self.stage = step, accounts, stage
        self.targets: dict[str, tuple[Target, ...]] = {}
        self.outputs: list[Output] = []
        self.listener: Progress | None = None
        self.count_row_path: Callable[[Accounts], None] | None = None
        self._n_late = self._n_errors = 0

    def add_target(self, port: str, target: Target) -> None:
        """Let the rows on a port go to a target too."""
        self.targets[port] = (*self.targets.get(port, ()), target)

    def row_step(self) -> RowStep | None:
        """Return the work on a single row, if the step takes rows singly (`row_path.py`)."""
        return self.stage.row_step() if isinstance(self.stage, RowStage) else None

    def feed(self, batch: Batch) -> None:
        """Take rows in."""
        self.emit((port, batch) for port in self.targets)

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Handle the end of a round, at which the input reaches the frontier; return its own frontier."""
        return frontier

    def end_round(self, round_group: int, number: int, task_round: int, frontier: Frontier) -> Frontier:
        """Do what `advance` does, and tell those that read the outputs.

        number      the round of its group
        task_round  the round as this task counts, under which sinks commit
        """
        frontier = self.advance(task_round, frontier)
        for output in self.outputs:
            output.end_round(round_group, number, frontier)
        if self.listener is not None:
            self.report_counts(self.listener, number)
        return frontier

    def report_counts(self, listener: Progress, number: int) -> None:
        """Report rows that were late or failed since the last report."""
        listener.report_counts(self.step, self.accounts, self._n_late, self._n_errors, number)
        self._n_late, self._n_errors = self.accounts.late, self.accounts.errors

    def emit(self, outputs: Outputs) -> None:
        """Pass rows to whoever reads their port."""
        for port, rows in outputs:
            for target in self.targets.get(port, ()):
                target(rows)


class StatelessStep(ChainedStep):
    """A stage without state, fed as rows come; frontiers do not concern it."""

    stage: StatelessStage

    def feed(self, batch: Batch) -> None:
        """Process the rows as `StatelessStage.on_batch` does, in one loop less."""
        accounts, n_rows = self.accounts, batch.num_rows
        if not n_rows:
            return
        accounts.rows_in += n_rows
        for port, rows in self.stage.process(batch):
            n_rows = rows.num_rows
            if n_rows:
                if port != ERRORS:
                    accounts.rows_out += n_rows
                for target in self.targets.get(port, ()):
                    target(rows)


class StageStep(ChainedStep):
    """A stage, fed as rows come, or with all rows of a round at its end.

    output_delay  how far results come behind the input's watermark
    round_schema  the columns of the rows that wait for the end of their round; None if they do not wait
    flush         emits what the stage would otherwise have to save; None where it saves what it has
    """

    is_stateless = False
    stage: Stage

    def __init__(
        self, step: Step, accounts: Accounts, stage: Stage, output_delay: int, round_schema: pa.Schema | None
    ) -> None:
        super().__init__(step, accounts, stage)
        self._output_delay, self._round_schema = output_delay, round_schema
        self.frontier = Frontier()
        self._waiting: list[Batch] = []
        self.flush: Callable[[], Outputs] | None = None

    @property
    def saves_changes(self) -> bool:
        """Return whether the stage can save what changed in a bucket, apart from the rest of it."""
        return isinstance(self.stage, BucketedStage) and self.stage.saves_changes

    def snapshot_changes(self, buckets: Collection[int]) -> Mapping[int, bytes]:
        """Return the state that has changed, of these buckets only its changes; where the stage can do so."""
        assert isinstance(self.stage, BucketedStage), "others save all of a bucket"
        return self.stage.snapshot_changes(buckets)

    def feed(self, batch: Batch) -> None:
        """Process the rows, judged by the watermark before the round, or keep them until its end."""
        if self._round_schema is None:
            self.emit(self.stage.on_batch(batch, self.frontier.watermark))
        else:
            self._waiting.append(batch)

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Process the rows that wait as one batch, and emit what the watermark has passed.

        Frontiers never go back.
        """
        before = self.frontier.watermark
        batches = self._waiting
        if batches:
            self._waiting = []
            whole = batches[0] if len(batches) == 1 else merge_batches(batches, self._round_schema)
            self.emit(self.stage.on_batch(whole, before))
        if frontier.idle or frontier.watermark < before:
            frontier = Frontier(before, frontier.idle, frontier.over)
        self.frontier, reached = frontier, frontier.watermark
        self.emit(self.stage.drain() if frontier.over else self.stage.on_watermark(reached))
        if self.flush is not None and not frontier.over:
            self.emit(self.flush())
        if not self._output_delay:
            return frontier
        return Frontier(reached - self._output_delay, frontier.idle, frontier.over)


class SinkStep(ChainedStep, RowOutput):
    """Writes and commits the rows of each round under its number; also those that come singly.

    n_written  the number of rows in the last round
    """

    is_stateless = every_round = False

    def __init__(self, step: Step, writer: SinkWriter) -> None:
        super().__init__(step, writer.accounts)
        self.writer = writer
        self._waiting: list[Batch] = []
        self.n_written = self._n_single = 0
        self._write_row: Callable[[int, PlainRow], object] = writer.write_row

    def feed(self, batch: Batch) -> None:
        """Keep the rows until the end of the round."""
        self._waiting.append(batch)

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Write and commit."""
        batches, self._waiting = self._waiting, []
        self.n_written = self.writer.write(number, batches)
        return frontier

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Implement `RowOutput.begin`: the output is open by now."""
        super().begin(context, number, frontier)
        self._write_row = self.writer.write_row
        self.count_row_path = lambda accounts: accounts.count_passed(self._n_single, self._n_single)

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """Implement `RowOutput.put_row`: writes and commit."""
        if values is not None:
            self._write_row(number, values)
            self._n_single += 1
        return False


class CollectedRows:
    """Rows that are wanted in hand."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[Batch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def feed(self, batch: Batch) -> None:
        """Keep the rows."""
        self._batches.append(batch)

    def table(self, first: int = 0) -> pa.Table:
        """Return all rows so far, from this batch on."""
        return pa.Table.from_batches(batches_to_columns(self._batches[first:]), schema=self._schema)


def count_written(chain: Iterable[ChainedStep]) -> dict[str, int]:
    """Return the number of rows that each sink among chained steps wrote in the last round."""
    return {chained.step.name: chained.n_written for chained in chain if isinstance(chained, SinkStep)}
