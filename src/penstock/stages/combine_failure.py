"""A user's combine that failed, on its way out of a store: each room adds what it knows of the window.

Loops know the row or the window by its place in a call, stores the slot and the bounds, the stage the key and
the step. No row can be blamed, because combine sees parts of any number of rows: the run fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.expr.failure import reason_of
from penstock.frozen import dataclass
from penstock.kernels.rules import RULES, Rule
from penstock.stages.batch import Ints
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

Window = TimeWindow | SessionWindow | CountWindow


@dataclass(frozen=True, slots=True)
class Whose:
    """One window of one slot, bounds in microseconds."""

    slot: int
    window: Window
    start: int
    end: int


class CombineFailed(Exception):
    """Combine failed; `place` counts in what the loop was given, rows or windows, if that is known."""

    def __init__(self, rule: Rule, cause: Exception, place: int | None) -> None:
        super().__init__(reason_of(cause))
        self.rule, self.cause, self.place = rule, cause, place
        self.slot: int | None = None
        self.time: int | None = None
        self.whose: Whose | None = None


@contextmanager
def under(rule: Rule, at: Ints | None = None) -> Iterator[None]:
    """Catch what a loop raises under a user's rule; at[0] is the place where it was."""
    try:
        yield
    except (CombineFailed, AssertionError):
        raise
    except Exception as cause:
        if rule in RULES:
            raise
        raise CombineFailed(rule, cause, None if at is None else int(at[0])) from cause


@contextmanager
def among(slots: Ints | None, times: Ints) -> Iterator[None]:
    """Add the slot and the time of the row; without slots all are of slot 0."""
    try:
        yield
    except CombineFailed as failed:
        if failed.place is not None and failed.time is None:
            failed.slot = 0 if slots is None else int(slots[failed.place])
            failed.time = int(times[failed.place])
        raise
