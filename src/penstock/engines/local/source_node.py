"""Nodes that read: a reader's batches, round after round, with the steps that are fused behind it."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from penstock.connect.protocol import SourceBatch
from penstock.engines import crash_points
from penstock.engines.local.node import Node, Turns
from penstock.engines.local.progress import Progress
from penstock.engines.local.seats import Seat
from penstock.engines.local.stage_nodes import written
from penstock.engines.local.statistics import READ_BLOCKED, READY, WRITE_BLOCKED
from penstock.engines.marks import Mark
from penstock.engines.reading import Reading
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step
from penstock.stages.batch import Batch


class Feed(Protocol):
    """Where a source's batches come from.

    over  whether the last call of `next` found that there are no more
    """

    over: bool

    def ready(self) -> bool:
        """Whether a round can be had now."""

    def next(self) -> SourceBatch | None:
        """The batch of the next round; None in a round without one, and at the end."""


class ByReader:
    """The reader's batches, as fast as they are taken."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self.over = reading, False

    def ready(self) -> bool:
        """Always: a reader that has nothing yet is waited for."""
        return True

    def next(self) -> SourceBatch | None:
        """The reader's next batch."""
        batch: SourceBatch | None = self._reading.next()
        self.over = batch is None
        return batch


class ByHand:
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


class SourceSeat(Seat):
    """The source itself: rows with time and place."""

    def __init__(self, step: Step, reading: Reading, accounts: Accounts) -> None:
        super().__init__(step)
        self.reading, self.accounts = reading, accounts

    def feed(self, batch: Batch) -> None:
        """Nothing flows into a source."""
        raise AssertionError("sources are read, not fed")

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """What the source has come to."""
        return mark


class SourceNode(Node):
    """One source.

    pace   the sources that go in rounds together have one
    drain  at the end of the input everything is let go
    """

    def __init__(
        self,
        number: int,
        steps: tuple[Step, ...],
        seats: list[Seat],
        feed: Feed,
        progress: Progress,
        *,
        pace: int,
        drain: bool,
    ) -> None:
        super().__init__(number, steps, 0)
        assert isinstance(seats[0], SourceSeat), "a source is at the head of its node"
        self.source, self.seats = seats[0], seats
        self._feed, self.progress, self.pace, self._drain = feed, progress, pace, drain
        self._hearing = seats
        self.round = progress.first

    def connected(self) -> None:
        """Seats that the end of a round means nothing to are passed over."""
        self._hearing = [seat for seat in self.seats if seat.hears]

    def routine(self) -> Turns:
        """Round after round, while the run lets it and there is input."""
        while True:
            yield from self.wait_for_room()
            if not self._feed.ready():
                yield READ_BLOCKED
                continue
            if not self.progress.begin(self.pace, self.round) or not self._read():
                return
            if self.now() >= self.deadline:
                yield READY

    def can_go(self) -> bool:
        """Room to write, or something to read."""
        return self.has_room() if self.statistics.state is WRITE_BLOCKED else self._feed.ready()

    def _read(self) -> bool:
        """One round; False when it was the last."""
        reading, n_rows = self.source.reading, 0
        before = reading.mark.watermark
        batch = self._feed.next()
        if batch is not None:
            n_rows = batch.num_rows + len(batch.bad)
            self.source.give(reading.rows(batch))
        if self._feed.over:
            if not self._drain:  # a later run may go on here, so the source still holds back
                return False
            reading.end()
        if self.progress.saving is not None:
            crash_points.reached(crash_points.READ)
        self.progress.was_read(self.pace, self.round, reading.step.name, None if self._feed.over else n_rows)
        self._end_round(before)
        return not self._feed.over

    def _end_round(self, before: float) -> None:
        mark = self.source.reading.mark
        self.progress.moved(self.source.step.name, before, mark.watermark)
        for seat in self._hearing:
            mark = seat.end_round(self.pace, self.round, self.round, mark)
        self.round += 1
        if self.progress.watched:
            self.progress.passed(self, self.pace, self.round - 1, written(self.seats))

    def complete(self, *, failed: bool) -> None:
        """Close what is written."""
        self.progress.completed(self, failed=failed)
        for seat in self.seats:
            seat.close(broken=failed)
