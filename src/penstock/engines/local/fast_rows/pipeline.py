"""The row pipeline of one task: chained steps that take single rows, one behind the other.

What became of the rows is told from a few counts, when somebody asks. A row on which a function fails takes
the usual way from there, so that policies and messages are those of the batch path.

In a run with a listener, or one that is measured, the end of every round is reported from here, as the batch
path does. A checkpoint needs no such report: the round that it saves goes through the chain as a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from penstock.accounts import Accounts
from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels.output import ForwardOutput
from penstock.engines.local.fast_rows.context import RowContext, RowOutput
from penstock.engines.local.fast_rows.direct_call import DirectCall
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep, SinkStep, Target, count_rows, count_written
from penstock.engines.local.tasks.task import Task
from penstock.operators.op import ERRORS, OUT
from penstock.stages.rows.batch import RowBatch
from penstock.stages.stage import PlainRow, RowStep


class RowPipeline:
    """Chained steps that take single rows, and where rows go from there.

    chain        the steps whose work it does
    output       what is behind them
    put_row      ends a round: hands the row of it, or None, to the output
    every_round  whether rounds without a row must be ended too
    n_in         the number of rows that came in
    dropped      the number of rows that were filtered, by step
    failed       the number of rows on which a function failed, by step
    """

    __slots__ = (
        "_context",
        "_indexed_steps",
        "_progress",
        "_row_steps",
        "_task",
        "chain",
        "dropped",
        "every_round",
        "failed",
        "n_in",
        "output",
        "put_row",
    )

    def __init__(
        self,
        task: Task,
        chain: Sequence[ChainedStep],
        row_steps: Sequence[RowStep],
        output: RowOutput,
        progress: Progress,
    ) -> None:
        self.chain, self._row_steps, self.output = tuple(chain), tuple(row_steps), output
        self._indexed_steps = tuple(enumerate(step.process for step in row_steps))
        self._task, self._progress = task, progress
        reports = progress.has_listener or progress.latencies is not None
        self.put_row: Callable[[PlainRow | None, int], bool] = (
            self._put_and_report if reports else output.put_row
        )
        self.every_round = reports or output.every_round
        self._context: RowContext
        self.n_in = 0
        self.dropped, self.failed = [0] * len(row_steps), [0] * len(row_steps)
        for at, chained in enumerate(self.chain):
            chained.count_row_path = partial(self._count, at)

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Begins a sequence of rounds, the first of this number, with the task at the frontier."""
        self._context = context
        self.output.begin(context, number, frontier)

    def process(self, row: PlainRow, number: int) -> bool:
        """Processes one row, which is all of the round of this number; returns what the output returns."""
        for at, process in self._indexed_steps:
            try:
                result = process(row)
            except Exception as cause:
                self.n_in += 1
                self._handle_failure(at, row, number, cause)
                return self.put_row(None, number)
            if result is None:
                self.n_in += 1
                self.dropped[at] += 1
                return self.put_row(None, number)
            row = result
        self.n_in += 1
        return self.put_row(row, number)

    def _handle_failure(self, at: int, row: PlainRow, number: int, cause: Exception) -> None:
        """Applies the step's `on_error` to a row on which it failed."""
        chained, context = self.chain[at], self._context
        self.failed[at] += 1
        batch = RowBatch.single(row, chained.step.up.schema, context.time, context.order(number))
        dead_letters = self._row_steps[at].on_failure(batch, cause)
        if dead_letters is not None:
            for target in chained.targets.get(ERRORS, ()):
                target(dead_letters)

    def _put_and_report(self, values: PlainRow | None, number: int) -> bool:
        """Does what the output's `put_row` does, and reports the end of the round."""
        full = self.output.put_row(values, number)
        for chained in self.chain:
            chained.report_counts(number)
        if isinstance(self.output, SinkStep):
            written = {self.output.step.name: int(values is not None)}
        else:
            written = count_written(self._task.chain)
        self._progress.complete_round(self._task, self._context.origin[0], number, written)
        return full

    def count_source(self, accounts: Accounts) -> None:
        """Adds the rows that came in to the accounts of the source that read them."""
        count_rows(accounts, self.n_in, self.n_in)

    def _count(self, at: int, accounts: Accounts) -> None:
        """Adds what a step has done to its accounts; failed rows are counted there already."""
        n_in = self.n_in - sum(self.dropped[:at]) - sum(self.failed[:at])
        count_rows(accounts, n_in, n_in - self.dropped[at] - self.failed[at])
        accounts.filtered += self.dropped[at]


