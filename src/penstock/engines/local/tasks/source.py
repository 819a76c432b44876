"""Tasks that read: a reader's batches, round after round, with the steps that are chained to it."""

from __future__ import annotations

from collections import deque

from penstock.connect.protocol import SourceBatch
from penstock.crash_points import READ, pass_crash_point
from penstock.engines.ends import SourceReader
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED
from penstock.engines.local.progress import Progress
from penstock.engines.local.row_path import RowSource
from penstock.engines.local.tasks.chain import ChainedStep
from penstock.engines.local.tasks.task import Task, TaskRoutine


class PushedInput:
    """Batches that a harness pushes; None is a round without a batch.

    ended  whether no more will be pushed
    """

    def __init__(self) -> None:
        self.batches: deque[SourceBatch | None] = deque()
        self.ended = False

    def ready(self) -> bool:
        """Return whether something was pushed, or all was."""
        return bool(self.batches) or self.ended


class SourceTask(Task):
    """One source, which is the first step of the chain.

    pushed       its batches, if a harness pushes them; else the reader is waited for
    round_group  the sources that go in rounds together have one
    """

    def __init__(
        self,
        number: int,
        chain: list[ChainedStep],
        progress: Progress,
        reader: SourceReader,
        pushed: PushedInput | None,
        round_group: int,
    ) -> None:
        super().__init__(number, 0, chain, progress)
        self.reader, self._pushed, self.round_group = reader, pushed, round_group

    def routine(self) -> TaskRoutine:
        """Run round after round, while the run lets it and there is input."""
        reader, pushed, row_source = self.reader, self._pushed, None
        if pushed is None and reader.gives_rows and self.progress.is_only_source(self.round_group):
            row_source = RowSource(self)
        while True:
            if not self.has_room():
                yield from self.wait_for_room()
            if row_source is not None:
                goes_on = row_source.run()
            elif pushed is not None and not pushed.ready():
                yield READ_BLOCKED
                continue
            elif goes_on := self.progress.begin(self.round_group, self.round):
                if pushed is None:
                    batch = reader.next()
                    goes_on = self.carry(batch, is_last=batch is None)
                elif pushed.batches:
                    goes_on = self.carry(pushed.batches.popleft(), is_last=False)
                else:
                    goes_on = self.carry(None, is_last=True)
            if not goes_on:
                return
            if self.now() >= self.deadline:
                yield READY

    def can_run(self) -> bool:
        """Implement `Task.can_run`: there is room to write, or something to read."""
        if self.statistics.state is WRITE_BLOCKED:
            return self.has_room()
        return self._pushed is None or self._pushed.ready()

    def carry(self, batch: SourceBatch | None, *, is_last: bool) -> bool:
        """Run one round of a batch, or of none; return whether there may be another."""
        progress, reader, n_rows = self.progress, self.reader, 0
        if progress.is_observed:
            progress.stamp_arrival(self.round_group, self.round)
        before = reader.frontier.watermark
        if batch is not None:
            n_rows = batch.num_rows + len(batch.bad)
            self.chain[0].emit(reader.rows(batch))
        if is_last:
            if not progress.drain:  # a later run may go on here, so the source still holds back
                return False
            reader.end()
        self.report_read(self.round, None if is_last else n_rows, before)
        self.end_round(self.round_group, self.round, reader.frontier)
        return not is_last

    def report_read(self, number: int, n_rows: int | None, before: float) -> None:
        """Report that the rows of a round were read; `before` is the watermark before them."""
        progress, name = self.progress, self.reader.step.name
        if progress.checkpoint is not None:
            pass_crash_point(READ)
        progress.record_read(self.round_group, number, name, n_rows)
        if progress.has_listener:
            progress.report_watermark(name, before, self.reader.frontier.watermark)
