"""What the window kinds have in common: rows as members of windows, and windows that leave.

A window step (`window_step.py`) makes a `Member` of every row, asks each kind of window whether it takes
it in, and lets the kinds say which windows leave. A kind keeps the windows of one key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Protocol

from penstock.engines.rows import TimedRow, row_sort_key
from penstock.frozen import dataclass
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow, is_late_for


class Outcome(Enum):
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
class OpenWindow:
    """The rows of a window that has not left, and whether some came since it was last shown early."""

    members: list[Member] = field(default_factory=list)
    changed: bool = False

    def add(self, members: list[Member]) -> None:
        """Take rows in."""
        self.members += members
        self.changed = self.changed or bool(members)


class WindowKind(Protocol):
    """The windows of one kind and one key."""

    def take(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Judge the round's rows, and take in what is not late: an answer and the misses, per row."""

    def leave(self, after: float) -> list[WindowRows]:
        """Return the windows that leave when the watermark stands here."""

    def early(self) -> list[WindowRows]:
        """Return the open windows that changed since they were last shown."""

    def rest(self) -> list[WindowRows]:
        """Return what the end of the stream lets go beyond what the watermark +infinity does."""


def ordered(members: list[Member]) -> tuple[Member, ...]:
    """Rows as aggregates and functions see them: by (time, order, columns)."""
    return tuple(sorted(members, key=member_place))


def member_place(member: Member) -> tuple[Any, ...]:
    """Return what to sort members by."""
    return row_sort_key(member.row)


# Time windows of one key: tumbling, sliding and hopping.
#
# size 10, every 5                0    5    10   15   20
# a row at 7 is in two windows    [--------7--)
# [---7-----)
#
# A row counts in each of its windows that is still open (W < end + lateness). It is late when it had
# windows and all have left; every window that it missed is counted. A window leaves once, when
# W >= end + lateness; its result has the time end - 1.


