"""Session windows of one key: [first time, last time + gap), merged when they touch.

    gap 5     a row at 3    [3    8)
              a row at 8         [8    13)      touches: one session [3, 13)
              a row at 19                          [19   24)

A row is on time when W < time + gap + lateness; it opens a session of its own or joins those it
touches, and may bridge two. A row behind that is late unless an open session (one that has not left)
takes it in. So that the answer does not depend on the order inside a batch, the on-time rows of a round
are added first, and then the others are tried again and again until none of them touches a session.
"""

from __future__ import annotations

from dataclasses import field

from penstock.engines.reference.members import Answer, Member, Open, WindowRows, ordered
from penstock.frozen import dataclass
from penstock.timing.windows import SessionWindow, is_late_for


@dataclass(slots=True, eq=False)
class Session:
    """One open session."""

    start: int
    end: int
    rows: Open = field(default_factory=Open)

    def touches(self, start: int, end: int) -> bool:
        """Whether the two overlap, or one begins exactly where the other ends."""
        return start <= self.end and self.start <= end


class Sessions:
    """The open sessions. Invariant: no two of them touch."""

    def __init__(self, window: SessionWindow, lateness: int) -> None:
        self._gap, self._lateness = window.gap, lateness
        self._open: list[Session] = []

    def take(self, members: list[Member], before: float) -> list[tuple[Answer, int]]:
        """On-time rows first; then those that an open session takes in, until none is left that can."""
        behind = [member for member in members if self._is_behind(member, before)]
        for member in members:
            if member not in behind:
                self._add(member)
        while taken := next((member for member in behind if self._touched(member)), None):
            self._add(taken)
            behind.remove(taken)
        return [(Answer.LATE, 1) if member in behind else (Answer.TAKEN, 0) for member in members]

    def leave(self, after: float) -> list[WindowRows]:
        """Every session with W >= end + lateness."""
        gone = [session for session in self._open if is_late_for(after, session.end, self._lateness)]
        self._open = [session for session in self._open if session not in gone]
        return [_content(session) for session in gone]

    def early(self) -> list[WindowRows]:
        """The sessions that changed since they were last shown."""
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
