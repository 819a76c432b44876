"""From one node to the next, for rows by themselves: through the channel, or by hand.

A node that waits for rows, and takes little time for each, is worked for by the thread that has a row for it:
the channel and the turn of another thread would cost more than the work does. So it is borrowed from the
dispatcher for as long as its feeder goes on (`begin` to `end`), and counts as running for that time. Its
rounds go with those of its feeder, so a round that brings it no row costs nothing, unless chain behind it
wait for the end of every round. One that takes long for a row has it from the channel, so that both can work
side by side. A look at the clock for some of the rows tells which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels.output import ForwardOutput
from penstock.engines.local.fast_rows.context import PlainRow, RowContext
from penstock.engines.local.metrics.statistics import READ_BLOCKED

if TYPE_CHECKING:
    from penstock.engines.local.fast_rows.pipeline import RowPipeline

LONG = 20_000
"""Nanoseconds: who takes longer for a row works for itself."""

SELDOM = 64
"""One in so many rounds is looked at."""

PAUSE, LONGEST_PAUSE = 4, 1_024
"""How often a node is not borrowed, although it waits, after it took long: twice as often each time, for many
a step is slow at first only.
"""


class RowTask(Protocol):
    """A node that takes rows by themselves (`FlowNode`)."""

    def begin_rows(self, context: RowContext, number: int, frontier: Frontier) -> RowPipeline:
        """Rows will be brought by hand, of rounds from this number on; the feeder has come to the mark.

        Gives who takes them.
        """

    def moved(self, frontier: Frontier) -> None:
        """With the row that comes next, the feeder has come to the mark."""

    def end_rows(self, number: int) -> tuple[int, int]:
        """No more for now, all rounds before this number are over.

        Gives how many rows came, and the time that nodes behind it took for them.
        """


class DirectCall:
    """The only edge out of a node, for rows by themselves (`context.Tail`)."""

    __slots__ = (
        "_carry",
        "_channel",
        "_context",
        "_cost",
        "_frontier",
        "_long",
        "_next",
        "_next_pause",
        "_nothing",
        "_outlet",
        "_pause",
        "_takes",
    )
    every_round: ClassVar[bool] = True

    def __init__(self, output: ForwardOutput) -> None:
        self._outlet, (self._channel,) = output, output.channels
        self._takes: RowTask | None = None
        self._carry: Callable[[Any, int], bool] | None = None
        self._nothing: Callable[[Any, int], bool] | None = None
        self._pause = self._next = self._cost = 0
        self._next_pause = PAUSE
        self._long = False
        self._context: RowContext
        self._frontier: Frontier

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """The node has rows to send: borrow the reader, if it only waits for them."""
        self._context, self._frontier = context, frontier
        self._borrow(number)

    def _borrow(self, number: int) -> None:
        takes = self._channel.reader.row_task
        if takes is None:
            return
        if self._pause:
            self._pause -= 1
        elif self._channel.dispatcher.borrow(self._channel.reader):
            line = takes.begin_rows(self._context, number, self._frontier)
            self._takes, self._carry, self._next, self._cost = takes, line.carry, 0, 0
            self._nothing = line.put_row if line.tail.every_round else None

    def moved(self, frontier: Frontier) -> None:
        """The reader needs_round_end of it at once, or with the next row in the channel."""
        self._frontier = frontier
        if self._takes is not None:
            self._takes.moved(frontier)

    def end(self, number: int) -> int:
        """No more for now: the reader may go. Gives the time that was spent for it and those behind it."""
        takes, self._takes, self._carry = self._takes, None, None
        if takes is None:
            return 0
        n_rows, behind = takes.end_rows(number)
        results = self._cost * n_rows
        self._outlet.statistics.rows += n_rows
        self._outlet.statistics.batches += n_rows
        self._channel.dispatcher.release(self._channel.reader, max(results - behind, 0))
        return results

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """A row that is all of a round, or a round of nothing; whether there may be no more room."""
        carry = self._carry
        if carry is None:
            return self._send(values, number)
        if values is None:
            carry = self._nothing
            if carry is None:
                return False
        if number >= self._next:
            return self._looked_at(carry, values, number)
        try:
            return carry(values, number)
        except BaseException as failure:
            self._failed(number, failure)
            return False

    def _send(self, values: PlainRow | None, number: int) -> bool:
        """Through the channel, unless the reader waits now."""
        if self._channel.reader.statistics.state is READ_BLOCKED:
            self._borrow(number)
            if self._takes is not None:
                return self.put_row(values, number)
        if values is not None:
            self._outlet.statistics.rows += 1
            self._outlet.statistics.batches += 1
        of, now = self._context, self._channel.dispatcher.now()
        return self._channel.push_row((values, number, of.time, of.shift, of.origin, self._frontier, now))

    def _looked_at(self, carry: Callable[[Any, int], bool], values: PlainRow | None, number: int) -> bool:
        """By hand, with a look at the clock: a reader that is slow for two such rows is let go.

        For two of them, because one may be bad luck.
        """
        clock = self._channel.dispatcher.now
        begun = clock()
        try:
            full = carry(values, number)
        except BaseException as failure:
            self._failed(number, failure)
            return False
        took = clock() - begun
        self._cost = took if not self._cost else (3 * self._cost + took) // 4
        was_long, self._long = self._long, took > LONG
        if not self._long:
            self._next, self._next_pause = number + SELDOM, PAUSE
        elif not was_long:
            self._next = number + 1
        else:
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE)
            self.end(number + 1)
        return full

    def _failed(self, number: int, failure: BaseException) -> None:
        """The reader raised: it ends, and its feeder goes on until it is told to stop."""
        takes, self._takes, self._carry = self._takes, None, None
        assert takes is not None, "the reader is at hand"
        takes.end_rows(number)
        self._channel.dispatcher.fail_task(self._channel.reader, failure)
