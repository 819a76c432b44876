"""The rings of all slots: which slices each holds, and in which cells of the arena.

A ring is a row of a table with the columns of `slice_loop.py`, so that the loops read and change it. A slot
has one ring as long as its slices lie near each other. Slices far apart (a key that pauses, a time far
ahead) get rings of their own, or the cells between them would be memory for nothing: the first stands in
the table, the others beside it, and HAS_EXTRA says so.

Invariant: rings of one slot are further apart than the longest window, so no window reaches over two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.slice_loop import (
    BASE,
    CLEAN,
    END,
    FIRST,
    HAS_EXTRA,
    LATE_FROM,
    LATE_TO,
    MASK,
    MAX_ID,
    MIN_RING_CELLS,
)

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
RunLoop = Callable[..., Any]

NO_RING = np.array([0, -1, 0, 0, 0, MAX_ID, -MAX_ID, 0], np.int64)


class Rings:
    """Where the slices of every slot are (SPRINGALD, IV-A). `longest` is the most slices of a window.

    A ring grows to max(2 x capacity, needed), and shrinks when it was less than a quarter full since the last
    watermark.
    """

    def __init__(self, arena: Arena, longest: int) -> None:
        self.table = np.empty((0, 8), np.int64)
        self._arena = arena
        self._max_gap = 2 * longest + 64  # slices with a longer gap between them get two rings
        self._dense = 4 * longest + 64  # up to this length a ring is made without looking for gaps
        self._extra = self.table  # further rings, rows as in the table
        self._extra_slots = np.empty(0, np.int64)  # the slot of each

    @property
    def nbytes(self) -> int:
        """Return the memory of the table and of extra rings."""
        return self.table.nbytes + self._extra.nbytes + self._extra_slots.nbytes

    def reserve(self, n_slots: int) -> None:
        """Have a row for each slot below `n_slots`."""
        n_rows = len(self.table)
        if n_slots > n_rows:
            more = np.tile(NO_RING, (max(n_slots, 2 * n_rows) - n_rows, 1))
            self.table = np.concatenate([self.table, more])

    def place(self, slots: Ints, ids: Ints) -> Ints:
        """Return the cell of each (slot, slice); rings are made, grown or added where needed."""
        order = np.argsort(slots, kind="stable")
        starts = run_starts(slots[order])
        touched = slots[order][starts]
        lo = np.minimum.reduceat(ids[order], starts)
        past = np.maximum.reduceat(ids[order], starts) + 1
        is_dense = self.cover_if_dense(touched, lo, past, np.diff(starts, append=len(slots)))
        cells = self.table[slots, BASE] + (ids & self.table[slots, MASK])
        if not is_dense.all():
            is_sparse = np.zeros(len(self.table), np.bool_)
            is_sparse[touched[~is_dense]] = True
            rows = np.flatnonzero(is_sparse[slots])
            cells[rows] = self._place_sparse(slots[rows], ids[rows])
        return np.asarray(cells, np.int64)

    def make_room(self, slots: Ints, ids: Ints) -> None:
        """Let rings hold these slices where that takes no look at gaps, so that loops can go on."""
        n_slots = len(self.table)
        if n_slots > 4 * len(slots):
            return
        lo, past = np.full(n_slots, MAX_ID, np.int64), np.full(n_slots, -MAX_ID, np.int64)
        np.minimum.at(lo, slots, ids)
        np.maximum.at(past, slots, ids + 1)
        n_rows = np.bincount(slots, minlength=n_slots)
        touched = np.flatnonzero(n_rows)
        self.cover_if_dense(touched, lo[touched], past[touched], n_rows[touched])

    def cover_if_dense(self, slots: Ints, lo: Ints, past: Ints, n_rows: Ints) -> Mask:
        """Let the rings of `slots` (each once) hold [lo, past) as well, where one ring will do; return where.

        It will do if it has the room, or is short, or has rows in every few slices.
        """
        rows = self.table[slots]
        has_ring = rows[:, MASK] >= 0
        first = np.where(has_ring, np.minimum(rows[:, FIRST], lo), lo)
        end = np.where(has_ring, np.maximum(rows[:, END], past), past)
        filled = rows[:, END] - rows[:, FIRST] + 4 * n_rows
        is_near = end - first <= np.maximum(np.maximum(rows[:, MASK] + 1, self._dense), filled)
        is_dense = np.asarray(is_near & (rows[:, HAS_EXTRA] == 0), np.bool_)
        rows = rows[is_dense]
        self._extend(rows, lo[is_dense], past[is_dense])
        self.table[slots[is_dense]] = rows
        return is_dense

    def active(self) -> tuple[Ints, Ints]:
        """Return all rings that hold slices, as (slot of each, rows as in the table), by slot."""
        slots = np.flatnonzero(self.table[:, MASK] >= 0)
        if not len(self._extra):
            return slots, self.table[slots]
        rows = np.concatenate([self.table[slots], self._extra])
        return sort_by_slot(np.concatenate([slots, self._extra_slots]), rows)

    def of_slots(self, slots: Ints) -> tuple[Ints, Ints]:
        """Return the rings of some slots, each named once, as `active` does; extra rings come last."""
        slots_with_ring = slots[self.table[slots, MASK] >= 0]
        rows = self.table[slots_with_ring]
        if not len(self._extra):
            return slots_with_ring, rows
        extra = self._extra_of(slots)
        return (
            np.concatenate([slots_with_ring, self._extra_slots[extra]]),
            np.concatenate([rows, self._extra[extra]]),
        )

    def forget(self, slots: Ints, rows: Ints, needed_from: int, run: RunLoop) -> Ints:
        """Drop slices below `needed_from` from all rings of some slots; return the slots left without any.

        slots, rows  as `active` or `of_slots` gave them
        run          runs a loop, plain or compiled
        """
        n_held = rows[:, END] - rows[:, FIRST]  # the most since slices were last dropped
        first = np.minimum(np.maximum(rows[:, FIRST], needed_from), rows[:, END])
        self._arena.clear(rows, first, run)
        rows[:, FIRST] = first
        is_empty = first == rows[:, END]
        if is_empty.any():
            self._arena.give(rows[is_empty, BASE], rows[is_empty, MASK] + 1)
            rows[is_empty] = NO_RING
        # Why: what a ring held before counts, so that one that fills and empties with every batch keeps room.
        capacity = rows[:, MASK] + 1
        loose = np.flatnonzero((capacity > MIN_RING_CELLS) & (4 * n_held < capacity))
        if len(loose):
            smaller = rows[loose]
            self._resize(smaller, round_up_to_power_of_two(np.maximum(2 * n_held[loose], MIN_RING_CELLS)))
            rows[loose] = smaller
        emptied = self._put_back(slots, rows, is_empty)
        if self._arena.is_mostly_free:
            self._repack()
        return emptied

    def _extra_of(self, slots: Ints) -> Mask:
        """Return which extra rings are of these slots."""
        is_asked = np.zeros(len(self.table), np.bool_)
        is_asked[slots] = True
        return np.asarray(is_asked[self._extra_slots], np.bool_)

    def _put_back(self, slots: Ints, rows: Ints, is_empty: Mask) -> Ints:
        """Write rings back into the table; return the slots left without any."""
        if not len(self._extra):
            self.table[slots] = rows
            return np.asarray(slots[is_empty], np.int64)
        self._replace(slots, slots[~is_empty], rows[~is_empty])
        return np.unique(slots[self.table[slots, MASK] < 0])

    def _replace(self, slots: Ints, owners: Ints, rings: Ints) -> None:
        """Give slots these rings and no others: the first of each in the table, where loops read it."""
        stay = ~self._extra_of(slots)
        owners, rings = sort_by_slot(owners, rings)
        is_extra = np.zeros(len(owners), np.bool_)
        is_extra[1:] = owners[1:] == owners[:-1]
        rings[:, HAS_EXTRA] = np.append(is_extra[1:], False)[: len(is_extra)]
        self.table[slots] = NO_RING
        self.table[owners[~is_extra]] = rings[~is_extra]
        self._extra_slots = np.concatenate([self._extra_slots[stay], owners[is_extra]])
        self._extra = np.concatenate([self._extra[stay], rings[is_extra]])

    def _place_sparse(self, slots: Ints, ids: Ints) -> Ints:
        """Return cells for slices far apart: near ones of a slot share a ring, others get their own."""
        order = np.lexsort((ids, slots))
        owners, numbers = slots[order], ids[order]
        is_new = np.append(True, (owners[1:] != owners[:-1]) | (numbers[1:] != numbers[:-1]))
        new_owners, new_ids = owners[is_new], numbers[is_new]
        touched = new_owners[run_starts(new_owners)]
        ring_owners, rings = self.of_slots(touched)
        n_rings = len(rings)
        cluster_slots, first, past, cluster = find_clusters(
            np.concatenate([ring_owners, new_owners]),
            np.concatenate([rings[:, FIRST], new_ids]),
            np.concatenate([rings[:, END], new_ids + 1]),
            self._max_gap,
        )
        rings = self._merge(rings, cluster[:n_rings], first, past)
        home = cluster[n_rings:]
        starts = run_starts(home)
        extended = rings[home[starts]]
        last = np.append(starts[1:], len(home)) - 1
        self._extend(extended, new_ids[starts], new_ids[last] + 1)
        rings[home[starts]] = extended
        self._replace(touched, cluster_slots, rings)
        ring = rings[home[np.cumsum(is_new) - 1]]
        cells = np.empty(len(ids), np.int64)
        cells[order] = ring[:, BASE] + (numbers & ring[:, MASK])
        return cells

    def _extend(self, rows: Ints, lo: Ints, past: Ints) -> None:
        """Let rings hold [lo, past) as well; those that hold nothing yet begin there."""
        is_new = rows[:, MASK] < 0
        rows[is_new, FIRST] = rows[is_new, END] = rows[is_new, CLEAN] = lo[is_new]
        rows[is_new, LATE_FROM], rows[is_new, LATE_TO] = MAX_ID, -MAX_ID
        first, end = np.minimum(rows[:, FIRST], lo), np.maximum(rows[:, END], past)
        too_small = np.flatnonzero(end - first > rows[:, MASK] + 1)
        if len(too_small):
            bigger = rows[too_small]
            least = np.maximum(2 * (bigger[:, MASK] + 1), MIN_RING_CELLS)
            self._resize(bigger, round_up_to_power_of_two(np.maximum((end - first)[too_small], least)))
            rows[too_small] = bigger
        # Invariant: slices below CLEAN that may change are in the late range, so that trees are mended.
        below = lo < rows[:, CLEAN]
        rows[below, LATE_FROM] = np.minimum(rows[below, LATE_FROM], lo[below])
        late_to = np.maximum(np.minimum(past, rows[:, CLEAN]), rows[:, FIRST])
        rows[below, LATE_TO] = np.maximum(rows[below, LATE_TO], late_to[below])
        rows[:, FIRST], rows[:, END] = first, end

    def _resize(self, rows: Ints, sizes: Ints) -> None:
        """Give rings blocks of other sizes; their trees are to be built anew."""
        old = cells_of(rows, rows[:, FIRST], rows[:, END])
        has_block = rows[:, MASK] >= 0
        blocks = rows[has_block, BASE], rows[has_block, MASK] + 1
        rows[:, BASE], rows[:, MASK] = self._arena.take(sizes), sizes - 1
        self._arena.move(old, cells_of(rows, rows[:, FIRST], rows[:, END]))
        self._arena.give(*blocks)
        rows[:, CLEAN], rows[:, LATE_FROM], rows[:, LATE_TO] = rows[:, FIRST], MAX_ID, -MAX_ID

    def _merge(self, rings: Ints, cluster: Ints, lo: Ints, past: Ints) -> Ints:
        """Return one ring for each cluster: its only ring, one over all of [lo, past) for several, or none.

        cluster  the cluster of each ring
        """
        n_rings = np.bincount(cluster, minlength=len(lo))
        merged = np.tile(NO_RING, (len(lo), 1))
        is_single = n_rings[cluster] == 1
        merged[cluster[is_single]] = rings[is_single]
        several = np.flatnonzero(n_rings > 1)
        if len(several):
            size = past - lo
            np.maximum.at(size, cluster, rings[:, MASK] + 1)
            new, sizes = merged[several], round_up_to_power_of_two(size[several])
            new[:, BASE], new[:, MASK] = self._arena.take(sizes), sizes - 1
            new[:, FIRST], new[:, END], new[:, CLEAN] = lo[several], past[several], lo[several]
            merged[several] = new
            old = rings[~is_single]
            slices = old[:, FIRST], old[:, END]
            self._arena.move(cells_of(old, *slices), cells_of(merged[cluster[~is_single]], *slices))
            self._arena.give(old[:, BASE], old[:, MASK] + 1)
        return merged

    def _repack(self) -> None:
        """Move all rings together in a new arena, and end the table behind the last slot with a ring."""
        slots, rows = self.active()
        old = cells_of(rows, rows[:, FIRST], rows[:, END])
        rows[:, BASE], old_cells = self._arena.repack(old, rows[:, MASK] + 1)
        new = cells_of(rows, rows[:, FIRST], rows[:, END])
        for cells, values in zip(self._arena.cells, old_cells, strict=True):
            cells[new] = values
        rows[:, CLEAN], rows[:, LATE_FROM], rows[:, LATE_TO] = rows[:, FIRST], MAX_ID, -MAX_ID
        self._put_back(slots, rows, np.zeros(len(rows), np.bool_))
        self.table = self.table[: int(slots.max(initial=-1)) + 1].copy()


def find_clusters(slots: Ints, first: Ints, past: Ints, max_gap: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Group the ranges [first, past) of each slot that have gaps of at most `max_gap` between them.

    Returns slots, first and past of the clusters, by (slot, first), and the cluster of each range.

    >>> clusters = find_clusters(np.array([0, 1, 0]), np.array([0, 5, 9]), np.array([3, 6, 11]), 6)
    >>> [column.tolist() for column in clusters]
    [[0, 1], [0, 5], [11, 6], [0, 1, 0]]
    """
    order = np.lexsort((first, slots))
    owners, starts = slots[order], first[order]
    reach = _running_max(owners, past[order])
    is_first = np.append(True, (owners[1:] != owners[:-1]) | (starts[1:] - reach[:-1] > max_gap))
    of = np.empty(len(slots), np.int64)
    of[order] = np.cumsum(is_first) - 1
    heads = np.flatnonzero(is_first)
    return owners[heads], starts[heads], reach[np.append(heads[1:], len(slots)) - 1], of


