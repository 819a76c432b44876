"""Time windows the obvious way: a list of rows per window, all windows looked at. Imports nothing of ours."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A row: its key's number, its time, its place among equal times, an integer and a float (None: null)."""

    slot: int
    time: int
    order: int
    whole: int | None
    real: float | None


Place = tuple[int, int, int]
"""(kind, slot, start) of a window."""


class Buckets:
    """A bucket of rows per open window; windows are (size, every)."""

    def __init__(self, windows: list[tuple[int, int]], lateness: int) -> None:
        self.windows, self.lateness = windows, lateness
        self.open: dict[Place, list[Row]] = {}
        self.watermark = -(2**62)

    def add(self, row: Row) -> list[tuple[str, int]]:
        """Put a row into its open windows; per kind what becomes of it and how many windows it missed."""
        said = []
        for kind, (size, every) in enumerate(self.windows):
            starts = [start for start in range(row.time - size + 1, row.time + 1) if start % every == 0]
            still = [start for start in starts if start + size + self.lateness > self.watermark]
            for start in still:
                self.open.setdefault((kind, row.slot, start), []).append(row)
            said.append(("admitted" if still else "late" if starts else "gap", len(starts) - len(still)))
        return said

    def close(self, watermark: int) -> dict[Place, list[Row]]:
        """The windows that the watermark has passed, with their rows."""
        self.watermark = max(self.watermark, watermark)
        gone = {
            place: rows
            for place, rows in self.open.items()
            if self.watermark >= place[2] + self.windows[place[0]][0] + self.lateness
        }
        for place in gone:
            del self.open[place]
        return gone

    def slots_in_use(self) -> set[int]:
        """Slots with an open window that has rows."""
        return {slot for _, slot, _ in self.open}
