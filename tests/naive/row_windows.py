"""Time windows that keep rows, the slow, obvious way: a list of rows per window. Imports nothing of ours."""

from __future__ import annotations

Window = tuple[int, int, int, int]  # kind, slot, start, end


class NaiveRowWindows:
    """Kinds are (size, every); rows are numbers that the caller gives them."""

    def __init__(self, kinds: list[tuple[int, int]], lateness: int) -> None:
        self.kinds, self.lateness = kinds, lateness
        self.open: dict[Window, list[int]] = {}
        self.changed: set[Window] = set()

    def add(self, number: int, slot: int, time: int, watermark: float) -> list[tuple[int, int]]:
        """(open windows, windows missed) of the row, per kind."""
        return [self._take(kind, number, slot, time, watermark) for kind in range(len(self.kinds))]

    def _take(self, kind: int, number: int, slot: int, time: int, watermark: float) -> tuple[int, int]:
        size, every = self.kinds[kind]
        n_open = n_missed = 0
        start = (time - size) // every * every - every
        while start <= time:
            if start <= time < start + size:
                if watermark >= start + size + self.lateness:
                    n_missed += 1
                else:
                    n_open += 1
                    window = (kind, slot, start, start + size)
                    self.open.setdefault(window, []).append(number)
                    self.changed.add(window)
            start += every
        return n_open, n_missed

    def close(self, watermark: float) -> list[tuple[Window, list[int]]]:
        gone = [window for window in self.open if watermark >= window[3] + self.lateness]
        self.changed -= set(gone)
        return [(window, self.open.pop(window)) for window in gone]

    def fire_early(self) -> list[tuple[Window, list[int]]]:
        windows = sorted(self.changed)
        self.changed = set()
        return [(window, self.open[window]) for window in windows]
