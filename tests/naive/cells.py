"""Rows into the cells of rings, one by one in plain integers. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field

SMALLEST = 4


@dataclass
class Ring:
    """The slices [first, end) of a slot, in `size` cells from `base` on.

    The tree holds those before `clean`; `late` are such slices that have changed since. With `far` the slot
    has further rings, and this one must not grow.
    """

    base: int
    size: int
    first: int
    end: int
    clean: int
    far: bool = False
    late: set[int] = field(default_factory=set)

    def has_room(self, slice_: int) -> bool:
        """Whether the ring can hold a slice, also one that it does not hold yet."""
        if self.first <= slice_ < self.end:
            return True
        return not self.far and max(self.end, slice_ + 1) - min(self.first, slice_) <= self.size

    def hold(self, slice_: int) -> int:
        """Hold a slice; its cell."""
        if slice_ < self.first:
            self.late |= {
                slice_number for slice_number in range(slice_, self.first) if slice_number < self.clean
            }
        self.first, self.end = min(self.first, slice_), max(self.end, slice_ + 1)
        if slice_ < self.clean:
            self.late.add(slice_)
        return self.base + slice_ % self.size


@dataclass
class Placement:
    """Where the rows went, up to the one that found no room; None for a late row."""

    stopped: int
    cells: list[int | None]


def slice_number(time: int, period: int, offsets: list[int]) -> int:
    """Slices are counted from 0 at time 0; each period is cut at the offsets, the first of which is 0."""
    return time // period * len(offsets) + sum(offset <= time % period for offset in offsets) - 1


def place(
    rows: list[tuple[int, int]],
    open_from: int,
    period: int,
    offsets: list[int],
    rings: dict[int, Ring],
    spare: list[int],
) -> Placement:
    """Put (slot, time) rows into rings, starting new ones in spare blocks; rings and spare are changed."""
    cells: list[int | None] = []
    for slot, time in rows:
        if time < open_from:
            cells.append(None)
            continue
        slice_ = slice_number(time, period, offsets)
        if slot not in rings:
            if not spare:
                break
            rings[slot] = Ring(spare.pop(), SMALLEST, slice_, slice_, slice_)
        if not rings[slot].has_room(slice_):
            break
        cells.append(rings[slot].hold(slice_))
    return Placement(len(cells), cells)
