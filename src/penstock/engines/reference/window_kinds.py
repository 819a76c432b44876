"""The kinds of window: time, session and count windows of one key.

The window step (`windows.py`) makes a `Member` of every row, asks each kind whether it accepts it, and lets
the kinds say which windows are emitted. Imports no stage and no kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum

from penstock.engines.rows import TimedRow, row_sort_key
from penstock.frozen import dataclass
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow, is_late_for


class Outcome(Enum):
    """What becomes of a row in one kind of window."""

    ACCEPTED = "it is in a window that is still open"
    LATE = "it had windows, and all have closed"
    GAP = "it lies between windows"


@dataclass(slots=True, eq=False)
class Member:
    """A row in a window step.

    row       the row
    parts     what each aggregate takes from it, by result column
    passed    whether it is in some emitted window; count windows know only when they are full
    held      whether it is in some count window that is not full
    """

    row: TimedRow
    parts: Mapping[str, object]
    passed: bool = False
    held: bool = False


@dataclass(slots=True, eq=False)
class WindowRows:
    """A window with its rows: open, or about to be emitted (finally or early).

    start, end  in microseconds; of a count window they are the times of its first and last row
    index       the number of a count window; None for other kinds
    members     its rows, in order once it is emitted
    changed     whether rows came since its last early result
    """

    start: int = 0
    end: int = 0
    index: int | None = None
    members: list[Member] = field(default_factory=list)
    changed: bool = False

    @property
    def time(self) -> int:
        """Return the time of its result."""
        return self.end - 1 if self.index is None else self.end

    def add(self, *members: Member) -> None:
        """Add rows."""
        self.members += members
        self.changed = True

    def in_order(self) -> WindowRows:
        """Return the window with its rows as aggregates and functions see them."""
        self.members = sort_members(self.members)
        return self


def sort_members(members: list[Member]) -> list[Member]:
    """Return rows as aggregates and functions see them: by (time, order, columns)."""
    return sorted(members, key=lambda member: row_sort_key(member.row))


class WindowKind(ABC):
    """The windows of one kind and one key; those that are open by start or by number."""

    def __init__(self, lateness: int) -> None:
        self._lateness = lateness
        self._open: dict[int, WindowRows] = {}

    @abstractmethod
    def add(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Add the round's rows that are not late; return the outcome and the windows missed, per row."""

    def close(self, after: float) -> list[WindowRows]:
        """Return the windows that close at this watermark: those with W >= end + lateness."""
        gone = [at for at, window in self._open.items() if is_late_for(after, window.end, self._lateness)]
        return [self._open.pop(at).in_order() for at in gone]

    def early(self) -> list[WindowRows]:
        """Return the open windows that changed since their last early result."""
        changed = [window for window in self._open.values() if window.changed]
        for window in changed:
            window.changed = False
        return [window.in_order() for window in changed]

    def close_at_end(self) -> list[WindowRows]:
        """Return the windows that only the end of the stream emits: none where the watermark closes all."""
        return []


