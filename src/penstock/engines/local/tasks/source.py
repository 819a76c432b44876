"""Tasks that read: a reader's batches, round after round, with the steps that are chained to it."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from penstock.accounts import Accounts
from penstock.connect.protocol import SourceBatch
from penstock.crash_points import READ, pass_crash_point
from penstock.engines.ends import SourceReader
from penstock.engines.frontiers import Frontier
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import ChainedStep, count_written, find_round_end_steps
from penstock.engines.local.tasks.task import Task, TaskRoutine
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch


class SourceInput(Protocol):
    """Where a source's batches come from.

    over  whether the last call of `next` found that there are no more
    """

    over: bool

    def ready(self) -> bool:
        """Returns whether a round can be had now."""

    def next(self) -> SourceBatch | None:
        """Returns the batch of the next round; None in a round without one, and at the end."""


class ReaderInput:
    """The reader's batches, as fast as they are taken."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader, self.over = reader, False

    def ready(self) -> bool:
        """Returns True: a reader that has nothing yet is waited for."""
        return True

    def next(self) -> SourceBatch | None:
        """Returns the reader's next batch."""
        batch: SourceBatch | None = self._reader.next()
        self.over = batch is None
        return batch


class PushedInput:
    """Batches that a harness pushes; None is a round without a batch."""

    def __init__(self) -> None:
        self.pushed: deque[SourceBatch | None] = deque()
        self.ended = self.over = False

    def ready(self) -> bool:
        """Returns whether something was pushed, or all was."""
        return bool(self.pushed) or self.ended

    def next(self) -> SourceBatch | None:
        """Returns what was pushed first."""
        self.over = not self.pushed
        return self.pushed.popleft() if self.pushed else None


class SourceStep(ChainedStep):
    """The source itself: rows with time and place; its task knows its frontier."""

    is_stateless = True

    def __init__(self, step: Step, reader: SourceReader, accounts: Accounts) -> None:
        super().__init__(step)
        self.reader, self.accounts = reader, accounts

    def feed(self, batch: Batch) -> None:
        """Refuses rows: nothing flows into a source."""
        raise AssertionError("sources are read, not fed")

    def advance(self, number: int, frontier: Frontier) -> Frontier:
        """Returns the frontier of the source."""
        return frontier


class SourceTask(Task):
    """One source.

    round_group      the sources that go in rounds together have one
    drain            whether everything is emitted at the end of the input
    round_end_steps  the steps to which the end of a round means something
    """

    def __init__(
        self,
        number: int,
        steps: tuple[Step, ...],
        chain: list[ChainedStep],
        source_input: SourceInput,
        progress: Progress,
        *,
        round_group: int,
        drain: bool,
    ) -> None:
        super().__init__(number, steps, 0)
        assert isinstance(chain[0], SourceStep), "a source is at the head of its task"
        self.source, self.chain = chain[0], chain
        self._input, self.progress, self.round_group, self._drain = source_input, progress, round_group, drain
        self.round_end_steps = chain
        self.round = progress.first

    def on_connected(self) -> None:
        """Implements `Task.on_connected`."""
        self.round_end_steps = find_round_end_steps(self.chain)

    def routine(self) -> TaskRoutine:
        """Runs round after round, while the run lets it and there is input."""
        row_source = None
        if self.takes_rows():
            from penstock.engines.local.row_path import build_row_source

            row_source = build_row_source(self)
        while True:
            yield from self.wait_for_room()
            if row_source is not None:
                goes_on = row_source.run()
            elif not self._input.ready():
                yield READ_BLOCKED
                continue
            elif goes_on := self.progress.begin(self.round_group, self.round):
                batch = self._input.next()
                goes_on = self.carry(batch, is_last=self._input.over)
            if not goes_on:
                return
            if self.now() >= self.deadline:
                yield READY

    def takes_rows(self) -> bool:
        """Returns whether the reader gives single rows, and no other source shares its rounds."""
        is_read = isinstance(self._input, ReaderInput) and self.source.reader.gives_rows
        return is_read and self.progress.is_only_source(self.round_group)

    def can_run(self) -> bool:
        """Implements `Task.can_run`: there is room to write, or something to read."""
        return self.has_room() if self.statistics.state is WRITE_BLOCKED else self._input.ready()

    def carry(self, batch: SourceBatch | None, *, is_last: bool) -> bool:
        """Runs one round of a batch, or of none; returns whether there may be another."""
        self.progress.stamp_arrival(self.round_group, self.round)
        reader, n_rows = self.source.reader, 0
        before = reader.frontier.watermark
        if batch is not None:
            n_rows = batch.num_rows + len(batch.bad)
            self.source.emit(reader.rows(batch))
        if is_last:
            if not self._drain:  # a later run may go on here, so the source still holds back
                return False
            reader.end()
        if self.progress.checkpoint is not None:
            pass_crash_point(READ)
        name = self.source.step.name
        self.progress.record_read(self.round_group, self.round, name, None if is_last else n_rows)
        frontier = reader.frontier
        if self.progress.has_listener:
            self.progress.report_watermark(name, before, frontier.watermark)
        for chained in self.round_end_steps:
            frontier = chained.end_round(self.round_group, self.round, self.round, frontier)
        self.round += 1
        if self.progress.is_observed:
            self.progress.complete_round(self, self.round_group, self.round - 1, count_written(self.chain))
        return not is_last

    def complete(self, *, failed: bool) -> None:
        """Implements `Task.complete`."""
        self.progress.end_task(self, failed=failed)
        for chained in self.chain:
            chained.close(broken=failed)
