"""The sketches of one slot's slices, and of pairs of them, pairs of pairs, and so on.

A window is put together from the largest blocks that lie in it: of n slices at most 2 log n blocks. Blocks
are made when a window first needs them, and serve all windows over them until one of their slices changes;
so each slice is merged about once per level, and late rows cost no more than others.

    slices   8 9 10 11 12 13         a window over slices 9 to 13 merges
    blocks    .  [---] [---]         slice 9, the block of 10 and 11, the block of 12 and 13
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from penstock.stages.sketch import Cell, Sketch, merged, nbytes_of


class SketchTree:
    """Slices by number, in order; `fresh` are those that got rows since windows were last shown early."""

    __slots__ = ("_blocks", "_levels", "_sizes", "_sketches", "cells", "fresh", "ids", "nbytes")

    def __init__(self, sketches: Sequence[Sketch], longest: int) -> None:
        self._sketches, self._levels = sketches, longest.bit_length() - 1
        self.ids: list[int] = []
        self.cells: dict[int, Cell] = {}
        self.fresh: set[int] = set()
        self._sizes: dict[int, int] = {}
        self._blocks: dict[tuple[int, int], Cell] = {}
        self.nbytes = 0

    def put(self, id_: int, cell: Cell, *, fresh: bool = True) -> None:
        """The slice has this cell now; blocks over it are to be made anew."""
        if id_ not in self.cells:
            insort(self.ids, id_)
        self.cells[id_] = cell
        if fresh:
            self.fresh.add(id_)
        size = nbytes_of(cell)
        self.nbytes += size - self._sizes.get(id_, 0)
        self._sizes[id_] = size
        self._forget_blocks(id_)

    def drop_before(self, id_: int) -> None:
        """Let go of the slices before this one."""
        n_gone = bisect_left(self.ids, id_)
        for gone in self.ids[:n_gone]:
            del self.cells[gone]
            self.fresh.discard(gone)
            self.nbytes -= self._sizes.pop(gone)
            self._forget_blocks(gone)
        del self.ids[:n_gone]

    def total(self, first: int, past: int) -> Cell:
        """The cell of slices [first, past), of which one at least is there."""
        parts = []
        while first < past:
            # The largest block that begins here and ends in time; every number of levels fits 0.
            level = (past - first).bit_length() - 1
            if first:
                level = min(level, (first & -first).bit_length() - 1)
            until = first + (1 << level)
            start, end = bisect_left(self.ids, first), bisect_left(self.ids, until)
            if start < end:
                parts.append(self._block(level, first >> level, start, end))
            first = until
        return merged(self._sketches, parts)

    def _block(self, level: int, number: int, start: int, end: int) -> Cell:
        """The cell of a block, whose slices are ids[start:end]; at least one."""
        if end - start == 1:
            return self.cells[self.ids[start]]
        found = self._blocks.get((level, number))
        if found is None:
            middle = bisect_left(self.ids, (2 * number + 1) << (level - 1), start, end)
            if middle in (start, end):
                return self._block(level - 1, 2 * number + (middle == start), start, end)
            halves = [
                self._block(level - 1, 2 * number, start, middle),
                self._block(level - 1, 2 * number + 1, middle, end),
            ]
            found = self._blocks[level, number] = merged(self._sketches, halves)
            self.nbytes += nbytes_of(found)
        return found

    def _forget_blocks(self, id_: int) -> None:
        if self._blocks:
            for level in range(1, self._levels + 1):
                block = self._blocks.pop((level, id_ >> level), None)
                if block is not None:
                    self.nbytes -= nbytes_of(block)
