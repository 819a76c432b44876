"""The row-at-a-time path: rounds of one plain row each, with no batch built for them.

A batch, an end of round and a set of accounts per row would cost ten times what the user's functions do. Here
a row is a dict that one function after the other turns into the next (`python -m bench runtime`, groups rows
and latency). A source takes this path if it is the only one of its round group, and its reader gives single
rows (`batch=1`). A round that is no single plain row, or that a checkpoint saves, goes through the chain as a
batch: its end then passes all tasks in band, as the barrier does on the batch path.

What became of the rows is told from a few counts, when somebody asks. A row on which a function fails takes
the usual way from there, so that policies and messages are those of the batch path. In a run with a listener,
or one that is measured, the end of every round is reported from here. From one task to the next a row goes by
a direct call, or through the channel (`direct_call.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.engines.frontiers import Frontier, merge_frontiers
from penstock.engines.local.direct_call import DirectCall, RowContext, RowOutput
from penstock.engines.local.metrics.statistics import WRITE_BLOCKED
from penstock.engines.local.tasks.chain import ChainedStep, SinkStep, Target, count_written
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.operators.op import ERRORS, OUT
from penstock.stages.rows.batch import RowBatch
from penstock.stages.stage import PlainRow, RowStep

if TYPE_CHECKING:
    from penstock.engines.local.tasks.source import SourceTask


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

    def __init__(
        self, task: Task, chain: Sequence[ChainedStep], row_steps: Sequence[RowStep], output: RowOutput
    ) -> None:
        self.chain, self._row_steps, self.output = tuple(chain), tuple(row_steps), output
        self._indexed_steps = tuple(enumerate(step.process for step in row_steps))
        self._task, progress = task, task.progress
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
        """Begin a sequence of rounds, the first of this number, with the task at the frontier."""
        self._context = context
        self.output.begin(context, number, frontier)

    def process(self, row: PlainRow, number: int) -> bool:
        """Process one row, which is all of the round of this number; return what the output returns."""
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
        """Apply the step's `on_error` to a row on which it failed."""
        chained, context = self.chain[at], self._context
        self.failed[at] += 1
        batch = RowBatch.single(row, chained.step.up.schema, context.time, context.order(number))
        dead_letters = self._row_steps[at].on_failure(batch, cause)
        if dead_letters is not None:
            for target in chained.targets.get(ERRORS, ()):
                target(dead_letters)

    def _put_and_report(self, values: PlainRow | None, number: int) -> bool:
        """Do what the output's `put_row` does, and report the end of the round."""
        full = self.output.put_row(values, number)
        for chained in self.chain:
            if chained.listener is not None:
                chained.report_counts(chained.listener, number)
        if isinstance(self.output, SinkStep):
            written = {self.output.step.name: int(values is not None)}
        else:
            written = count_written(self._task.chain)
        self._task.progress.complete_round(self._task, self._context.origin[0], number, written)
        return full

    def _count(self, at: int, accounts: Accounts) -> None:
        """Add what a step has done to its accounts; failed rows are counted there already."""
        n_in = self.n_in - sum(self.dropped[:at]) - sum(self.failed[:at])
        accounts.count_passed(n_in, n_in - self.dropped[at] - self.failed[at])
        accounts.filtered += self.dropped[at]


class BatchOutput(RowOutput):
    """The output of a pipeline whose rows go on as batches of one, to steps or outputs of any kind."""

    def __init__(self, last: ChainedStep, task: Task) -> None:
        self._targets: tuple[Target, ...] = last.targets.get(OUT, ())
        self._schema, self._round_end_steps = last.step.outputs[OUT].schema, tuple(task.round_end_steps)
        self._leaves_task = any(chained.outputs for chained in task.chain)

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """Implement `RowOutput.put_row`; the steps learn of the frontier at the end of the round."""
        context, frontier = self.context, self.frontier
        if values is not None:
            batch = RowBatch.single(values, self._schema, context.time, context.order(number))
            for target in self._targets:
                target(batch)
        for chained in self._round_end_steps:
            frontier = chained.end_round(context.origin[0], number, number, frontier)
        return self._leaves_task


