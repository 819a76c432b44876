"""The store of sketches of time windows: one per (slot, slice), merged into windows when these leave.

It stands beside the registers of the same windows (`slices.py`) and lets the same ones leave. A batch is put
together by (slot, slice) with one sort; then each slice that got rows takes them at once. What is kept of a
slice is bounded by the size of its sketches, whatever number of rows it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.stages.batch import Ints, Mask
from penstock.stages.kept_rows import judge, windows_between
from penstock.stages.saved_rows import PLACE, ints_of, places_of
from penstock.stages.sketch import Cell, Groups, Sketch, columns_of, loaded_cells, saved_cells
from penstock.stages.sketch_tree import SketchTree
from penstock.stages.store import ENDED, NEVER, Arriving, Judged, Left, Saved, nothing
from penstock.timing.slices import Slicing, first_open


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

    @property
    def why(self) -> tuple[str, ...]:
        """For each kind: how sketches are put together, and why."""
        longest = self._slicing.longest
        way = f"merged by blocks, at most {2 * longest.bit_length()} of them for {longest} slices"
        how = "a window is one slice" if longest == 1 else way
        return tuple(f"a sketch per slice, {how}" for _ in self._slicing.windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(tree.nbytes for tree in self._trees.values())

    def holds(self, slots: Ints) -> Mask:
        """Which of these slots have slices that an open window needs."""
        return np.array([slot in self._trees for slot in slots.tolist()], np.bool_)

    def take(self, arriving: Arriving, watermark: int) -> Judged | None:
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
        return judge(windows, self._lateness, times, watermark)

    def _add(self, rows: Arriving) -> None:
        groups = Groups([rows.slots, self._slicing.ids(rows.times)])
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

    def leave(self, watermark: int, *, ended: bool = False) -> Left:
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

    def early(self) -> Left:
        """The open windows that have got rows since they were last shown."""
        left = self._given(sorted(self._trees), self._left_to - self._lateness, ENDED, only_fresh=True)
        for tree in self._trees.values():
            tree.fresh.clear()
        return left

    def _given(self, slots: Sequence[int], after: int, upto: int, *, only_fresh: bool = False) -> Left:
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
        sketches = columns_of(self._sketches, cells)
        return Left(kinds, owners[lo], starts, ends, ends - 1, sketches=sketches)

    def _slices(self, slots: Sequence[int]) -> tuple[Ints, Ints, Mask]:
        """(slot, number, whether it is fresh) of all slices of some slots, slot by slot and in order."""
        trees = [self._trees[slot] for slot in slots]
        owners = np.repeat(np.array(slots, np.int64), [len(tree.ids) for tree in trees])
        ids = [id_ for tree in trees for id_ in tree.ids]
        fresh = [id_ in tree.fresh for tree in trees for id_ in tree.ids]
        return owners, np.array(ids, np.int64), np.array(fresh, np.bool_)

    def export(self, slots: Ints) -> Saved:
        """The slices of these slots."""
        owners, ids, fresh = self._slices([slot for slot in slots.tolist() if slot in self._trees])
        named = zip(owners.tolist(), ids.tolist(), strict=True)
        columns = {
            PLACE: pa.array(places_of(owners, slots) if len(owners) else nothing()),
            "slice": pa.array(ids),
            "fresh": pa.array(fresh),
            "left_to": pa.array(np.full(len(ids), self._left_to, np.int64)),
            **saved_cells(self._sketches, [self._trees[slot].cells[id_] for slot, id_ in named]),
        }
        return {"sketches": pa.RecordBatch.from_pydict(columns)}

    def load(self, saved: Saved, slots: Ints) -> None:
        """Take up exported slices: what was at place i now belongs to slots[i]."""
        batch = saved["sketches"]
        if batch.num_rows == 0:
            return
        self._left_to = max(self._left_to, int(ints_of(batch, "left_to").max()))
        owners, ids = slots[ints_of(batch, PLACE)].tolist(), ints_of(batch, "slice").tolist()
        fresh, cells = batch.column("fresh").to_pylist(), loaded_cells(self._sketches, batch)
        for slot, id_, is_fresh, cell in zip(owners, ids, fresh, cells, strict=True):
            self._tree(slot).put(id_, cell, fresh=is_fresh)
