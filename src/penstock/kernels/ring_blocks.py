"""The memory of rings: blocks of cells that grow with what they must hold, and move with it."""

from __future__ import annotations

import numpy as np

from penstock.kernels.arena import Arena
from penstock.kernels.cells import BASE, CLEAN, END, FIRST, GREAT, LATE_FROM, LATE_TO, MASK, SMALLEST
from penstock.kernels.ring_rows import NO_RING, Ints, cells_of, power_of_two, start


class RingBlocks:
    """Gives rings, as rows of a table, the blocks of an arena that they need."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def stretch(self, rows: Ints, lo: Ints, past: Ints) -> None:
        """Let rings hold [lo, past) as well; those that hold nothing yet begin there."""
        start(rows, lo, rows[:, MASK] < 0)
        first, end = np.minimum(rows[:, FIRST], lo), np.maximum(rows[:, END], past)
        grown = np.flatnonzero(end - first > rows[:, MASK] + 1)
        if len(grown):
            bigger = rows[grown]
            least = np.maximum(2 * (bigger[:, MASK] + 1), SMALLEST)
            self.resize(bigger, power_of_two(np.maximum((end - first)[grown], least)))
            rows[grown] = bigger
        below = lo < rows[:, CLEAN]
        rows[below, LATE_FROM] = np.minimum(rows[below, LATE_FROM], lo[below])
        touched_to = np.maximum(np.minimum(past, rows[:, CLEAN]), rows[:, FIRST])
        rows[below, LATE_TO] = np.maximum(rows[below, LATE_TO], touched_to[below])
        rows[:, FIRST], rows[:, END] = first, end

    def resize(self, rows: Ints, sizes: Ints) -> None:
        """Give rings blocks of other sizes; their trees are to be built anew."""
        old = cells_of(rows, rows[:, FIRST], rows[:, END])
        had = rows[:, MASK] >= 0
        blocks = rows[had, BASE], rows[had, MASK] + 1
        rows[:, BASE], rows[:, MASK] = self._arena.take(sizes), sizes - 1
        self._arena.move(old, cells_of(rows, rows[:, FIRST], rows[:, END]))
        self._arena.give(*blocks)
        rows[:, CLEAN], rows[:, LATE_FROM], rows[:, LATE_TO] = rows[:, FIRST], GREAT, -GREAT

    def joined(self, held: Ints, of: Ints, lo: Ints, past: Ints) -> Ints:
        """A ring for each cluster: what it had alone, one over all of [lo, past) for several, or none yet."""
        n_held = np.bincount(of, minlength=len(lo))
        rings = np.tile(NO_RING, (len(lo), 1))
        alone = n_held[of] == 1
        rings[of[alone]] = held[alone]
        several = np.flatnonzero(n_held > 1)
        if len(several):
            size = past - lo
            np.maximum.at(size, of, held[:, MASK] + 1)
            new, sizes = rings[several], power_of_two(size[several])
            new[:, BASE], new[:, MASK] = self._arena.take(sizes), sizes - 1
            new[:, FIRST], new[:, END], new[:, CLEAN] = lo[several], past[several], lo[several]
            rings[several] = new
            old, slices = held[~alone], (held[~alone, FIRST], held[~alone, END])
            self._arena.move(cells_of(old, *slices), cells_of(rings[of[~alone]], *slices))
            self._arena.give(old[:, BASE], old[:, MASK] + 1)
        return rings
