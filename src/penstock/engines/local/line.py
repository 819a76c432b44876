"""Rows by themselves: a round of one plain row goes down the seats of a node with no batch made for it.

A batch, an end of round and a set of accounts per row would cost ten times what the user's functions do. Here
a row is a dict that one function after the other makes into the next, and what became of the rows is told
from few counts, when somebody asks. A row on which a function fails goes the usual way from there, so that
policies and messages are those of the seats. It is the way of runs in which no round is told of and none is
saved (`Progress.watched`); in others rows go through the seats as batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.engines.local.end_seats import SinkSeat
from penstock.engines.local.hop import Hop
from penstock.engines.local.outlets import Straight
from penstock.engines.local.seats import Seat, count
from penstock.engines.marks import Mark
from penstock.operators.op import ERRORS, OUT
from penstock.plan.accounts import Accounts
from penstock.stages.batch import Batch
from penstock.stages.by_row import ByRow

Plain = Mapping[str, object]

Tail = Callable[[Plain | None, int, tuple[int, ...], int, int, int, Mark, int], bool]
"""Takes what became of a row, None for nothing, and the end of its round; whether there may be no more room.

Its arguments are (values, time, order, pace, number, turn, mark, now); see `Seat.end_round` for pace to mark.
"""


class Line:
    """Seats that take rows by themselves, one behind the other, and where rows go from there.

    seats    whose steps it does
    n_in     rows that have come
    dropped  rows that were filtered, by seat
    failed   rows on which a function failed, by seat
    """

    __slots__ = ("_hop", "_rows", "_steps", "_tail", "dropped", "failed", "n_in", "seats")

    def __init__(
        self, seats: Sequence[Seat], rows: Sequence[ByRow], tail: Tail, hop: Hop | None = None
    ) -> None:
        self.seats, self._rows, self._tail, self._hop = tuple(seats), tuple(rows), tail, hop
        self._steps = tuple(enumerate(each.step for each in rows))
        self.n_in = 0
        self.dropped, self.failed = [0] * len(rows), [0] * len(rows)

    def begin(self) -> None:
        """Rows are about to come."""
        if self._hop is not None:
            self._hop.begin()

    def end(self) -> int:
        """No more for now; gives the time that was spent for nodes behind this one."""
        return 0 if self._hop is None else self._hop.end()

    def carry(
        self,
        row: Plain,
        time: int,
        order: tuple[int, ...],
        pace: int,
        number: int,
        turn: int,
        mark: Mark,
        now: int,
    ) -> bool:
        """One row, which is all of its round; gives what the tail does."""
        for at, step in self._steps:
            try:
                values = step(row)
            except Exception as cause:
                self.n_in += 1
                self._lost(at, row, time, order, cause)
                return self._tail(None, time, order, pace, number, turn, mark, now)
            if values is None:
                self.n_in += 1
                self.dropped[at] += 1
                return self._tail(None, time, order, pace, number, turn, mark, now)
            row = values
        self.n_in += 1
        return self._tail(row, time, order, pace, number, turn, mark, now)

    def empty(self, pace: int, number: int, turn: int, mark: Mark, now: int) -> bool:
        """A round without a row."""
        return self._tail(None, 0, (), pace, number, turn, mark, now)

    def _lost(self, at: int, row: Plain, time: int, order: tuple[int, ...], cause: Exception) -> None:
        """What the step's policy makes of a row on which it failed."""
        seat = self.seats[at]
        self.failed[at] += 1
        letters = self._rows[at].lost(Batch.of_one(row, seat.step.up.schema, time, order), cause)
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


def line_behind(source: Seat, seats: Sequence[Seat], hearing: Sequence[Seat]) -> Line:
    """The line behind a source at the head of a node.

    seats    the others
    hearing  those to which the end of a round means something
    """
    mine, rows = _by_row(source.targets.get(OUT, ()), seats)
    last = mine[-1] if mine else source
    line = Line(mine, rows, *_tail(last, [source, *seats], seats[len(mine) :], hearing))
    source.tally = line.count_source
    return _counted(line)


def line_of(seats: Sequence[Seat], hearing: Sequence[Seat]) -> Line | None:
    """The line of a node that reads channels, if its first seat takes rows by themselves."""
    if len(seats) == 1 and isinstance(seats[0], SinkSeat):
        return Line((), (), seats[0].put_row)
    mine, rows = _by_row((seats[0].feed,), seats)
    if not mine:
        return None
    return _counted(Line(mine, rows, *_tail(mine[-1], seats, seats[len(mine) :], hearing)))


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


def _tail(
    last: Seat, seats: Sequence[Seat], rest: Sequence[Seat], hearing: Sequence[Seat]
) -> tuple[Tail, Hop | None]:
    """Where rows go from the last seat of a line: short where there is one sink or one channel, no more."""
    targets, schema = last.targets.get(OUT, ()), last.step.outputs[OUT].schema
    outlets = [outlet for seat in seats for outlet in seat.outlets]
    if not outlets and len(rest) == 1 and isinstance(rest[0], SinkSeat) and targets == (rest[0].feed,):
        return rest[0].put_row, None
    if not rest and len(outlets) == 1:
        (outlet,) = outlets
        if isinstance(outlet, Straight) and targets == (outlet.send,) and outlet.begin_rows(schema):
            hop = Hop(outlet)
            return hop.put_row, hop

    def as_batch(
        values: Plain | None,
        time: int,
        order: tuple[int, ...],
        pace: int,
        number: int,
        turn: int,
        mark: Mark,
        now: int,
    ) -> bool:
        if values is not None:
            batch = Batch.of_one(values, schema, time, order)
            for target in targets:
                target(batch)
        for seat in hearing:
            mark = seat.end_round(pace, number, turn, mark)
        return bool(outlets)

    return as_batch, None