class RowInput:
    """Takes rounds of single rows for a task.

    pipeline  what processes them
    """

    def __init__(self, task: InputTask, pipeline: RowPipeline) -> None:
        self._task, self.pipeline = task, pipeline
        (self._channel,) = task.channels
        self._n_before = self._round_group = 0

    def run(self) -> None:
        """Take rows from the channel, whose first item is one, while the quantum lasts and there is room."""
        task, channel, pipeline = self._task, self._channel, self.pipeline
        items, half, writer, clock = channel.items, channel.capacity / 2, channel.writer, task.now
        full, number, context, deadline = False, items[0][1], RowContext(items[0][4]), task.deadline
        self.begin(context, number, channel.frontier)
        try:
            while not full and items and type(items[0]) is tuple:
                row, number, context.time, context.shift, _, frontier, _ = items.popleft()
                if writer.statistics.state is WRITE_BLOCKED and len(items) <= half:
                    channel.dispatcher.wake(writer, WRITE_BLOCKED)
                if frontier is not channel.frontier:
                    self.advance_frontier(frontier)
                full = pipeline.put_row(None, number) if row is None else pipeline.process(row, number)
                number += 1
                full = full or clock() >= deadline
        finally:
            n_rows, spent_ns = self._end_rounds(number)
            task.statistics.exclude_borrowed(clock(), spent_ns)
            channel.record_taken(n_rows, n_rows)

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> RowPipeline:
        """Begin a sequence of rounds, the first of this number; return the pipeline that takes the rows.

        frontier  of the feeder
        """
        # Invariant: rows come singly from one source only, so all tasks count the same rounds.
        assert self._task.round == number, f"round {number} came to a task in round {self._task.round}"
        self._n_before, self._round_group = self.pipeline.n_in, context.origin[0]
        self.pipeline.begin(context, number, self._task.frontier)
        if frontier is not self._channel.frontier:
            self.advance_frontier(frontier)
        return self.pipeline

    def advance_frontier(self, frontier: Frontier) -> None:
        """Move the feeder's frontier, which the round of the next row reaches."""
        self._channel.frontier = frontier
        self._task.frontier = merge_frontiers((frontier,), self._task.frontier)
        self.pipeline.output.advance_frontier(self._task.frontier)

    def end(self, number: int) -> tuple[int, int]:
        """End a sequence of direct calls before this round.

        Returns the number of rows that came, and the nanoseconds spent on behalf of tasks behind.
        """
        n_rows, spent_ns = self._end_rounds(number)
        self._channel.record_direct(n_rows)
        return n_rows, spent_ns

    def _end_rounds(self, number: int) -> tuple[int, int]:
        if number > self._task.round:
            self._task.skip_to_round(self._round_group, number)
        return self.pipeline.n_in - self._n_before, self.pipeline.output.end(number)


