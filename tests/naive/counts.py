"""Count windows the slow, obvious way: a list of ordered rows per slot. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Slot:
    waiting: list[tuple[int, int]] = field(default_factory=list)  # time, number of the row
    placed: list[tuple[int, int]] = field(default_factory=list)
    n_left: int = 0
    n_shown: int = 0


class NaiveCounts:
    """Rows are numbers that the caller gives them; a window is (slot, first time, last time, index, rows)."""

    def __init__(self, size: int, every: int, lateness: int, partial: bool) -> None:
        self.size, self.every, self.lateness, self.partial = size, every, lateness, partial
        self.slots: dict[int, Slot] = {}

    def add(self, number: int, slot: int, time: int, watermark: float) -> bool:
        """Whether the row is late; otherwise it waits."""
        if watermark > time + self.lateness:
            return True
        self.slots.setdefault(slot, Slot()).waiting.append((time, number))
        return False

    def close(self, watermark: float, ended: bool) -> list[tuple[int, int, int, int, list[int]]]:
        result = []
        for name, slot in self.slots.items():
            slot.placed += sorted(row for row in slot.waiting if row[0] + self.lateness < watermark)
            slot.waiting = [row for row in slot.waiting if row[0] + self.lateness >= watermark]
            while len(slot.placed) >= slot.n_left * self.every + self.size:
                result.append(self._window(name, slot.n_left))
                slot.n_left += 1
            while ended and self.partial and len(slot.placed) > slot.n_left * self.every:
                result.append(self._window(name, slot.n_left))
                slot.n_left += 1
        return result

    def fire_early(self) -> list[tuple[int, int, int, int, list[int]]]:
        result = []
        for name, slot in self.slots.items():
            index = slot.n_left
            while len(slot.placed) > max(slot.n_shown, index * self.every):
                result.append(self._window(name, index))
                index += 1
            slot.n_shown = len(slot.placed)
        return result

    def outcomes(self) -> dict[int, str]:
        """At the end: what became of every row that was placed."""
        said = {}
        for slot in self.slots.values():
            for place, (_, number) in enumerate(slot.placed):
                indexes = range(place // self.every + 1)
                of_row = [i for i in indexes if i * self.every <= place < i * self.every + self.size]
                passed = any(i < slot.n_left for i in of_row)
                said[number] = "passed" if passed else "unfinished" if of_row else "no window"
        return said

    def _window(self, name: int, index: int) -> tuple[int, int, int, int, list[int]]:
        rows = self.slots[name].placed[index * self.every : index * self.every + self.size]
        return name, rows[0][0], rows[-1][0], index, [number for _, number in rows]