class BatchOutput:
    """The output of a pipeline whose rows go on as batches of one, to steps or outputs of any kind."""

    every_round = True

    def __init__(self, last: ChainedStep, task: Task, round_end_steps: Sequence[ChainedStep]) -> None:
        self._targets: tuple[Target, ...] = last.targets.get(OUT, ())
        self._schema, self._round_end_steps = last.step.outputs[OUT].schema, tuple(round_end_steps)
        self._leaves_task = any(chained.outputs for chained in task.chain)
        self._context: RowContext
        self._frontier: Frontier

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Implements `RowOutput.begin`."""
        self._context, self._frontier = context, frontier

    def advance_frontier(self, frontier: Frontier) -> None:
        """Implements `RowOutput.advance_frontier`: the steps learn of it at the end of the round."""
        self._frontier = frontier

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """Implements `RowOutput.put_row`."""
        context, frontier = self._context, self._frontier
        if values is not None:
            batch = RowBatch.single(values, self._schema, context.time, context.order(number))
            for target in self._targets:
                target(batch)
        for chained in self._round_end_steps:
            frontier = chained.end_round(context.origin[0], number, number, frontier)
        return self._leaves_task

    def end(self, number: int) -> int:
        """Implements `RowOutput.end`."""
        return 0


def build_source_pipeline(
    task: Task, round_end_steps: Sequence[ChainedStep], progress: Progress
) -> RowPipeline:
    """Returns the pipeline behind the source at the head of a task.

    round_end_steps  the steps to which the end of a round means something
    """
    source, *rest = task.chain
    chain, row_steps = _leading_row_steps(source.targets.get(OUT, ()), rest)
    last = chain[-1] if chain else source
    output = _build_output(last, task, rest[len(chain) :], round_end_steps)
    pipeline = RowPipeline(task, chain, row_steps, output, progress)
    source.count_row_path = pipeline.count_source
    return pipeline


def build_task_pipeline(
    task: Task, round_end_steps: Sequence[ChainedStep], progress: Progress
) -> RowPipeline | None:
    """Returns the pipeline of a task that reads channels, if its first step takes single rows."""
    steps = task.chain
    if len(steps) == 1 and isinstance(steps[0], SinkStep):
        return RowPipeline(task, (), (), steps[0], progress)
    chain, row_steps = _leading_row_steps((steps[0].feed,), steps)
    if not chain:
        return None
    output = _build_output(chain[-1], task, steps[len(chain) :], round_end_steps)
    return RowPipeline(task, chain, row_steps, output, progress)


def _leading_row_steps(
    targets: object, chain: Sequence[ChainedStep]
) -> tuple[list[ChainedStep], list[RowStep]]:
    """Returns the first steps, as long as all rows go to the next one and it takes single rows."""
    leading, row_steps = [], []
    for chained in chain:
        row_step = chained.row_step()
        if row_step is None or targets != (chained.feed,):
            break
        leading.append(chained)
        row_steps.append(row_step)
        targets = chained.targets.get(OUT, ())
    return leading, row_steps


def _build_output(
    last: ChainedStep, task: Task, rest: Sequence[ChainedStep], round_end_steps: Sequence[ChainedStep]
) -> RowOutput:
    """Returns where rows go from the last step: directly to the only sink or channel, else as batches."""
    targets, schema = last.targets.get(OUT, ()), last.step.outputs[OUT].schema
    outputs = [output for chained in task.chain for output in chained.outputs]
    if not outputs and len(rest) == 1 and isinstance(rest[0], SinkStep) and targets == (rest[0].feed,):
        return rest[0]
    if not rest and len(outputs) == 1:
        (output,) = outputs
        if isinstance(output, ForwardOutput) and targets == (output.send,) and output.begin_rows(schema):
            return DirectCall(output)
    return BatchOutput(last, task, round_end_steps)