class TimeWindows(WindowKind):
    """Time windows of one key, tumbling, sliding and hopping: the open ones by start.

        size 10, every 5                0    5    10   15   20
        a row at 7 is in two windows    [--------7--)
                                             [---7-----)

    A row counts in each of its windows that is still open (W < end + lateness). It is late when it had
    windows and all have closed; every window that it missed is counted. A window is emitted once, when
    W >= end + lateness; its result has the time end - 1. Windows without rows do not exist.
    """

    def __init__(self, window: TimeWindow, lateness: int) -> None:
        super().__init__(lateness)
        self._window = window

    def add(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Return each row by itself: time windows do not depend on other rows."""
        return [self._take_one(member, before) for member in members]

    def _take_one(self, member: Member, before: float) -> tuple[Outcome, int]:
        size = self._window.size
        starts = self._window.starts(member.row.at())
        still_open = [start for start in starts if not is_late_for(before, start + size, self._lateness)]
        for start in still_open:
            self._open.setdefault(start, WindowRows(start, start + size)).add(member)
        misses = len(starts) - len(still_open)
        if still_open:
            return Outcome.ACCEPTED, misses
        return (Outcome.LATE if starts else Outcome.GAP), misses


class Sessions(WindowKind):
    """Session windows of one key: [first time, last time + gap), merged when they touch.

        gap 5     a row at 3    [3    8)
                  a row at 8         [8    13)      touches: one session [3, 13)
                  a row at 19                          [19   24)

    A row is on time when W < time + gap + lateness; it opens a session of its own or joins those it touches,
    and may bridge two. A row behind that is late unless an open session accepts it. So that the answer does
    not depend on the order inside a batch, the on-time rows of a round are added first, and then the others
    are tried again and again until none of them touches a session.

    Invariant: no two open sessions touch.
    """

    def __init__(self, window: SessionWindow, lateness: int) -> None:
        super().__init__(lateness)
        self._gap = window.gap

    def add(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Add on-time rows first; then those that an open session accepts, until none is left."""
        behind = [m for m in members if is_late_for(before, m.row.at() + self._gap, self._lateness)]
        for member in members:
            if member not in behind:
                self._add(member)
        while accepted := next((member for member in behind if self._sessions_near(member)), None):
            self._add(accepted)
            behind.remove(accepted)
        return [(Outcome.LATE, 1) if member in behind else (Outcome.ACCEPTED, 0) for member in members]

    def _sessions_near(self, member: Member) -> list[WindowRows]:
        """Return the sessions that the row's own overlaps, or that end or begin exactly where it does."""
        start, end = member.row.at(), member.row.at() + self._gap
        return [session for session in self._open.values() if start <= session.end and session.start <= end]

    def _add(self, member: Member) -> None:
        """Merge the row and all sessions that it touches into one session."""
        merged = WindowRows(member.row.at(), member.row.at() + self._gap)
        merged.add(member)
        for session in self._sessions_near(member):
            merged.start, merged.end = min(merged.start, session.start), max(merged.end, session.end)
            merged.add(*self._open.pop(session.start).members)
        self._open[merged.start] = merged


class CountWindows(WindowKind):
    """Count windows of one key: window i holds the rows i * every to i * every + size - 1, in order.

        size 3, every 2     rows    0  1  2  3  4  5
                        window 0   [-----)
                        window 1         [-----)

    Rows are ordered once no earlier one can come: when time + lateness < W. A row that arrives after that is
    late. A window is emitted when it is full; its start and end are the times of its first and last row, and
    its result has the time of its last row. With every > size some rows are in no window.
    """

    def __init__(self, window: CountWindow, lateness: int, *, partial: bool) -> None:
        super().__init__(lateness)
        self._size, self._every, self._partial = window.size, window.every, partial
        self._waiting: list[Member] = []
        self._placed = 0

    def add(self, members: list[Member], before: float) -> list[tuple[Outcome, int]]:
        """Let rows wait to be ordered; a row is late if rows of its time have been ordered already."""
        late = [before > member.row.at() + self._lateness for member in members]
        self._waiting += [member for member, is_late in zip(members, late, strict=True) if not is_late]
        return [(Outcome.LATE, 1) if is_late else (Outcome.ACCEPTED, 0) for is_late in late]

    def close(self, after: float) -> list[WindowRows]:
        """Order what the watermark has passed; return every window that becomes full."""
        ready = [member for member in self._waiting if member.row.at() + self._lateness < after]
        self._waiting = [member for member in self._waiting if member.row.at() + self._lateness >= after]
        return [content for member in sort_members(ready) for content in self._place(member)]

    def close_at_end(self) -> list[WindowRows]:
        """Return, at the end of the stream, the windows that are not full, if they were asked for."""
        left, self._open = self._open, {}
        return self._emit(left.values()) if self._partial else []

    def _place(self, member: Member) -> list[WindowRows]:
        """Put the next row into its windows; return those that it fills."""
        number, self._placed = self._placed, self._placed + 1
        first = max(0, (number - self._size) // self._every + 1)
        last = number // self._every
        for index in range(first, last + 1):
            window = self._open.setdefault(index, WindowRows(member.row.at(), index=index))
            window.add(member)
            window.end, member.held = member.row.at(), True
        full = [index for index, window in self._open.items() if len(window.members) == self._size]
        return self._emit([self._open.pop(index) for index in full])

    def _emit(self, windows: Iterable[WindowRows]) -> list[WindowRows]:
        emitted = list(windows)
        for window in emitted:
            for member in window.members:
                member.passed = True
        return emitted
