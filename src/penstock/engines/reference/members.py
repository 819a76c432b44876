"""What the window kinds have in common: rows as members of windows, and windows that leave.

A window step (`window_step.py`) makes a `Member` of every row, asks each kind of window whether it takes
it in, and lets the kinds say which windows leave. A kind keeps the windows of one key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Protocol

from penstock.engines.timed import TimedRow, place
from penstock.frozen import dataclass


class Answer(Enum):
    """What a kind of window says to a row."""

    TAKEN = "it is in a window that is still open"
    LATE = "it had windows, and all have left"
    GAP = "it lies between windows"


@dataclass(slots=True, eq=False)
class Member:
    """A row in a window step.

    row       the row
    parts     what each aggregate takes from it, by result column
    passed    whether it is in some window that leaves; count windows know only when they are full
    held      whether it is in some count window that is not full
    """

    row: TimedRow
    parts: Mapping[str, object]
    passed: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class WindowRows:
    """A window with its rows, about to leave (or shown early).

    start, end  in microseconds
    time        the time of its result
    members     its rows, in order
    index       the number of a count window; None for other kinds
    """

    start: int
    end: int
    time: int
    members: tuple[Member, ...]
    index: int | None = None


@dataclass(slots=True)
class Open:
    """The rows of a window that has not left, and whether some came since it was last shown early."""

    members: list[Member] = field(default_factory=list)
    changed: bool = False

    def add(self, members: list[Member]) -> None:
        """Take rows in."""
        self.members += members
        self.changed = self.changed or bool(members)


class Kind(Protocol):
    """The windows of one kind and one key."""

    def take(self, members: list[Member], before: float) -> list[tuple[Answer, int]]:
        """Judge the round's rows, and take in what is not late: an answer and the misses, per row."""

    def leave(self, after: float) -> list[WindowRows]:
        """The windows that leave when the watermark stands here."""

    def early(self) -> list[WindowRows]:
        """The open windows that changed since they were last shown."""

    def rest(self) -> list[WindowRows]:
        """What the end of the stream lets go beyond what the watermark +infinity does."""


def ordered(members: list[Member]) -> tuple[Member, ...]:
    """Rows as aggregates and functions see them: by (time, order, columns)."""
    return tuple(sorted(members, key=member_place))


def member_place(member: Member) -> tuple[Any, ...]:
    """What to sort members by."""
    return place(member.row)
