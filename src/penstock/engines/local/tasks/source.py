"""Tasks that read: a reader's batches, round after round, with the steps that are chained to it.

A reader may wait for rows, in a thread of the task's own. Then the timer (`timer.py`) acts in its place: it
runs the rounds that the clock asks for, with the rows that have waited long enough, and ends the task when
the run is to stop.

A source that has ended stays while others read on, unless it has closed everything behind it: the run may yet
be stopped with all windows closed, and then it takes part in that.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from penstock.connect.batching import SourceRowBatch
from penstock.connect.protocol import SourceBatch
from penstock.crash_points import READ, pass_crash_point
from penstock.engines.ends import SourceReader
from penstock.engines.local.metrics.statistics import READ_BLOCKED, READY, WRITE_BLOCKED
from penstock.engines.local.progress import Progress
from penstock.engines.local.row_path import RowSource
from penstock.engines.local.tasks.chain import ChainedStep
from penstock.engines.local.tasks.task import Task, TaskRoutine

if TYPE_CHECKING:
    from penstock.clock import HeldClock
    from penstock.engines.deadlines import Deadlines
    from penstock.engines.local.direct_call import InlineTasks

OTHERS_US = 100_000
"""How long the rows of other sources of a round wait for those of a silent one, where it does not say."""


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
    deadlines    when the clock asks for a round, if the reader may wait
    held_clock   the clock of the reader, where rounds are recorded to be repeated after a crash
    inline       runs the tasks behind it in its own thread, if it has one
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
        self._row_source: RowSource | None = None
        self.deadlines: Deadlines | None = None
        self.held_clock: HeldClock | None = None
        self.inline: InlineTasks | None = None
        self._ends_at: float = math.inf  # the round in which the source ended in an earlier run
        self._n_seen, self._first_seen = 0, -1
        self._looked_at, self._waits_since, self._behind_since = progress.clock.now(), 0, 0
        self._is_behind = self._stays = False

    def routine(self) -> TaskRoutine:
        """Run round after round, while the run lets it and there is input."""
        reader, pushed, row_source = self.reader, self._pushed, None
        in_rows = self.held_clock is None and self._ends_at == math.inf
        if (
            pushed is None
            and reader.gives_rows
            and in_rows
            and self.progress.is_only_source(self.round_group)
        ):
            row_source = self._row_source = RowSource(self)
        while True:
            if not self.has_room():
                yield from self.wait_for_room()
            if self.round >= self._ends_at:
                self.carry(None, is_last=True)
                return
            if row_source is not None:
                goes_on = row_source.run()
            elif pushed is not None and not pushed.ready():
                yield READ_BLOCKED
                continue
            elif goes_on := self.progress.begin(self.round_group, self.round):
                if self.held_clock is not None and self._is_repeated(took=False):
                    self.progress.add_empty_round(self.round_group)
                    self.carry(None, is_last=False)
                elif pushed is None:
                    batch = reader.next()
                    if self.inline is not None and isinstance(batch, SourceRowBatch):
                        goes_on = self.inline.carry(
                            self.statistics, partial(self.carry, batch, is_last=False)
                        )
                    else:
                        goes_on = self.carry(batch, is_last=batch is None)
                elif pushed.batches:
                    goes_on = self.carry(pushed.batches.popleft(), is_last=False)
                else:
                    goes_on = self.carry(None, is_last=True)
            if not goes_on:
                if self.progress.is_draining and not reader.ended:
                    self._finish()
                elif reader.ended and not reader.frontier.over and self._may_stay():
                    yield from self._stay()
                return
            if self.now() >= self.deadline:
                yield READY

    def _finish(self) -> None:
        """End the source, because the run drains: with what is there, if it has an end wherever it is."""
        for batch in self.reader.finish():
            self.progress.begin(self.round_group, self.round, is_rest=True)
            self.carry(batch, is_last=False)
            if self.round >= self._ends_at:
                break
        self.carry(None, is_last=True)

    def _may_stay(self) -> bool:
        """Return whether it can wait without a round: a rescale would wait for its next one."""
        return self._pushed is None and (self.progress.in_rounds or self.progress.rescaler is None)

    def _stay(self) -> TaskRoutine:
        """Have rounds without rows while other sources go on; close everything if the run is to do so."""
        progress, self._stays = self.progress, True
        progress.end_source(stays=self)
        while True:
            if not self.has_room():
                yield from self.wait_for_room()
            if self.round >= self._ends_at:
                self.carry(None, is_last=True)
                return
            if self._is_behind_others() and (progress.n_reading or self._ends_at < math.inf):
                self.end_round(self.round_group, self.round, self.reader.frontier)
            elif progress.is_draining:
                self.carry(None, is_last=True)
                return
            elif progress.stopping or not progress.n_reading:
                return
            else:
                yield READ_BLOCKED
                continue
            if self.now() >= self.deadline:
                yield READY

    def _is_behind_others(self) -> bool:
        """Return whether another source of its round group has begun the round."""
        return self.round < self.progress.n_begun(self.round_group)

    def can_run(self) -> bool:
        """Implement `Task.can_run`: there is room to write, or something to read."""
        progress = self.progress
        if self.statistics.state is WRITE_BLOCKED:
            return self.has_room()
        if self._stays:
            return progress.stopping or not progress.n_reading or self._is_behind_others()
        return self._pushed is None or self._pushed.ready()

    def end_at(self, number: int) -> None:
        """Let the source end in a round, and all windows with it, as it did in an earlier run."""
        self._ends_at, self.progress.drain = number, True

    def _is_repeated(self, *, took: bool) -> bool:
        """Return whether an earlier run had this round, with a batch or without one."""
        checkpoint = self.progress.checkpoint
        if checkpoint is None or self.held_clock is None:
            return False
        record = checkpoint.records.find(self.reader.step.name, self.round)
        return record is not None and record.took == took

    def carry(self, batch: SourceBatch | None, *, is_last: bool) -> bool:
        """Run one round of a batch, or of none; return whether there may be another."""
        progress, reader, n_rows = self.progress, self.reader, 0
        if self.held_clock is not None and progress.checkpoint is not None and not is_last:
            progress.checkpoint.hold_clock(self.held_clock, reader, self.round, took=batch is not None)
        if progress.is_observed:
            progress.stamp_arrival(self.round_group, self.round)
        before = reader.frontier.watermark
        if batch is not None:
            n_rows = batch.num_rows + len(batch.bad)
            self.chain[0].emit(reader.rows(batch))
        if reader.follows_clock:
            reader.follow_clock()
        if is_last:
            # A later run may go on here, so the source still holds back; or it ended later in an earlier run.
            if not progress.drain or self.round < self._ends_at < math.inf:
                return False
            if progress.checkpoint is not None:
                by_itself = reader.ended and not self._stays
                is_stopped = progress.is_draining and not by_itself
                progress.checkpoint.record_end(reader, self.round, all_sources=is_stopped)
            reader.end()
        self.report_read(self.round, None if is_last else n_rows, before)
        self.end_round(self.round_group, self.round, reader.frontier)
        if self.held_clock is not None:
            self.held_clock.us = None
        return not is_last

    def complete(self, *, failed: bool) -> None:
        """Implement `Task.complete`: other sources may wait for its end."""
        super().complete(failed=failed)
        if not self._stays:
            self.progress.end_source()

    def report_read(self, number: int, n_rows: int | None, before: float) -> None:
        """Report that the rows of a round were read; `before` is the watermark before them."""
        progress, name = self.progress, self.reader.step.name
        if progress.checkpoint is not None:
            pass_crash_point(READ)
        after = self.reader.frontier.watermark
        progress.record_read(self.round_group, number, name, n_rows, after)
        if progress.has_listener:
            progress.report_watermark(name, before, after)

    def next_look(self) -> int | None:
        """Return when the clock or a row that waits will ask for a round; None if that is not known."""
        moments = [None if self.deadlines is None else self.deadlines.next]
        if self._first_seen >= 0 and self.reader.wait_us is not None:
            moments.append(self._waits_since + self.reader.wait_us)
        if self._is_behind:
            moments.append(self._behind_since + (self.reader.wait_us or OTHERS_US))
        return min((at for at in moments if at is not None), default=None)

    def is_due(self, now: int) -> bool:
        """Return whether a round is to be run in place of the thread that waits, as far as can be seen."""
        reader, read, looked_at = self.reader, self.reader.live_read, self._looked_at
        self._looked_at = now
        if read is None or not read.reading:
            return False
        n_open = 0 if self._row_source is None else self._row_source.n_rows
        n_rows = reader.n_rows + n_open
        if n_rows != self._n_seen and self.deadlines is not None:
            self._n_seen = n_rows
            self.deadlines.end_round(reader.last_rows_at, (reader.step.name,))
        # The first row that waits came after the last look, or was seen then. A clock may be set back.
        first = read.first_number
        if first is None:
            self._first_seen = -1
        elif first != self._first_seen:
            self._first_seen, self._waits_since = first, looked_at
        self._waits_since = min(self._waits_since, now)
        # Others have ended the round that this source is in.
        is_behind = self.progress.n_begun(self.round_group) > self.round + n_open + 1
        if is_behind and not self._is_behind:
            self._behind_since = now
        self._is_behind = is_behind
        at = self.next_look()
        return at is not None and at <= now and not self.must_read

    @property
    def must_read(self) -> bool:
        """Return whether the round is to have a batch of the reader, as it had in an earlier run."""
        return self._is_repeated(took=True)

    def act(self, now: int) -> bool:
        """Run the rounds that are due, in place of the thread that waits; return False if the task must end.

        The caller has claimed the read.
        """
        progress, reader, group = self.progress, self.reader, self.round_group
        read = reader.live_read
        assert read is not None, "only a read that waits is claimed"
        if self._row_source is not None:
            self._row_source.suspend()
        while self.round < self._ends_at and not self.must_read and progress.begin(group, self.round):
            batch = reader.accept(batch) if (batch := read.take()) is not None else None
            if batch is None:
                progress.add_empty_round(group)
            self.carry(batch, is_last=False)
            if self.deadlines is not None:
                with_rows = () if batch is None else (reader.step.name,)
                self.deadlines.end_round(now, with_rows)
            self._first_seen = -1
            if progress.n_begun(group) <= self.round:
                return progress.begin(group, self.round)
        return self.must_read or self.round >= self._ends_at

    def leave(self) -> None:
        """End the task in place of the thread that waits, with the rows that have come so far."""
        progress, reader = self.progress, self.reader
        read = reader.live_read
        assert read is not None, "only a read that waits is claimed"
        if self._row_source is not None:
            self._row_source.suspend()
        is_alone = progress.is_only_source(self.round_group)
        while progress.begin(self.round_group, self.round):
            batch = reader.accept(batch) if (batch := read.take()) is not None else None
            if batch is None and is_alone:
                break  # nobody else has begun the round
            self.carry(batch, is_last=False)
        if progress.is_draining:
            self.carry(None, is_last=True)