class RowSource:
    """Reads rounds of single rows for a source task.

    While it waits for a row, the timer may run rounds in its place: these are no part of its sequence.
    """

    def __init__(self, task: SourceTask) -> None:
        source, pipeline = task.chain[0], build_pipeline(task, task.chain[0])
        assert pipeline is not None, "rows go from a source in any case"
        source.count_row_path = lambda accounts: accounts.count_passed(pipeline.n_in, pipeline.n_in)
        self._task, self._pipeline, self._progress = task, pipeline, task.progress
        self._reader, self._group = task.reader, task.round_group
        self._context = RowContext((task.round_group, self._reader.rank))
        self._n_before, self._is_open = 0, False

    @property
    def n_rows(self) -> int:
        """Return the number of rows in the sequence so far."""
        return self._pipeline.n_in - self._n_before if self._is_open else 0

    def suspend(self) -> None:
        """End the sequence in place of the thread that waits for its next row."""
        self._end(self._task.round + self.n_rows)

    def _begin(self) -> int:
        """Begin a sequence; return the number of its first round."""
        number = self._task.round
        self._context.shift = self._reader.n_rows - number
        self._pipeline.begin(self._context, number, self._reader.frontier)
        self._n_before, self._is_open = self._pipeline.n_in, True
        return number

    def _end(self, number: int) -> None:
        """End the sequence before this round, unless that was done."""
        if not self._is_open:
            return
        task, reader, self._is_open = self._task, self._reader, False
        n_rounds, task.round = number - task.round, number
        task.statistics.exclude_borrowed(task.now(), self._pipeline.output.end(number))
        reader.n_batches += n_rounds
        reader.n_rows += n_rounds
        self._progress.record_rounds(self._group, number)

    def run(self) -> bool:
        """Run rounds while the quantum lasts and there is room; return False after the last.

        An item that is no single plain row is carried as a batch.
        """
        task, reader, context, process = self._task, self._reader, self._context, self._pipeline.process
        rows, timed = reader.open(), reader.timed
        waiting = reader.live_read
        items = rows if waiting is None else waiting.items
        clock, deadline, progress = task.now, task.deadline, self._progress
        group, observed = self._group, progress.is_observed
        limit, saved = progress.limit(group), progress.checkpoint
        frontier, number = reader.frontier, self._begin()
        try:
            while progress.begin(group, number) if observed else number < limit and not progress.stopping:
                try:
                    if waiting is None:
                        row = next(items, None)
                    else:  # as `WaitingRead` does, without a call
                        waiting.reading = True
                        row = next(items, None)
                        waiting.reading = False
                except Exception as cause:
                    if waiting is not None:
                        waiting.reading = False
                        waiting.wait_turn()
                    raise reader.read_error(cause) from cause
                if waiting is not None and waiting.claimed:
                    waiting.wait_turn()
                if not self._is_open:
                    number, frontier, limit = self._begin(), reader.frontier, progress.limit(group)
                if type(row) is not dict or (saved is not None and number == saved.round):
                    break
                before = frontier
                if timed:
                    time = reader.time_of(row)
                    if time is None:
                        break
                    context.time, frontier = time, reader.frontier
                    if frontier is not before:
                        self._pipeline.output.advance_frontier(frontier)
                if observed:
                    progress.stamp_arrival(group, number)
                    task.report_read(number, 1, before.watermark)
                full = process(row, number)
                number += 1
                if full or clock() >= deadline:
                    return True
            else:
                return False
        finally:
            self._end(number)
        batch = reader.accept(row)
        return task.carry(batch, is_last=batch is None)


def build_row_input(task: Task) -> RowInput | None:
    """Return the row path of a task, if it reads one channel of data and its first step takes rows."""
    if not isinstance(task, InputTask) or len(task.channels) != 1 or not task.data:
        return None
    pipeline = build_pipeline(task)
    return None if pipeline is None else RowInput(task, pipeline)


def build_pipeline(task: Task, source: ChainedStep | None = None) -> RowPipeline | None:
    """Return the pipeline of a task, behind its source if it has one; None if the first step takes no rows.

    It has the first steps, as long as all rows go to the next one and it takes single rows. From the last of
    them rows go directly to the only sink or channel, else as batches.
    """
    steps = task.chain if source is None else task.chain[1:]
    targets = (steps[0].feed,) if source is None else source.targets.get(OUT, ())
    last, leading, row_steps = source, list[ChainedStep](), list[RowStep]()
    for chained in steps:
        row_step = chained.row_step()
        if row_step is None or targets != (chained.feed,):
            break
        leading.append(chained)
        row_steps.append(row_step)
        last, targets = chained, chained.targets.get(OUT, ())
    rest = steps[len(leading) :]
    outputs = [output for chained in task.chain for output in chained.outputs]
    if not outputs and len(rest) == 1 and isinstance(rest[0], SinkStep) and targets == (rest[0].feed,):
        return RowPipeline(task, leading, row_steps, rest[0])
    if last is None:
        return None
    if not rest and len(outputs) == 1 and targets == (outputs[0].send,):
        (output,) = outputs
        if output.begin_rows(last.step.outputs[OUT].schema):
            reader = output.channels[0].reader
            reader.row_input = build_row_input(reader)
            return RowPipeline(task, leading, row_steps, DirectCall(output))
    return RowPipeline(task, leading, row_steps, BatchOutput(last, task))
