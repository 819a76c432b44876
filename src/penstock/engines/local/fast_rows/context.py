"""Rounds of one row each, one behind the other, as a source or a channel gives them.

Only what changes from one to the next goes along with a row, and that is the number of its round; all else is
looked up here by those few that ask for it. A node that is results for by the one before it (`hop.py`) looks
into the same context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from penstock.engines.frontiers import Frontier

PlainRow = Mapping[str, object]

Origin = tuple[int, int | None]
"""The group of a source, and its rank among several, by which rows of equal time are ordered before all else.
"""


class RowContext:
    """What is known of the row at hand beside its values and the number of its round.

    origin  where it comes from
    shift   how far its place among the rows of the source is beyond the number of its round
    time    when it happened
    """

    __slots__ = ("origin", "shift", "time")

    def __init__(self, origin: Origin) -> None:
        self.origin, self.shift, self.time = origin, 0, 0

    def order(self, number: int) -> tuple[int, ...]:
        """The place of the row of a round among those of equal time."""
        return row_order(self.origin, number + self.shift)


def row_order(origin: Origin, place: int) -> tuple[int, ...]:
    """The place of a row among those of equal time, from its number among those of its source."""
    rank = origin[1]
    return (place,) if rank is None else (rank, place)


class RowOutput(Protocol):
    """Where rows go from the last step of a line: a sink, the next node, or chain that take batches.

    every_round  whether it is to hear of rounds that bring it no row
    """

    every_round: ClassVar[bool]

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Rows are about to come, of rounds from this number on; the node has come to the mark."""

    def moved(self, frontier: Frontier) -> None:
        """With the row that comes next, the node has come to the mark."""

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """What became of a row, None for nothing, and the end of its round; whether there may be no room."""

    def end(self, number: int) -> int:
        """No more for now, all rounds before this number are over; gives the time spent for nodes behind."""