class TimeWindows:
    """The open windows, by start. Windows without rows do not exist."""

    def __init__(self, window: TimeWindow, lateness: int) -> None:
        self._window, self._lateness = window, lateness
        self._open: dict[int, OpenWindow] = {}

    def take(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Return each row by itself: time windows do not depend on other rows."""
        return [self._take_one(member, before) for member in members]

    def _take_one(self, member: Member, before: float) -> tuple[Outcome, int]:
        starts = self._window.starts(member.row.at())
        still_open = [s for s in starts if not is_late_for(before, s + self._window.size, self._lateness)]
        for start in still_open:
            self._open.setdefault(start, OpenWindow()).add([member])
        misses = len(starts) - len(still_open)
        if still_open:
            return Outcome.TAKEN, misses
        return (Outcome.LATE if starts else Outcome.GAP), misses

    def leave(self, after: float) -> list[WindowRows]:
        """Return every window with W >= end + lateness."""
        gone = [s for s in self._open if is_late_for(after, s + self._window.size, self._lateness)]
        return [self._content(start, self._open.pop(start)) for start in gone]

    def early(self) -> list[WindowRows]:
        """Return the windows that changed since they were last shown."""
        changed = [(start, window) for start, window in self._open.items() if window.changed]
        for _, window in changed:
            window.changed = False
        return [self._content(start, window) for start, window in changed]

    def rest(self) -> list[WindowRows]:
        """Nothing: the watermark +infinity closes every time window."""
        return []

    def _content(self, start: int, window: OpenWindow) -> WindowRows:
        end = start + self._window.size
        return WindowRows(start, end, end - 1, ordered(window.members))


# Session windows of one key: [first time, last time + gap), merged when they touch.
#
# gap 5     a row at 3    [3    8)
# a row at 8         [8    13)      touches: one session [3, 13)
# a row at 19                          [19   24)
#
# A row is on time when W < time + gap + lateness; it opens a session of its own or joins those it
# touches, and may bridge two. A row behind that is late unless an open session (one that has not left)
# takes it in. So that the answer does not depend on the order inside a batch, the on-time rows of a round
# are added first, and then the others are tried again and again until none of them touches a session.


@dataclass(slots=True, eq=False)
class Session:
    """One open session."""

    start: int
    end: int
    rows: OpenWindow = field(default_factory=OpenWindow)

    def touches(self, start: int, end: int) -> bool:
        """Return whether the two overlap, or one begins exactly where the other ends."""
        return start <= self.end and self.start <= end


class Sessions:
    """The open sessions. Invariant: no two of them touch."""

    def __init__(self, window: SessionWindow, lateness: int) -> None:
        self._gap, self._lateness = window.gap, lateness
        self._open: list[Session] = []

    def take(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """On-time rows first; then those that an open session takes in, until none is left that can."""
        behind = [member for member in members if self._is_behind(member, before)]
        for member in members:
            if member not in behind:
                self._add(member)
        while taken := next((member for member in behind if self._touched(member)), None):
            self._add(taken)
            behind.remove(taken)
        return [(Outcome.LATE, 1) if member in behind else (Outcome.TAKEN, 0) for member in members]

    def leave(self, after: float) -> list[WindowRows]:
        """Return every session with W >= end + lateness."""
        gone = [session for session in self._open if is_late_for(after, session.end, self._lateness)]
        self._open = [session for session in self._open if session not in gone]
        return [_content(session) for session in gone]

    def early(self) -> list[WindowRows]:
        """Return the sessions that changed since they were last shown."""
        changed = [session for session in self._open if session.rows.changed]
        for session in changed:
            session.rows.changed = False
        return [_content(session) for session in changed]

    def rest(self) -> list[WindowRows]:
        """Nothing: the watermark +infinity closes every session."""
        return []

    def _is_behind(self, member: Member, before: float) -> bool:
        return is_late_for(before, member.row.at() + self._gap, self._lateness)

    def _touched(self, member: Member) -> list[Session]:
        time = member.row.at()
        return [session for session in self._open if session.touches(time, time + self._gap)]

    def _add(self, member: Member) -> None:
        """One session of the row and of all sessions that it touches."""
        joined = self._touched(member)
        starts = [member.row.at(), *(session.start for session in joined)]
        ends = [member.row.at() + self._gap, *(session.end for session in joined)]
        merged = Session(min(starts), max(ends))
        merged.rows.add([member, *(each for session in joined for each in session.rows.members)])
        self._open = [session for session in self._open if session not in joined] + [merged]


def _content(session: Session) -> WindowRows:
    return WindowRows(session.start, session.end, session.end - 1, ordered(session.rows.members))


# Count windows of one key: window i holds the rows i * every to i * every + size - 1, in order.
#
# size 3, every 2     rows    0  1  2  3  4  5
# window 0 [-----)
# window 1       [-----)
#
# Rows are put in order once no earlier one can come: when time + lateness < W. A row that comes after
# that is late. A window leaves when it is full; its start and end are the times of its first and last row,
# and its result has the time of its last row. With every > size some rows are in no window.


class CountWindows:
    """The rows that wait to be put in order, and the windows that are not full."""

    def __init__(self, window: CountWindow, lateness: int, *, partial: bool) -> None:
        self._size, self._every, self._lateness = window.size, window.every, lateness
        self._partial = partial
        self._waiting: list[Member] = []
        self._placed = 0
        self._open: dict[int, OpenWindow] = {}

    def take(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Return a row waits for its place unless rows of its time are placed already."""
        late = [before > member.row.at() + self._lateness for member in members]
        self._waiting += [member for member, is_late in zip(members, late, strict=True) if not is_late]
        return [(Outcome.LATE, 1) if is_late else (Outcome.TAKEN, 0) for is_late in late]

    def leave(self, after: float) -> list[WindowRows]:
        """Place what the watermark has passed; every window that gets full leaves."""
        ready = [member for member in self._waiting if member.row.at() + self._lateness < after]
        self._waiting = [member for member in self._waiting if member.row.at() + self._lateness >= after]
        return [content for member in ordered(ready) for content in self._place(member)]

    def early(self) -> list[WindowRows]:
        """Return the windows that are not full and changed since they were last shown."""
        changed = {index: window for index, window in self._open.items() if window.changed}
        for window in changed.values():
            window.changed = False
        return [_counts_content(index, window) for index, window in changed.items()]

    def rest(self) -> list[WindowRows]:
        """At the end of the stream: the windows that are not full, if they were asked for."""
        left, self._open = self._open, {}
        for window in left.values():
            for member in window.members:
                member.passed = member.passed or self._partial
        return [_counts_content(index, window) for index, window in left.items()] if self._partial else []

    def _place(self, member: Member) -> list[WindowRows]:
        """Put the next row into its windows; give those that it fills."""
        number, self._placed = self._placed, self._placed + 1
        first = max(0, (number - self._size) // self._every + 1)
        last = number // self._every
        full = []
        for index in range(first, last + 1):
            window = self._open.setdefault(index, OpenWindow())
            window.add([member])
            member.held = True
            if len(window.members) == self._size:
                full.append(_counts_content(index, self._open.pop(index)))
        for content in full:
            for each in content.members:
                each.passed = True
        return full


def _counts_content(index: int, window: OpenWindow) -> WindowRows:
    start, end = window.members[0].row.at(), window.members[-1].row.at()
    return WindowRows(start, end, end, tuple(window.members), index)
