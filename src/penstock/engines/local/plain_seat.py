"""Seats of stages without state, and the runs of them that a batch goes down in one loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.engines.local.seats import Seat, Target, count, nowhere
from penstock.engines.marks import Mark
from penstock.operators.op import ERRORS, OUT
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step
from penstock.stages.batch import Batch
from penstock.stages.stateless import Stateless

if TYPE_CHECKING:
    from penstock.stages.by_row import ByRow


class PlainSeat(Seat):
    """A stage without state, fed as rows come: it gives what a batch becomes at once; no mark concerns it.

    A batch goes down a run of such seats in one loop, because this is what fused steps pay per batch. As
    long as the steps hand on what they get, it is counted once for all of them, where it came in.

    run      this seat and those behind it, as far as all rows go to the next and it is as plain
    heads    the seats whose runs this one is in
    n_whole  rows that came in here and were handed on by the whole run
    """

    def __init__(self, step: Step, stage: Stateless, accounts: Accounts) -> None:
        super().__init__(step)
        self.stage, self.accounts = stage, accounts
        self.run: tuple[PlainSeat, ...] = (self,)
        self.heads, self.n_whole = [self], 0
        self._steps: tuple[tuple[int, Callable[[Batch], Batch | None]], ...] = ((0, stage.at_once),)
        self._out: Target = nowhere
        self._end: Target = nowhere

    def connected(self) -> None:
        """The main port is looked up once."""
        targets = self.targets.get(OUT, ())
        self._out = self._end = targets[0] if len(targets) == 1 else self._to_all

    def follow(self, behind: PlainSeat) -> None:
        """All rows of the main port go to a seat: it and the run behind it do their part in one loop."""
        self.run = (self, *behind.run)
        self._steps = tuple(enumerate(seat.stage.at_once for seat in self.run))
        self._end = behind._end
        for seat in behind.run:
            seat.heads.append(self)

    def by_row(self) -> ByRow | None:
        """What the stage makes of it."""
        return self.stage.by_row()

    def counted(self) -> Accounts:
        """What became of the rows, also of those that were handed on by a whole run."""
        found = replace(super().counted())
        n_rows = sum(head.n_whole for head in self.heads)
        count(found, n_rows, n_rows)
        return found

    def feed(self, batch: Batch) -> None:
        """Work on the rows, and let the seats of the run do so."""
        n_rows, at, made = batch.num_rows, 0, None
        if not n_rows:
            return
        try:
            for at, at_once in self._steps:  # noqa: B007  # which seat it was is asked below
                made = at_once(batch)
                if made is not batch:
                    break
        except BaseException:
            self._passed(at, n_rows)
            self.run[at].accounts.rows_in += n_rows
            raise
        if made is batch:
            self.n_whole += n_rows
            self._end(batch)
        else:
            self._passed(at, n_rows)
            self.run[at].give_made(batch, made)

    def _passed(self, end: int, n_rows: int) -> None:
        """The seats of the run before one of them have handed rows on."""
        for seat in self.run[:end]:
            count(seat.accounts, n_rows, n_rows)

    def give_made(self, batch: Batch, made: Batch | None) -> None:
        """What the rows became, if that is known already, to whoever reads it."""
        if made is not None:
            count(self.accounts, batch.num_rows, made.num_rows)
            self.accounts.filtered += batch.num_rows - made.num_rows
            if made.num_rows:
                self._out(made)
            return
        self.accounts.rows_in += batch.num_rows
        for port, rows in self.stage.made(batch):
            if rows.num_rows:
                self.accounts.rows_out += rows.num_rows if port != ERRORS else 0
                self.give(((port, rows),))

    @property
    def hears(self) -> bool:
        """Only if somebody else must be told."""
        return self.tells

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """Nothing waits here."""
        return mark

    def _to_all(self, batch: Batch) -> None:
        for target in self.targets.get(OUT, ()):
            target(batch)


def find_runs(seats: Sequence[Seat]) -> None:
    """Join plain seats to runs: where all rows of one go to the next."""
    for seat, behind in reversed(list(pairwise(seats))):
        joined = seat.targets.get(OUT) == (behind.feed,)
        if joined and isinstance(seat, PlainSeat) and isinstance(behind, PlainSeat):
            seat.follow(behind)
