"""Sessions the slow, obvious way: one row at a time, a list per slot. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Session:
    start: int
    end: int
    rows: list[int] = field(default_factory=list)
    changed: bool = True


class NaiveSessions:
    """Rows are numbers that the caller gives them; a window that leaves is (slot, start, end, rows)."""

    def __init__(self, gap: int, lateness: int) -> None:
        self.gap, self.lateness = gap, lateness
        self.open: dict[int, list[Session]] = {}

    def add(self, rows: list[tuple[int, int, int]], watermark: float) -> list[bool]:
        """Rows as (number, slot, time); says which are late."""
        behind = []
        for number, slot, time in rows:
            if watermark >= time + self.gap + self.lateness:
                behind.append((number, slot, time))
            else:
                self._add_row(number, slot, time)
        again = True
        while again:
            again = False
            for row in list(behind):
                if self.find_touched(row[1], row[2]):
                    self._add_row(*row)
                    behind.remove(row)
                    again = True
        late = {number for number, _, _ in behind}
        return [number in late for number, _, _ in rows]

    def find_touched(self, slot: int, time: int) -> list[Session]:
        return [s for s in self.open.get(slot, []) if time <= s.end and s.start <= time + self.gap]

    def _add_row(self, number: int, slot: int, time: int) -> None:
        joined = Session(time, time + self.gap, [number])
        for session in self.find_touched(slot, time):
            joined.start = min(joined.start, session.start)
            joined.end = max(joined.end, session.end)
            joined.rows += session.rows
            self.open[slot].remove(session)
        self.open.setdefault(slot, []).append(joined)

    def close(self, watermark: float) -> list[tuple[int, int, int, list[int]]]:
        gone = []
        for slot, sessions in self.open.items():
            gone += [(slot, s.start, s.end, s.rows) for s in sessions if watermark >= s.end + self.lateness]
            self.open[slot] = [s for s in sessions if watermark < s.end + self.lateness]
        return gone

    def fire_early(self) -> list[tuple[int, int, int, list[int]]]:
        changed = [(slot, s) for slot, sessions in self.open.items() for s in sessions if s.changed]
        for _, session in changed:
            session.changed = False
        return [(slot, s.start, s.end, s.rows) for slot, s in changed]
