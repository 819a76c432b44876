"""Nodes that read: a reader's batches, round after round, with the steps that are fused behind it."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from penstock.accounts import Accounts
from penstock.connect.protocol import SourceBatch
from penstock.connect.row_batch import RowBatch
from penstock.crash_points import READ, pass_crash_point
from penstock.engines.frontiers import Frontier
from penstock.engines.local.fast_rows.context import RowContext
from penstock.engines.local.fast_rows.pipeline import RowPipeline, build_source_pipeline
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep, link_stateless_steps
from penstock.engines.local.tasks.operator import count_written
from penstock.engines.local.tasks.task import Task, TaskRoutine
from penstock.engines.sources import SourceReader
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch


class SourceInput(Protocol):
    """Where a source's batches come from.

    over  whether the last call of `next` found that there are no more
    """

    over: bool

    def ready(self) -> bool:
        """Whether a round can be had now."""

    def next(self) -> SourceBatch | None:
        """The batch of the next round; None in a round without one, and at the end."""


class ReaderInput:
    """The reader's batches, as fast as they are taken."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader, self.over = reader, False

    def ready(self) -> bool:
        """Always: a reader that has nothing yet is waited for."""
        return True

    def next(self) -> SourceBatch | None:
        """The reader's next batch."""
        batch: SourceBatch | None = self._reader.next()
        self.over = batch is None
        return batch


class PushedInput:
    """Batches that somebody pushes, for test harnesses; None is a round without a batch."""

    def __init__(self) -> None:
        self.pushed: deque[SourceBatch | None] = deque()
        self.ended = self.over = False

    def ready(self) -> bool:
        """Something was pushed, or all was."""
        return bool(self.pushed) or self.ended

    def next(self) -> SourceBatch | None:
        """What was pushed first."""
        self.over = not self.pushed
        return self.pushed.popleft() if self.pushed else None


class SourceStep(ChainedStep):
    """The source itself: rows with time and place."""

    def __init__(self, step: Step, reader: SourceReader, accounts: Accounts) -> None:
        super().__init__(step)
        self.reader, self.accounts = reader, accounts

    def feed(self, batch: Batch) -> None:
        """Nothing flows into a source."""
        raise AssertionError("sources are read, not fed")

    @property
    def needs_round_end(self) -> bool:
        """Only if somebody else must be told: the node knows what the source has come to."""
        return self.tells

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """What the source has come to."""
        return frontier


class SourceTask(Task):
    """One source.

    round_group   the sources that go in rounds together have one
    drain  at the end of the input everything is let go
    """

    def __init__(
        self,
        number: int,
        steps: tuple[Step, ...],
        chain: list[ChainedStep],
        feed: SourceInput,
        progress: Progress,
        *,
        round_group: int,
        drain: bool,
    ) -> None:
        super().__init__(number, steps, 0)
        assert isinstance(chain[0], SourceStep), "a source is at the head of its node"
        self.source, self.chain = chain[0], chain
        self._feed, self.progress, self.round_group, self._drain = feed, progress, round_group, drain
        self._round_end_steps = chain
        self._line: RowPipeline | None = None
        self._context = RowContext((round_group, self.source.reader.rank))
        self._singly = True  # the last batch was a row by itself, so the next may be
        self.round = progress.first

    def connected(self) -> None:
        """Seats that the end of a round means nothing to are passed over."""
        self._round_end_steps = [chained for chained in self.chain if chained.needs_round_end]
        link_stateless_steps(self.chain)
        if isinstance(self._feed, ReaderInput) and not self.progress.is_observed:
            self._line = build_source_pipeline(self.source, self.chain[1:], self._round_end_steps)

    def routine(self) -> TaskRoutine:
        """Round after round, while the run lets it and there is input."""
        line = self._line if self.progress.is_only_source(self.round_group) else None
        while True:
            yield from self.wait_for_room()
            if line is not None and self._singly:
                goes_on = self._by_row(line)
            elif self._feed.ready():
                goes_on = self.progress.begin(self.round_group, self.round) and self._carry(self._feed.next())
            else:
                yield READ_BLOCKED
                continue
            if not goes_on:
                return
            if self.now() >= self.deadline:
                yield READY

    def can_run(self) -> bool:
        """Room to write, or something to read."""
        return self.has_room() if self.statistics.state is WRITE_BLOCKED else self._feed.ready()

    def _by_row(self, line: RowPipeline) -> bool:
        """Rounds of single plain rows, as long as the turn lasts and there is room; False after the last.

        A batch that is something else is carried as any batch is.
        """
        reader, progress, context, number = self.source.reader, self.progress, self._context, self.round
        rows, timed, frontier, carry = reader.open(), reader.timed, reader.frontier, line.carry
        limit, clock, deadline = progress.limit(self.round_group), self.now, self.deadline
        context.shift = reader.n_rows - number
        line.begin(context, number, frontier)
        try:
            while number < limit and not progress.stopping:
                try:
                    row = next(rows, None)
                except Exception as cause:
                    raise reader.read_error(cause) from cause
                if type(row) is not dict:
                    break
                if timed:
                    time = reader.time_of(row)
                    if time is None:
                        break
                    context.time, before, frontier = time, frontier, reader.frontier
                    if frontier is not before:
                        line.tail.moved(frontier)
                full = carry(row, number)
                number += 1
                if full or clock() >= deadline:
                    return True
            else:
                return False
        finally:
            n_rounds, self.round = number - self.round, number
            self.statistics.exclude_borrowed(clock(), line.end(number))
            reader.count_row_batches(n_rounds)
            progress.record_rounds(self.round_group, number)
        batch = reader.accept(row)
        self._feed.over = batch is None
        return self._carry(batch)

    def _carry(self, batch: SourceBatch | None) -> bool:
        """One round; False when it was the last."""
        self._singly = type(batch) is RowBatch and len(batch.plain) == 1
        if self.progress.latencies is not None:
            self.progress.stamp_arrival(self.round_group, self.round)
        reader, n_rows = self.source.reader, 0
        before = reader.frontier.watermark
        if batch is not None:
            n_rows = batch.num_rows + len(batch.bad)
            self.source.give(reader.rows(batch))
        if self._feed.over:
            if not self._drain:  # a later run may go on here, so the source still holds back
                return False
            reader.end()
        if self.progress.checkpoint is not None:
            pass_crash_point(READ)
        self.progress.record_read(
            self.round_group, self.round, reader.step.name, None if self._feed.over else n_rows
        )
        self._end_round(before)
        return not self._feed.over

    def _end_round(self, before: float) -> None:
        frontier = self.source.reader.frontier
        self.progress.report_watermark(self.source.step.name, before, frontier.watermark)
        for chained in self._round_end_steps:
            frontier = chained.end_round(self.round_group, self.round, self.round, frontier)
        self.round += 1
        if self.progress.is_observed:
            self.progress.complete_round(self, self.round_group, self.round - 1, count_written(self.chain))

    def complete(self, *, failed: bool) -> None:
        """Close what is written."""
        self.progress.end_task(self, failed=failed)
        for chained in self.chain:
            chained.close(broken=failed)
