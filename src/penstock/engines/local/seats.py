"""Seats: the steps of one node, in a line; rows pass from one to the next by a direct call.

A seat knows where the rows on each of its ports go (`targets`): to the next seat, to an outlet, or into a
collection. Without rounds rows are worked on as they come; with rounds they wait in their seat, and the rows
of a round are one batch, whichever way they came, so that functions of batches see the same on every engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import pyarrow as pa

from penstock.engines.local.channel import Rescaled
from penstock.engines.local.outlets import Outlet
from penstock.engines.local.progress import Progress
from penstock.engines.marks import Mark
from penstock.operators.op import ERRORS, OUT
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step
from penstock.stages.batch import Batch
from penstock.stages.protocol import Stage
from penstock.stages.row_places import merged
from penstock.stages.stateless import Stateless

Target = Callable[[Batch], None]
Out = Iterable[tuple[str, Batch]]


def nowhere(batch: Batch) -> None:
    """Where rows go that nobody reads."""


class Seat(ABC):
    """One step at its place in a node."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.targets: dict[str, tuple[Target, ...]] = {}
        self.outlets: list[Outlet] = []
        self.accounts = Accounts()
        self.told: Progress | None = None
        self._late = self._errors = 0

    def connected(self) -> None:
        """All targets are known."""
        return

    @property
    def hears(self) -> bool:
        """Whether the end of a round means anything here."""
        return True

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

    def ticket(self, ticket: int | Rescaled) -> None:
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


class PlainSeat(Seat):
    """A stage without state, fed as rows come: it gives what a batch becomes at once; no mark concerns it.

    This is what a row of fused steps pays per step and batch, so a batch goes by the shortest way there is.
    """

    def __init__(self, step: Step, stage: Stateless, accounts: Accounts) -> None:
        super().__init__(step)
        self.stage, self.accounts = stage, accounts
        self._made, self._at_once = stage.made, stage.at_once
        self._out: Target = nowhere

    def connected(self) -> None:
        """The main port is looked up once."""
        targets = self.targets.get(OUT, ())
        self._out = targets[0] if len(targets) == 1 else self._to_all

    def feed(self, batch: Batch) -> None:
        """Work on the rows."""
        accounts, n_in = self.accounts, batch.num_rows
        accounts.rows_in += n_in
        if not n_in:
            return
        made = self._at_once(batch)
        if made is not None:
            if made.num_rows:
                accounts.rows_out += made.num_rows
                self._out(made)
            return
        for port, rows in self._made(batch):
            n_rows = n_in if rows is batch else rows.num_rows
            if not n_rows:
                continue
            if port == OUT:
                accounts.rows_out += n_rows
                self._out(rows)
            else:
                if port != ERRORS:
                    accounts.rows_out += n_rows
                for target in self.targets.get(port, ()):
                    target(rows)

    @property
    def hears(self) -> bool:
        """Only if somebody else must be told."""
        return bool(self.outlets) or self.told is not None

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """Nothing waits here."""
        return mark

    def _to_all(self, batch: Batch) -> None:
        for target in self.targets.get(OUT, ()):
            target(batch)


class StageSeat(Seat):
    """A stage, fed as rows come.

    held_back  how far results come behind the input's watermark
    """

    def __init__(self, step: Step, stage: Stage, accounts: Accounts, held_back: int) -> None:
        super().__init__(step)
        self.stage, self.accounts, self._held_back = stage, accounts, held_back
        self._on_batch = stage.on_batch
        self._one_row: Callable[[Batch], Batch | None] | None = getattr(stage, "one_row", None)
        self.mark = self._passed_on = Mark()

    def feed(self, batch: Batch) -> None:
        """Work on the rows, judged by the watermark before the round."""
        made = None if self._one_row is None else self._one_row(batch)
        if made is not None:
            self.give(((OUT, made),) if made.num_rows else ())
            return
        for port, rows in self._on_batch(batch, self.mark.watermark):
            for target in self.targets.get(port, ()):
                target(rows)

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """Let go what the watermark has passed; marks never go back."""
        if self._one_row is not None and mark == self.mark and not mark.over:
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
