"""The context of the row at hand, and where rows go from the end of a pipeline.

Only what changes from one row to the next goes along with it, and that is the number of its round; all else
is looked up here by those few that ask for it. A task that is called directly (`direct_call.py`) looks into
the same context as its caller.
"""

from __future__ import annotations

from typing import Protocol

from penstock.engines.frontiers import Frontier
from penstock.stages.stage import PlainRow

Origin = tuple[int, int | None]
"""The round group of a source, and its rank among several, by which rows of equal time are ordered first."""


class RowContext:
    """What is known of the row at hand besides its values and the number of its round.

    origin  the source it comes from
    shift   how far its place among the rows of the source is beyond the number of its round
    time    its event time
    """

    __slots__ = ("origin", "shift", "time")

    def __init__(self, origin: Origin) -> None:
        self.origin, self.shift, self.time = origin, 0, 0

    def order(self, number: int) -> tuple[int, ...]:
        """Returns the place of the row of a round among those of equal time."""
        return row_order(self.origin, number + self.shift)


def row_order(origin: Origin, place: int) -> tuple[int, ...]:
    """Returns the place of a row among those of equal time, from its number among those of its source."""
    rank = origin[1]
    return (place,) if rank is None else (rank, place)


class RowOutput(Protocol):
    """Where rows go from the last step of a pipeline: a sink, the next task, or steps that take batches."""

    @property
    def every_round(self) -> bool:
        """Returns whether it must hear of rounds that bring it no row."""

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Begins a sequence of rounds, the first of this number, with the task at the frontier."""

    def advance_frontier(self, frontier: Frontier) -> None:
        """Moves the frontier, which the round of the next row reaches."""

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """Takes the row of a round, or None, and ends the round; returns whether there may be no room."""

    def end(self, number: int) -> int:
        """Ends the sequence before this round; returns the nanoseconds spent on behalf of other tasks."""
