"""From one node to the next, for rows by themselves: through the channel, or by hand.

A node that waits for rows, and takes little time for each, is worked for by the thread that has a row for it:
the channel and the turn of another thread would cost more than the work does. So it is borrowed from the
dispatcher for as long as its feeder goes on (`begin` to `end`), and counts as running for that time. One that
takes long for a row has it from the channel, so that both can work side by side. A look at the clock for some
of the rows tells which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.engines.local.outlets import Straight
from penstock.engines.local.statistics import READ_BLOCKED
from penstock.engines.marks import Mark

LONG = 20_000
"""Nanoseconds: who takes longer for a row works for itself."""

SELDOM = 64
"""One in so many rounds is looked at."""

PAUSE = 1_000
"""How often a node is not borrowed, although it waits, after it took long."""


class TakesRows(Protocol):
    """A node that takes rows by themselves (`FlowNode`)."""

    def one_row(
        self,
        row: Mapping[str, object] | None,
        time: int,
        order: tuple[int, ...],
        pace: int,
        number: int,
        mark: Mark,
        now: int,
    ) -> bool:
        """A round of one row, or of none; whether there may be no more room behind it."""

    def begin_rows(self) -> None:
        """Rows will be brought by hand."""

    def end_rows(self) -> tuple[int, int]:
        """No more for now; gives how many came, and the time that nodes behind it took for them."""


class Hop:
    """The only edge out of a node; a `line.Tail` by `put_row`."""

    __slots__ = ("_channel", "_cost", "_long", "_next", "_outlet", "_pause", "_takes")

    def __init__(self, outlet: Straight) -> None:
        self._outlet, (self._channel,) = outlet, outlet.channels
        self._takes: TakesRows | None = None
        self._pause = self._next = self._cost = 0
        self._long = False

    def begin(self) -> None:
        """The node has rows to send: borrow the reader, if it only waits for them."""
        takes = self._channel.reader.takes_rows
        if takes is None:
            return
        if self._pause:
            self._pause -= 1
        elif self._channel.dispatcher.borrow(self._channel.reader):
            self._takes, self._next, self._cost = takes, 0, 0
            takes.begin_rows()

    def end(self) -> int:
        """No more for now: the reader may go. Gives the time that was spent for it and those behind it."""
        takes, self._takes = self._takes, None
        if takes is None:
            return 0
        n_rows, behind = takes.end_rows()
        worked = self._cost * n_rows
        self._outlet.statistics.rows += n_rows
        self._outlet.statistics.batches += n_rows
        self._channel.dispatcher.give_back(self._channel.reader, max(worked - behind, 0))
        return worked

    def put_row(
        self,
        values: Mapping[str, object] | None,
        time: int,
        order: tuple[int, ...],
        pace: int,
        number: int,
        turn: int,
        mark: Mark,
        now: int,
    ) -> bool:
        """A row that is all of a round, or a round of nothing; whether there may be no more room."""
        if self._takes is None and self._channel.reader.statistics.state is READ_BLOCKED:
            self.begin()
        takes = self._takes
        if takes is None:
            if values is not None:
                self._outlet.statistics.rows += 1
                self._outlet.statistics.batches += 1
            return self._channel.push_row((values, time, order, pace, number, mark, now))
        begun = self._channel.dispatcher.now() if number >= self._next else None
        try:
            full = takes.one_row(values, time, order, pace, number, mark, now)
        except BaseException as failure:
            self._failed(takes, failure)
            return False
        if begun is not None:
            self._look(number, self._channel.dispatcher.now() - begun)
        return full

    def _look(self, number: int, took: int) -> None:
        """Whether the reader is slow: for two rows one after the other, because one may be bad luck."""
        self._cost = took if not self._cost else (3 * self._cost + took) // 4
        was_long, self._long = self._long, took > LONG
        self._next = number + 1 if self._long else number + SELDOM
        if was_long and self._long:
            self._pause = PAUSE
            self.end()

    def _failed(self, takes: TakesRows, failure: BaseException) -> None:
        """The reader raised: it ends, and its feeder goes on until it is told to stop."""
        self._takes = None
        takes.end_rows()
        self._channel.dispatcher.ended(self._channel.reader, failure)
