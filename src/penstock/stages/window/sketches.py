"""Sketches of windows: what stores keep of a column per slice or session beside accumulators.

Accumulators are numbers in arrays; a sketch is an object of bounded size that takes values, a batch at a
time, and can be merged with others of its kind. `SliceSketches` keeps one per (slot, slice) for time windows,
`OpenSessions` one per session, beside the accumulators of the same windows. A batch is grouped with one sort,
then each group takes its rows at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.frozen import Frozen
from penstock.stages.rows.batch import Ints
from penstock.stages.rows.input import InputRows, Objects, Values, no_ints
from penstock.stages.rows.order import sort_indices
from penstock.stages.sketches import HllSketch, KllSketch

SketchKind = type[HllSketch] | type[KllSketch]
Cell = list[Any]
"""The sketches of one slice or session, one for each that is kept."""


class Sketch(Frozen):
    """Which sketch is kept, and the place of its values in `InputRows.values`.

    The values of an HllSketch are coupons, those of a KllSketch float64.
    """

    kind: SketchKind
    column: int


class SliceSketches:
    """A cell per slot and slice, beside the accumulators of the same slices (`TimeStore`).

    What is kept of a slice is bounded by the size of its sketches, whatever number of rows it has.
    """

    def __init__(self, sketches: Sequence[Sketch], longest: int) -> None:
        self._sketches, self._longest = tuple(sketches), longest
        self._trees: dict[int, SketchTree] = {}

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return sum(tree.nbytes for tree in self._trees.values())

    def explain(self) -> str:
        """Say how sketches are merged, and why."""
        longest = self._longest
        how = f"merged by blocks, at most {2 * longest.bit_length()} of them for {longest} slices"
        return f"a sketch per slice, {'a window is one slice' if longest == 1 else how}"

    def add(self, rows: InputRows, ids: Ints) -> None:
        """Add each row to the sketches of its slot and slice."""

        def find(slot: int, id_: int) -> Cell | None:
            return self._trees[slot].cells.get(id_) if slot in self._trees else None

        cells = update_cells(self._sketches, [rows.slots, ids], find, rows.values)
        for (slot, id_), cell in cells.items():
            self._put(slot, id_, cell)

    def _put(self, slot: int, id_: int, cell: Cell) -> None:
        if slot not in self._trees:
            self._trees[slot] = SketchTree(self._sketches, self._longest)
        self._trees[slot].put(id_, cell)

    def read(self, slots: Ints, first: Ints, past: Ints) -> tuple[Objects, ...]:
        """Return the sketches of windows, which are slices [first[i], past[i]) of slots[i] and not empty."""
        spans = zip(slots.tolist(), first.tolist(), past.tolist(), strict=True)
        return transpose_cells(
            self._sketches, [self._trees[slot].merge_range(*span) for slot, *span in spans]
        )

    def drop_before(self, id_: int) -> None:
        """Drop the slices before this one."""
        for tree in self._trees.values():
            tree.drop_before(id_)
        self._trees = {slot: tree for slot, tree in self._trees.items() if tree.ids}

    def export(self, slots: Ints, ids: Ints) -> dict[str, pa.Array]:
        """Return the sketches of some slices as Arrow columns."""
        names = zip(slots.tolist(), ids.tolist(), strict=True)
        return export_sketches(self._sketches, [self._trees[slot].cells[id_] for slot, id_ in names])

    def load(self, saved: pa.RecordBatch, slots: Ints, ids: Ints) -> None:
        """Take over exported sketches, in their order, under these slots and slices."""
        cells = load_sketches(self._sketches, saved)
        for slot, id_, cell in zip(slots.tolist(), ids.tolist(), cells, strict=True):
            self._put(slot, id_, cell)


class SketchTree:
    """The sketches of one slot's slices, and of pairs of them, pairs of pairs, and so on.

        slices   8 9 10 11 12 13         a window over slices 9 to 13 merges
        blocks    .  [---] [---]         slice 9, the block of 10 and 11, the block of 12 and 13

    A window is merged from the largest blocks that lie in it: of n slices at most 2 log n blocks. Blocks are
    built when a window first needs them, and serve all windows over them until one of their slices changes;
    so each slice is merged about once per level, and late rows cost no more than others.

    ids  the numbers of the slices, in order
    """

    __slots__ = ("_blocks", "_levels", "_sizes", "_sketches", "cells", "ids", "nbytes")

    def __init__(self, sketches: Sequence[Sketch], longest: int) -> None:
        self._sketches, self._levels = sketches, longest.bit_length() - 1
        self.ids: list[int] = []
        self.cells: dict[int, Cell] = {}
        self._sizes: dict[int, int] = {}
        self._blocks: dict[tuple[int, int], Cell] = {}
        self.nbytes = 0

    def put(self, id_: int, cell: Cell) -> None:
        """Set the cell of a slice; blocks over it must be built anew."""
        if id_ not in self.cells:
            insort(self.ids, id_)
        self.cells[id_] = cell
        size = cell_nbytes(cell)
        self.nbytes += size - self._sizes.get(id_, 0)
        self._sizes[id_] = size
        self._forget_blocks(id_)

    def drop_before(self, id_: int) -> None:
        """Drop the slices before this one."""
        n_gone = bisect_left(self.ids, id_)
        for gone in self.ids[:n_gone]:
            del self.cells[gone]
            self.nbytes -= self._sizes.pop(gone)
            self._forget_blocks(gone)
        del self.ids[:n_gone]

    def merge_range(self, first: int, past: int) -> Cell:
        """Return the cell of slices [first, past), of which at least one is there."""
        parts = []
        while first < past:
            # The largest block that begins here and ends in time; at 0 blocks of every level begin.
            level = (past - first).bit_length() - 1
            if first:
                level = min(level, (first & -first).bit_length() - 1)
            until = first + (1 << level)
            start, end = bisect_left(self.ids, first), bisect_left(self.ids, until)
            if start < end:
                parts.append(self._block(level, first >> level, start, end))
            first = until
        return merge_cells(self._sketches, parts)

    def _block(self, level: int, number: int, start: int, end: int) -> Cell:
        """Return the cell of a block, whose slices are ids[start:end]; at least one."""
        if end - start == 1:
            return self.cells[self.ids[start]]
        block = self._blocks.get((level, number))
        if block is None:
            middle = bisect_left(self.ids, (2 * number + 1) << (level - 1), start, end)
            if middle in (start, end):
                return self._block(level - 1, 2 * number + (middle == start), start, end)
            halves = [
                self._block(level - 1, 2 * number, start, middle),
                self._block(level - 1, 2 * number + 1, middle, end),
            ]
            block = self._blocks[level, number] = merge_cells(self._sketches, halves)
            self.nbytes += cell_nbytes(block)
        return block

    def _forget_blocks(self, id_: int) -> None:
        if self._blocks:
            for level in range(1, self._levels + 1):
                block = self._blocks.pop((level, id_ >> level), None)
                if block is not None:
                    self.nbytes -= cell_nbytes(block)


def update_cells(
    sketches: Sequence[Sketch],
    keys: Sequence[Ints],
    find: Callable[..., Cell | None],
    values: Sequence[Values],
) -> dict[tuple[int, ...], Cell]:
    """Return the cell of each group of rows with the rows added, by the group's keys; nulls are in no sketch.

    Rows are grouped by all keys, with one sort. `find` returns the cell that a group has; None is a new cell.
    """
    order: Any = sort_indices(keys)
    n_rows = len(order)
    if (order[1:] > order[:-1]).all():
        order = slice(None)  # they stand in order
    ordered = [key[order] for key in keys]
    new = np.logical_or.reduce([key[1:] != key[:-1] for key in ordered])
    heads = np.append(0, np.flatnonzero(new) + 1) if n_rows else no_ints()
    numbers = np.repeat(np.arange(len(heads)), np.diff(heads, append=n_rows))
    names = list(zip(*(key[heads].tolist() for key in ordered), strict=True))
    held = [find(*name) for name in names]
    cells: list[Cell] = [[] for _ in names]
    for place, sketch in enumerate(sketches):
        column = values[sketch.column]
        data, groups = column.data[order], numbers
        if column.valid is not None:
            valid = column.valid[order]
            data, groups = data[valid], groups[valid]
        before = [None if cell is None else cell[place] for cell in held]
        for cell, updated in zip(cells, sketch.kind.update(before, groups, data), strict=True):
            cell.append(updated)
    return dict(zip(names, cells, strict=True))


def merge_cells(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> Cell:
    """Merge several cells into one; a single cell is returned as it is."""
    if len(cells) == 1:
        return cells[0]
    return [sketch.kind.merge([cell[i] for cell in cells]) for i, sketch in enumerate(sketches)]


def cell_nbytes(cell: Cell) -> int:
    """Return the memory of a cell, with about what Python needs for its objects."""
    return 128 + sum(128 + int(sketch.nbytes) for sketch in cell)


def transpose_cells(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> tuple[Objects, ...]:
    """Return for each sketch that is kept an array of those of all cells."""
    columns = tuple(np.empty(len(cells), np.object_) for _ in sketches)
    for place, column in enumerate(columns):
        for i, cell in enumerate(cells):
            column[i] = cell[place]
    return columns


def export_sketches(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> dict[str, pa.Array]:
    """Return cells as Arrow columns."""
    return {
        f"sketch {place}": pa.array([cell[place].to_bytes() for cell in cells], pa.binary())
        for place in range(len(sketches))
    }


def load_sketches(sketches: Sequence[Sketch], saved: pa.RecordBatch) -> list[Cell]:
    """Read exported cells, in their order."""
    columns = [
        [sketch.kind.from_bytes(data) for data in saved.column(f"sketch {place}").to_pylist()]
        for place, sketch in enumerate(sketches)
    ]
    return [list(cell) for cell in zip(*columns, strict=True)]
