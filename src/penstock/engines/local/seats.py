"""Seats: the steps of one node, in a line; rows pass from one to the next by a direct call.

A seat knows where the rows on each of its ports go (`targets`): to the next seat, to an outlet, or into a
collection. Without rounds rows are worked on as they come; with rounds they wait in their seat, and the rows
of a round are one batch, whichever way they came, so that functions of batches see the same on every engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engines.local.channel import Rescaled, Word
from penstock.engines.local.outlets import Outlet
from penstock.engines.local.progress import Progress
from penstock.engines.marks import Mark
from penstock.operators.op import OUT
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step
from penstock.stages.batch import Batch
from penstock.stages.protocol import Stage
from penstock.stages.row_places import merged

if TYPE_CHECKING:
    from penstock.stages.by_row import ByRow

Target = Callable[[Batch], None]
Out = Iterable[tuple[str, Batch]]


def nowhere(batch: Batch) -> None:
    """Where rows go that nobody reads."""


def count(accounts: Accounts, n_in: int, n_out: int) -> None:
    """Rows that came in, and those of them that passed and left."""
    accounts.rows_in += n_in
    accounts.passed += n_out
    accounts.rows_out += n_out


class Seat(ABC):
    """One step at its place in a node."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.targets: dict[str, tuple[Target, ...]] = {}
        self.outlets: list[Outlet] = []
        self.accounts = Accounts()
        self.told: Progress | None = None
        self.tally: Callable[[Accounts], None] | None = None
        self._late = self._errors = 0

    def connected(self) -> None:
        """All targets are known."""
        return

    def by_row(self) -> ByRow | None:
        """What is made of a single plain row, if the seat takes rows by themselves (`line.py`)."""
        return None

    def counted(self) -> Accounts:
        """What became of the rows, also of those that a line counts (`tally`)."""
        if self.tally is None:
            return self.accounts
        found = replace(self.accounts)
        self.tally(found)
        return found

    @property
    def hears(self) -> bool:
        """Whether the end of a round means anything here."""
        return True

    @property
    def tells(self) -> bool:
        """Whether somebody else must be told of it."""
        return bool(self.outlets) or self.told is not None

    @abstractmethod
    def feed(self, batch: Batch) -> None:
        """Rows come in."""

    @abstractmethod
    def pass_on(self, number: int, mark: Mark) -> Mark:
        """A round has ended before this seat, and the input has come to the mark; gives what it passes on."""

    def end_round(self, pace: int, number: int, turn: int, mark: Mark) -> Mark:
        """The same, and tells those that read the outlets.

        number  the round of its pace
        turn    the round as this node counts, under which sinks commit
        """
        mark = self.pass_on(turn, mark)
        for outlet in self.outlets:
            outlet.end_round(pace, number, mark)
        if self.told is not None:
            self.told.counted(self.step, self.accounts, self._late, self._errors, number)
            self._late, self._errors = self.accounts.late, self.accounts.errors
        return mark

    def ticket(self, ticket: int | Rescaled | Word) -> None:
        """A numbered batch has been worked on, or the number of replicas has changed."""
        for outlet in self.outlets:
            outlet.ticket(ticket)

    def close(self, *, broken: bool) -> None:
        """Nothing more will come; `broken` if some of the round at hand is missing."""
        for outlet in self.outlets:
            outlet.close(broken=broken)

    def give(self, made: Out) -> None:
        """Rows out, to whoever reads their port."""
        for port, rows in made:
            for target in self.targets.get(port, ()):
                target(rows)


class StageSeat(Seat):
    """A stage, fed as rows come.

    held_back  how far results come behind the input's watermark
    """

    def __init__(self, step: Step, stage: Stage, accounts: Accounts, held_back: int) -> None:
        super().__init__(step)
        self.stage, self.accounts, self._held_back = stage, accounts, held_back
        self._on_batch = stage.on_batch
        self._few_rows: Callable[[Batch], Batch | None] | None = getattr(stage, "few_rows", None)
        self.mark = self._passed_on = Mark()

    def by_row(self) -> ByRow | None:
        """What the stage makes of it, if it can do so with any."""
        found: Callable[[], ByRow | None] | None = getattr(self.stage, "by_row", None)
        return None if found is None else found()

    def feed(self, batch: Batch) -> None:
        """Work on the rows, judged by the watermark before the round."""
        made = None if self._few_rows is None else self._few_rows(batch)
        if made is not None:
            self.give(((OUT, made),) if made.num_rows else ())
            return
        for port, rows in self._on_batch(batch, self.mark.watermark):
            for target in self.targets.get(port, ()):
                target(rows)

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """Let go what the watermark has passed; marks never go back."""
        if self._few_rows is not None and mark == self.mark and not mark.over:
            return self._passed_on  # state of keys does not look at the clock
        before = self.mark.watermark
        reached = before if mark.idle else max(before, mark.watermark)
        self.mark = Mark(reached, mark.idle, mark.over)
        self.give(self.stage.drain() if mark.over else self.stage.on_watermark(reached))
        self._passed_on = Mark(reached - self._held_back, mark.idle, mark.over)
        return self._passed_on


class RoundSeat(StageSeat):
    """A stage, fed with all rows of a round at its end.

    flush  gives away what the stage would otherwise have to save; None where it saves what it has
    """

    def __init__(
        self, step: Step, stage: Stage, accounts: Accounts, held_back: int, schema: pa.Schema
    ) -> None:
        super().__init__(step, stage, accounts, held_back)
        self._schema = schema
        self._waiting: list[Batch] = []
        self.flush: Callable[[], Out] | None = None

    def by_row(self) -> ByRow | None:
        """Rows wait for the others of their round."""
        return None

    def feed(self, batch: Batch) -> None:
        """Rows wait for the end of the round."""
        self._waiting.append(batch)

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """All rows as one batch, then the watermark."""
        batches, self._waiting = self._waiting, []
        if batches:
            whole = batches[0] if len(batches) == 1 else merged(batches, self._schema)
            super().feed(whole)
        mark = super().pass_on(number, mark)
        if self.flush is not None and not mark.over:
            self.give(self.flush())
        return mark
