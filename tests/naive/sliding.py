"""Sliding windows the obvious way: a bucket of values per window and slot. Imports nothing of ours."""

from __future__ import annotations

import math

Row = tuple[int, int, float | None]
"""(slot, time, value or null)"""


class Sliding:
    """Windows of `size` every `every`; a row counts in those of its windows that are still open."""

    def __init__(self, size: int, every: int) -> None:
        self.size, self.every = size, every
        self.watermark = -math.inf
        self.buckets: dict[tuple[int, int], list[float | None]] = {}
        self.skipped = 0

    def add(self, rows: list[Row]) -> None:
        for slot, time, value in rows:
            found = [start for start in self.starts(time) if start + self.size > self.watermark]
            for start in found:
                self.buckets.setdefault((start, slot), []).append(value)
            self.skipped += not found

    def starts(self, time: int) -> list[int]:
        """Starts of all windows that hold a time: try the multiples of `every` around it."""
        near = range(time // self.every - self.size - 1, time // self.every + 1)
        return [k * self.every for k in near if k * self.every <= time < k * self.every + self.size]

    def leave(self, watermark: float) -> list[tuple[int, int, list[float | None]]]:
        """(start, slot, values in order of arrival) of the windows that leave, by (start, slot)."""
        self.watermark = max(self.watermark, watermark)
        leaving = sorted(key for key in self.buckets if key[0] + self.size <= self.watermark)
        return [(*key, self.buckets.pop(key)) for key in leaving]