def _running_max(owners: Ints, past: Ints) -> Ints:
    """Return the greatest of `past` so far, for each owner on its own; owners stand in order."""
    by_size = np.lexsort((past, owners))
    rank = np.empty(len(past), np.int64)
    rank[by_size] = np.arange(len(past))
    # Why: every rank of an owner is above all of those before it, so nothing passes from one to the next.
    return np.asarray(past[by_size][np.maximum.accumulate(rank)], np.int64)


def sort_by_slot(slots: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return rings by (slot, first slice), which is mostly the order they come in."""
    first = rows[:, FIRST]
    is_sorted = (slots[1:] > slots[:-1]) | ((slots[1:] == slots[:-1]) & (first[1:] > first[:-1]))
    if is_sorted.all():
        return slots, rows
    order = np.lexsort((first, slots))
    return slots[order], rows[order]


def run_starts(ordered: Ints) -> Ints:
    """Return where each run of equal numbers begins."""
    return np.append(0, np.flatnonzero(np.diff(ordered)) + 1)


def cells_of(rows: Ints, first: Ints, past: Ints) -> Ints:
    """Return the cells of slices [first, past) of each ring, one ring after the other."""
    ids, ring = expand_ranges(first, past)
    return np.asarray(rows[ring, BASE] + (ids & rows[ring, MASK]), np.int64)


def expand_ranges(first: Ints, past: Ints) -> tuple[Ints, Ints]:
    """Return all integers of the ranges [first, past), one range after the other, and the range of each."""
    lengths = np.maximum(past - first, 0)
    ring = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(len(ring)) - before[ring] + first[ring], ring


def round_up_to_power_of_two(least: Ints) -> Ints:
    """Return the smallest power of two that is at least each number (below 2^53)."""
    return np.asarray(np.left_shift(1, np.ceil(np.log2(least)).astype(np.int64)), np.int64)
