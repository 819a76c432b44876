"""Time windows of one key: tumbling, sliding and hopping.

    size 10, every 5                0    5    10   15   20
    a row at 7 is in two windows    [--------7--)
                                         [---7-----)

A row counts in each of its windows that is still open (W < end + lateness). It is late when it had
windows and all have left; every window that it missed is counted. A window leaves once, when
W >= end + lateness; its result has the time end - 1.
"""

from __future__ import annotations

from penstock.engines.reference.members import Answer, Member, Open, WindowRows, ordered
from penstock.timing.windows import TimeWindow, is_late_for


class TimeWindows:
    """The open windows, by start. Windows without rows do not exist."""

    def __init__(self, window: TimeWindow, lateness: int) -> None:
        self._window, self._lateness = window, lateness
        self._open: dict[int, Open] = {}

    def take(self, members: list[Member], before: float) -> list[tuple[Answer, int]]:
        """Each row by itself: time windows do not depend on other rows."""
        return [self._take_one(member, before) for member in members]

    def _take_one(self, member: Member, before: float) -> tuple[Answer, int]:
        starts = self._window.starts(member.row.at())
        still_open = [s for s in starts if not is_late_for(before, s + self._window.size, self._lateness)]
        for start in still_open:
            self._open.setdefault(start, Open()).add([member])
        misses = len(starts) - len(still_open)
        if still_open:
            return Answer.TAKEN, misses
        return (Answer.LATE if starts else Answer.GAP), misses

    def leave(self, after: float) -> list[WindowRows]:
        """Every window with W >= end + lateness."""
        gone = [s for s in self._open if is_late_for(after, s + self._window.size, self._lateness)]
        return [self._content(start, self._open.pop(start)) for start in gone]

    def early(self) -> list[WindowRows]:
        """The windows that changed since they were last shown."""
        changed = [(start, window) for start, window in self._open.items() if window.changed]
        for _, window in changed:
            window.changed = False
        return [self._content(start, window) for start, window in changed]

    def rest(self) -> list[WindowRows]:
        """Nothing: the watermark +infinity closes every time window."""
        return []

    def _content(self, start: int, window: Open) -> WindowRows:
        end = start + self._window.size
        return WindowRows(start, end, end - 1, ordered(window.members))
