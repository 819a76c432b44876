"""Count windows of one key: window i holds the rows i * every to i * every + size - 1, in order.

    size 3, every 2     rows    0  1  2  3  4  5
                        window 0 [-----)
                        window 1       [-----)

Rows are put in order once no earlier one can come: when time + lateness < W. A row that comes after
that is late. A window leaves when it is full; its start and end are the times of its first and last row,
and its result has the time of its last row. With every > size some rows are in no window.
"""

from __future__ import annotations

from penstock.engines.reference.members import Answer, Member, Open, WindowRows, ordered
from penstock.timing.windows import CountWindow


class CountWindows:
    """The rows that wait to be put in order, and the windows that are not full."""

    def __init__(self, window: CountWindow, lateness: int, *, partial: bool) -> None:
        self._size, self._every, self._lateness = window.size, window.every, lateness
        self._partial = partial
        self._waiting: list[Member] = []
        self._placed = 0
        self._open: dict[int, Open] = {}

    def take(self, members: list[Member], before: float) -> list[tuple[Answer, int]]:
        """A row waits for its place unless rows of its time are placed already."""
        late = [before > member.row.at() + self._lateness for member in members]
        self._waiting += [member for member, is_late in zip(members, late, strict=True) if not is_late]
        return [(Answer.LATE, 1) if is_late else (Answer.TAKEN, 0) for is_late in late]

    def leave(self, after: float) -> list[WindowRows]:
        """Place what the watermark has passed; every window that gets full leaves."""
        ready = [member for member in self._waiting if member.row.at() + self._lateness < after]
        self._waiting = [member for member in self._waiting if member.row.at() + self._lateness >= after]
        return [content for member in ordered(ready) for content in self._place(member)]

    def early(self) -> list[WindowRows]:
        """The windows that are not full and changed since they were last shown."""
        changed = {index: window for index, window in self._open.items() if window.changed}
        for window in changed.values():
            window.changed = False
        return [_content(index, window) for index, window in changed.items()]

    def rest(self) -> list[WindowRows]:
        """At the end of the stream: the windows that are not full, if they were asked for."""
        left, self._open = self._open, {}
        for window in left.values():
            for member in window.members:
                member.passed = member.passed or self._partial
        return [_content(index, window) for index, window in left.items()] if self._partial else []

    def _place(self, member: Member) -> list[WindowRows]:
        """Put the next row into its windows; give those that it fills."""
        number, self._placed = self._placed, self._placed + 1
        first = max(0, (number - self._size) // self._every + 1)
        last = number // self._every
        full = []
        for index in range(first, last + 1):
            window = self._open.setdefault(index, Open())
            window.add([member])
            member.held = True
            if len(window.members) == self._size:
                full.append(_content(index, self._open.pop(index)))
        for content in full:
            for each in content.members:
                each.passed = True
        return full


def _content(index: int, window: Open) -> WindowRows:
    start, end = window.members[0].row.at(), window.members[-1].row.at()
    return WindowRows(start, end, end, tuple(window.members), index)
