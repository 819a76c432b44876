"""A sketch of a column: what a store keeps of it per slice or session beside its registers.

Registers are numbers in arrays; a sketch is an object of bounded size that takes values, a batch of them at a
time, and can be merged with others of its kind.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.order import sort_indices
from penstock.stages.rows.store import PLACE, ints_of, places_of
from penstock.stages.sketches.hll import HllSketch
from penstock.stages.sketches.kll import KllSketch
from penstock.stages.window.row_store import decide_rows, windows_between
from penstock.stages.window.store import (
    ENDED,
    NEVER,
    ClosedWindows,
    Decided,
    InputRows,
    StateBatches,
    Values,
    no_ints,
)
from penstock.timing.slices import Slicing, first_open

SketchKind = type[HllSketch] | type[KllSketch]
Cell = list[Any]
"""The summaries of one slice or session, one for each sketch that is kept."""
Summaries = npt.NDArray[np.object_]
"""One summary for each of several windows."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """One sketch: what it is made as, and the place of its values in `Arriving.values`.

    Of Distinct the values are coupons (`coupons.py`), of Ranks float64.
    """

    kind: SketchKind
    column: int


class GroupedRows:
    """Rows put together by some numbers of each, with one sort."""

    def __init__(self, keys: Sequence[Ints]) -> None:
        places = sort_indices(keys)
        self._order = None if (places[1:] > places[:-1]).all() else places
        self.keys = [self._sorted(key) for key in keys]
        new = np.logical_or.reduce([key[1:] != key[:-1] for key in self.keys])
        heads = np.append(0, np.flatnonzero(new) + 1) if len(places) else places
        self._numbers = np.repeat(np.arange(len(heads)), np.diff(heads, append=len(places)))
        self.names = [key[heads] for key in self.keys]

    def _sorted(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array if self._order is None else array[self._order]

    def add(
        self, sketches: Sequence[Sketch], held: Sequence[Cell | None], values: Sequence[Values]
    ) -> list[Cell]:
        """The cell of each group with its rows in it; None is a new cell. Nulls are in no sketch."""
        found: list[list[Any]] = [[] for _ in held]
        for place, sketch in enumerate(sketches):
            given = values[sketch.column]
            data, groups = self._sorted(given.data), self._numbers
            if given.valid is not None:
                valid = self._sorted(given.valid)
                data, groups = data[valid], groups[valid]
            mine = [None if cell is None else cell[place] for cell in held]
            for cell, summary in zip(found, sketch.kind.added(mine, groups, data), strict=True):
                cell.append(summary)
        return found


def merge_cells(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> Cell:
    """Several cells as one; one alone is itself."""
    if len(cells) == 1:
        return cells[0]
    return [sketch.kind.merged([cell[i] for cell in cells]) for i, sketch in enumerate(sketches)]


def cell_nbytes(cell: Cell) -> int:
    """The memory of a cell, with about what Python needs for it."""
    return 128 + sum(128 + int(summary.nbytes) for summary in cell)


def cell_columns(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> tuple[Summaries, ...]:
    """Cells turned round: for each sketch the summaries of all cells."""
    found = tuple(np.empty(len(cells), np.object_) for _ in sketches)
    for place, column in enumerate(found):
        for i, cell in enumerate(cells):
            column[i] = cell[place]
    return found


def export_cells(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> dict[str, pa.Array]:
    """Cells as Arrow columns."""
    return {
        f"sketch {place}": pa.array([cell[place].to_bytes() for cell in cells], pa.binary())
        for place in range(len(sketches))
    }


def load_cells(sketches: Sequence[Sketch], saved: pa.RecordBatch) -> list[Cell]:
    """Saved cells back, in their order."""
    columns = [
        [sketch.kind.from_bytes(data) for data in saved.column(f"sketch {place}").to_pylist()]
        for place, sketch in enumerate(sketches)
    ]
    return [list(cell) for cell in zip(*columns, strict=True)]


# The sketches of one slot's slices, and of pairs of them, pairs of pairs, and so on.
#
# A window is put together from the largest blocks that lie in it: of n slices at most 2 log n blocks. Blocks
# are made when a window first needs them, and serve all windows over them until one of their slices changes;
# so each slice is merged about once per level, and late rows cost no more than others.
#
# slices   8 9 10 11 12 13         a window over slices 9 to 13 merges
# blocks    .  [---] [---]         slice 9, the block of 10 and 11, the block of 12 and 13


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
        size = cell_nbytes(cell)
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
        return merge_cells(self._sketches, parts)

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
            found = self._blocks[level, number] = merge_cells(self._sketches, halves)
            self.nbytes += cell_nbytes(found)
        return found

    def _forget_blocks(self, id_: int) -> None:
        if self._blocks:
            for level in range(1, self._levels + 1):
                block = self._blocks.pop((level, id_ >> level), None)
                if block is not None:
                    self.nbytes -= cell_nbytes(block)


# The store of sketches of time windows: one per (slot, slice), merged into windows when these leave.
#
# It stands beside the registers of the same windows (`slices.py`) and lets the same ones leave. A batch is
# put together by (slot, slice) with one sort; then each slice that got rows takes them at once. What is
# kept of a slice is bounded by the size of its sketches, whatever number of rows it has.


class SketchStore:
    """Sketches of time windows of kinds that share slices, for all keys.

    Each watermark given to `take` is the one that `leave` was last given.
    """

    def __init__(self, slicing: Slicing, lateness: int, sketches: Sequence[Sketch]) -> None:
        self._slicing, self._lateness, self._sketches = slicing, lateness, tuple(sketches)
        self._trees: dict[int, SketchTree] = {}
        self._left_to = NEVER  # windows with end + lateness up to here have left

    @property
    def n_kinds(self) -> int:
        """How many kinds of window."""
        return len(self._slicing.windows)

    def explain(self) -> tuple[str, ...]:
        """For each kind: how sketches are put together, and why."""
        longest = self._slicing.longest
        way = f"merged by blocks, at most {2 * longest.bit_length()} of them for {longest} slices"
        how = "a window is one slice" if longest == 1 else way
        return tuple(f"a sketch per slice, {how}" for _ in self._slicing.windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(tree.nbytes for tree in self._trees.values())

    def has_state(self, slots: Ints) -> Mask:
        """Which of these slots have slices that an open window needs."""
        return np.array([slot in self._trees for slot in slots.tolist()], np.bool_)

    def add(self, arriving: InputRows, watermark: int) -> Decided | None:
        """Judge rows and put what is not late into the sketches of its slices."""
        times, windows = arriving.times, self._slicing.windows
        open_from = self._slicing.open_from(watermark, self._lateness)
        behind = times.min(initial=ENDED) < max(open_from, watermark - self._lateness)
        hopping = any(window.every > window.size for window in windows)
        if not behind and not hopping:
            self._add(arriving)
            return None
        taken = times >= open_from
        if self._slicing.has_gaps:
            taken &= ~self._slicing.outside(times)
        self._add(arriving if taken.all() else arriving.at(np.flatnonzero(taken)))
        return decide_rows(windows, self._lateness, times, watermark)

    def _add(self, rows: InputRows) -> None:
        groups = GroupedRows([rows.slots, self._slicing.ids(rows.times)])
        names = list(zip(*(each.tolist() for each in groups.names), strict=True))
        held = [self._cell(*name) for name in names]
        for (slot, id_), cell in zip(names, groups.add(self._sketches, held, rows.values), strict=True):
            self._tree(slot).put(id_, cell)

    def _cell(self, slot: int, id_: int) -> Cell | None:
        tree = self._trees.get(slot)
        return None if tree is None else tree.cells.get(id_)

    def _tree(self, slot: int) -> SketchTree:
        if slot not in self._trees:
            self._trees[slot] = SketchTree(self._sketches, self._slicing.longest)
        return self._trees[slot]

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Every window with end + lateness <= watermark, and the slices that only they needed."""
        before, self._left_to = self._left_to, max(self._left_to, watermark)
        if not any(
            first_open(window, watermark, self._lateness) > first_open(window, before, self._lateness)
            for window in self._slicing.windows
        ):
            return self._given([], NEVER, NEVER)
        upto = watermark - self._lateness
        past = self._slicing.id_of(upto)
        begun = [slot for slot, tree in self._trees.items() if tree.ids[0] <= past]
        left = self._given(begun, before - self._lateness, upto)
        return replace(left, touched=self._forgotten(begun))

    def _forgotten(self, slots: Sequence[int]) -> Ints:
        """Let go of the slices that no open window needs; gives the slots that have none left."""
        needed = self._slicing.id_of(self._slicing.open_from(self._left_to, self._lateness))
        emptied = []
        for slot in slots:
            self._trees[slot].drop_before(needed)
            if not self._trees[slot].ids:
                del self._trees[slot]
                emptied.append(slot)
        return np.array(emptied, np.int64)

    def fire_early(self) -> ClosedWindows:
        """The open windows that have got rows since they were last shown."""
        left = self._given(sorted(self._trees), self._left_to - self._lateness, ENDED, only_fresh=True)
        for tree in self._trees.values():
            tree.fresh.clear()
        return left

    def _given(
        self, slots: Sequence[int], after: int, upto: int, *, only_fresh: bool = False
    ) -> ClosedWindows:
        """The windows of some slots with after < end <= upto."""
        owners, ids, fresh = self._slices(slots)
        times = self._slicing.starts(ids)
        kinds, starts, lo, hi = windows_between(self._slicing.windows, owners, times, after, upto)
        if only_fresh:
            n_fresh = np.append(0, np.cumsum(fresh))
            chosen = n_fresh[hi] > n_fresh[lo]
            kinds, starts, lo, hi = kinds[chosen], starts[chosen], lo[chosen], hi[chosen]
        spans = zip(owners[lo].tolist(), ids[lo].tolist(), (ids[hi - 1] + 1).tolist(), strict=True)
        cells = [self._trees[slot].total(first, past) for slot, first, past in spans]
        ends = starts + np.array([window.size for window in self._slicing.windows], np.int64)[kinds]
        sketches = cell_columns(self._sketches, cells)
        return ClosedWindows(kinds, owners[lo], starts, ends, ends - 1, sketches=sketches)

    def _slices(self, slots: Sequence[int]) -> tuple[Ints, Ints, Mask]:
        """(slot, number, whether it is fresh) of all slices of some slots, slot by slot and in order."""
        trees = [self._trees[slot] for slot in slots]
        owners = np.repeat(np.array(slots, np.int64), [len(tree.ids) for tree in trees])
        ids = [id_ for tree in trees for id_ in tree.ids]
        fresh = [id_ in tree.fresh for tree in trees for id_ in tree.ids]
        return owners, np.array(ids, np.int64), np.array(fresh, np.bool_)

    def export(self, slots: Ints) -> StateBatches:
        """The slices of these slots."""
        owners, ids, fresh = self._slices([slot for slot in slots.tolist() if slot in self._trees])
        named = zip(owners.tolist(), ids.tolist(), strict=True)
        columns = {
            PLACE: pa.array(places_of(owners, slots) if len(owners) else no_ints()),
            "slice": pa.array(ids),
            "fresh": pa.array(fresh),
            "left_to": pa.array(np.full(len(ids), self._left_to, np.int64)),
            **export_cells(self._sketches, [self._trees[slot].cells[id_] for slot, id_ in named]),
        }
        return {"sketches": pa.RecordBatch.from_pydict(columns)}

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up exported slices: what was at place i now belongs to slots[i]."""
        batch = saved["sketches"]
        if batch.num_rows == 0:
            return
        self._left_to = max(self._left_to, int(ints_of(batch, "left_to").max()))
        owners, ids = slots[ints_of(batch, PLACE)].tolist(), ints_of(batch, "slice").tolist()
        fresh, cells = batch.column("fresh").to_pylist(), load_cells(self._sketches, batch)
        for slot, id_, is_fresh, cell in zip(owners, ids, fresh, cells, strict=True):
            self._tree(slot).put(id_, cell, fresh=is_fresh)


# Sketches of numbered things, such as sessions: what `cell_room.py` is for registers.


class SessionSketches:
    """A cell per number in use; without sketches there are none, and nothing takes any time."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._sketches = tuple(sketches)
        self._cells: dict[int, Cell] = {}

    def __bool__(self) -> bool:
        return bool(self._sketches)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(map(cell_nbytes, self._cells.values()))

    def fill(self, numbers: Ints, rows: InputRows) -> None:
        """Put each row into the sketches of its number."""
        if not self._sketches or not len(numbers):
            return
        groups = GroupedRows([numbers])
        names = groups.names[0].tolist()
        held = [self._cells.get(name) for name in names]
        cells = groups.add(self._sketches, held, rows.values)
        self._cells.update(zip(names, cells, strict=True))

    def join(self, lost: Ints, kept: Ints) -> None:
        """Put the sketches of lost numbers into those they were joined to, which may be new."""
        if not self._sketches:
            return
        for gone, into in zip(lost.tolist(), kept.tolist(), strict=True):
            parts = [self._cells[each] for each in (into, gone) if each in self._cells]
            self._cells.pop(gone, None)
            if parts:
                self._cells[into] = merge_cells(self._sketches, parts)

    def read(self, numbers: Ints) -> tuple[Summaries, ...]:
        """The summaries of some numbers, sketch by sketch."""
        return cell_columns(self._sketches, self._of(numbers))

    def clear(self, numbers: Ints) -> None:
        """These numbers are not in use any more."""
        for number in numbers.tolist() if self._sketches else ():
            del self._cells[number]

    def pack(self, old: Ints) -> None:
        """What had the number old[i] now has the number i."""
        self._cells = dict(enumerate(self._of(old)))

    def saved(self, numbers: Ints) -> dict[str, pa.Array]:
        """The sketches of some numbers as Arrow columns."""
        return export_cells(self._sketches, self._of(numbers))

    def load(self, saved: pa.RecordBatch, numbers: Ints) -> None:
        """Take up saved sketches, in their order, under other numbers."""
        self._cells.update(zip(numbers.tolist(), load_cells(self._sketches, saved), strict=False))

    def _of(self, numbers: Ints) -> list[Cell]:
        return [self._cells[number] for number in numbers.tolist()] if self._sketches else []
