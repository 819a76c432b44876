"""Rows by themselves: a round of one plain row goes down the seats of a node with no batch made for it.

A batch, an end of round and a set of accounts per row would cost ten times what the user's functions do. Here
a row is a dict that one function after the other makes into the next, and what became of the rows is told
from few counts, when somebody asks. A row on which a function fails goes the usual way from there, so that
policies and messages are those of the seats. It is the way of runs in which no round is told of and none is
saved (`Progress.watched`); in others rows go through the seats as batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from penstock.accounts import Accounts
from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels.output import Straight
from penstock.engines.local.fast_rows.context import Plain, Stretch, Tail
from penstock.engines.local.fast_rows.direct_call import Hop
from penstock.engines.local.tasks.chain import Seat, SinkSeat, Target, count
from penstock.operators.op import ERRORS, OUT
from penstock.stages.rows.batch import Batch

if TYPE_CHECKING:
    from penstock.stages.stateless import ByRow


class Line:
    """Seats that take rows by themselves, one behind the other, and where rows go from there.

    seats    whose steps it does
    tail     what is behind them
    put_row  its own
    n_in     rows that have come
    dropped  rows that were filtered, by seat
    failed   rows on which a function failed, by seat
    """

    __slots__ = ("_rows", "_steps", "_stretch", "dropped", "failed", "n_in", "put_row", "seats", "tail")

    def __init__(self, seats: Sequence[Seat], rows: Sequence[ByRow], tail: Tail) -> None:
        self.seats, self._rows, self.tail, self.put_row = tuple(seats), tuple(rows), tail, tail.put_row
        self._steps = tuple(enumerate(each.step for each in rows))
        self._stretch: Stretch
        self.n_in = 0
        self.dropped, self.failed = [0] * len(rows), [0] * len(rows)

    def begin(self, stretch: Stretch, number: int, frontier: Frontier) -> None:
        """Rows are about to come, of rounds from this number on; the node has come to the mark."""
        self._stretch = stretch
        self.tail.begin(stretch, number, frontier)

    def end(self, number: int) -> int:
        """No more for now, all rounds before this number are over; gives the time spent for nodes behind."""
        return self.tail.end(number)

    def carry(self, row: Plain, number: int) -> bool:
        """One row, which is all of the round of this number; gives what the tail does."""
        for at, step in self._steps:
            try:
                made = step(row)
            except Exception as cause:
                self.n_in += 1
                self._lost(at, row, number, cause)
                return self.put_row(None, number)
            if made is None:
                self.n_in += 1
                self.dropped[at] += 1
                return self.put_row(None, number)
            row = made
        self.n_in += 1
        return self.put_row(row, number)

    def _lost(self, at: int, row: Plain, number: int, cause: Exception) -> None:
        """What the step's policy makes of a row on which it failed."""
        seat, of = self.seats[at], self._stretch
        self.failed[at] += 1
        batch = Batch.of_one(row, seat.step.up.schema, of.time, of.order(number))
        letters = self._rows[at].lost(batch, cause)
        if letters is not None:
            for target in seat.targets.get(ERRORS, ()):
                target(letters)

    def count_source(self, accounts: Accounts) -> None:
        """Add the rows that have come to the accounts of the source that gave them."""
        count(accounts, self.n_in, self.n_in)

    def count(self, at: int, accounts: Accounts) -> None:
        """Add what a seat has done to its accounts; how rows failed is there already."""
        n_in = self.n_in - sum(self.dropped[:at]) - sum(self.failed[:at])
        count(accounts, n_in, n_in - self.dropped[at] - self.failed[at])
        accounts.filtered += self.dropped[at]


class AsBatches:
    """The tail of a line whose rows go on as batches of one, to seats or outlets of any kind."""

    every_round: ClassVar[bool] = True

    def __init__(self, last: Seat, seats: Sequence[Seat], hearing: Sequence[Seat]) -> None:
        self._targets: tuple[Target, ...] = last.targets.get(OUT, ())
        self._schema, self._hearing = last.step.outputs[OUT].schema, tuple(hearing)
        self._leaves = any(seat.outlets for seat in seats)
        self._stretch: Stretch
        self._frontier: Frontier

    def begin(self, stretch: Stretch, number: int, frontier: Frontier) -> None:
        """Remember what is asked of every row."""
        self._stretch, self._frontier = stretch, frontier

    def moved(self, frontier: Frontier) -> None:
        """The seats are told at the end of the round."""
        self._frontier = frontier

    def put_row(self, values: Plain | None, number: int) -> bool:
        """The row, and the end of its round."""
        of, frontier = self._stretch, self._frontier
        if values is not None:
            batch = Batch.of_one(values, self._schema, of.time, of.order(number))
            for target in self._targets:
                target(batch)
        for seat in self._hearing:
            frontier = seat.end_round(of.origin[0], number, number, frontier)
        return self._leaves

    def end(self, number: int) -> int:
        """Nothing is done for others."""
        return 0


def line_behind(source: Seat, seats: Sequence[Seat], hearing: Sequence[Seat]) -> Line:
    """The line behind a source at the head of a node.

    seats    the others
    hearing  those to which the end of a round means something
    """
    mine, rows = _by_row(source.targets.get(OUT, ()), seats)
    last = mine[-1] if mine else source
    line = Line(mine, rows, _tail(last, [source, *seats], seats[len(mine) :], hearing))
    source.tally = line.count_source
    return _counted(line)


def line_of(seats: Sequence[Seat], hearing: Sequence[Seat]) -> Line | None:
    """The line of a node that reads channels, if its first seat takes rows by themselves."""
    if len(seats) == 1 and isinstance(seats[0], SinkSeat):
        return Line((), (), seats[0])
    mine, rows = _by_row((seats[0].feed,), seats)
    if not mine:
        return None
    return _counted(Line(mine, rows, _tail(mine[-1], seats, seats[len(mine) :], hearing)))


def _counted(line: Line) -> Line:
    for at, seat in enumerate(line.seats):
        seat.tally = partial(line.count, at)
    return line


def _by_row(targets: object, seats: Sequence[Seat]) -> tuple[list[Seat], list[ByRow]]:
    """The first of the seats, as long as all rows go to the next one and it takes them by themselves."""
    mine, rows = [], []
    for seat in seats:
        row = seat.by_row()
        if row is None or targets != (seat.feed,):
            break
        mine.append(seat)
        rows.append(row)
        targets = seat.targets.get(OUT, ())
    return mine, rows


def _tail(last: Seat, seats: Sequence[Seat], rest: Sequence[Seat], hearing: Sequence[Seat]) -> Tail:
    """Where rows go from the last seat of a line: short where there is one sink or one channel, no more."""
    targets, schema = last.targets.get(OUT, ()), last.step.outputs[OUT].schema
    outlets = [outlet for seat in seats for outlet in seat.outlets]
    if not outlets and len(rest) == 1 and isinstance(rest[0], SinkSeat) and targets == (rest[0].feed,):
        return rest[0]
    if not rest and len(outlets) == 1:
        (outlet,) = outlets
        if isinstance(outlet, Straight) and targets == (outlet.send,) and outlet.begin_rows(schema):
            return Hop(outlet)
    return AsBatches(last, seats, hearing)
