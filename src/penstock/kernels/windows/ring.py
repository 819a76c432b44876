"""Stretches of slices that lie near each other, slot by slot: which of them one ring should hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.frozen import dataclass
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


@dataclass(frozen=True, slots=True)
class Clusters:
    """Clusters by (slot, first): those of one slot have gaps between them that are longer than asked.

    slots  int64[c]
    first  int64[c]
    past   int64[c]
    of     int64[n]  the cluster of each stretch that was given
    """

    slots: Ints
    first: Ints
    past: Ints
    of: Ints


def find_clusters(slots: Ints, first: Ints, past: Ints, apart: int) -> Clusters:
    """Put together the stretches [first, past) of each slot that have gaps of at most `apart` between them.

    >>> clusters = find_clusters(np.array([0, 1, 0]), np.array([0, 5, 9]), np.array([3, 6, 11]), 6)
    >>> clusters.slots.tolist(), clusters.first.tolist(), clusters.past.tolist(), clusters.of.tolist()
    ([0, 1], [0, 5], [11, 6], [0, 1, 0])
    """
    order = np.lexsort((first, slots))
    owners, starts = slots[order], first[order]
    reach = _running_max(owners, past[order])
    begins = np.append(True, (owners[1:] != owners[:-1]) | (starts[1:] - reach[:-1] > apart))
    of = np.empty(len(slots), np.int64)
    of[order] = np.cumsum(begins) - 1
    heads = np.flatnonzero(begins)
    return Clusters(owners[heads], starts[heads], reach[np.append(heads[1:], len(slots)) - 1], of)


def _running_max(owners: Ints, past: Ints) -> Ints:
    """The greatest of `past` so far, for each owner by itself; owners stand in order."""
    by_size = np.lexsort((past, owners))
    rank = np.empty(len(past), np.int64)
    rank[by_size] = np.arange(len(past))
    # Every rank of an owner is above all of those before it, so nothing is carried from one to the next.
    return np.asarray(past[by_size][np.maximum.accumulate(rank)], np.int64)


# Rings as rows of a table: where one begins, in which order they stand, which cells are theirs.

NO_RING = np.array([0, -1, 0, 0, 0, MAX_ID, -MAX_ID, 0], np.int64)


def start_rings(rows: Ints, lo: Ints, new: npt.NDArray[np.bool_]) -> None:
    """Let rings that hold nothing begin at `lo`."""
    rows[new, FIRST] = rows[new, END] = rows[new, CLEAN] = lo[new]
    rows[new, LATE_FROM], rows[new, LATE_TO] = MAX_ID, -MAX_ID


def sort_by_slot(slots: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Rings by (slot, first slice), in which order they mostly come."""
    first = rows[:, FIRST]
    ordered = (slots[1:] > slots[:-1]) | ((slots[1:] == slots[:-1]) & (first[1:] > first[:-1]))
    if ordered.all():
        return slots, rows
    order = np.lexsort((first, slots))
    return slots[order], rows[order]


def run_starts(ordered: Ints) -> Ints:
    """Where each stretch of equal numbers begins."""
    return np.append(0, np.flatnonzero(np.diff(ordered)) + 1)


def cells_of(rows: Ints, first: Ints, past: Ints) -> Ints:
    """The cells of slices [first, past) of each ring, one ring after the other."""
    ids, ring = expand_ranges(first, past)
    return np.asarray(rows[ring, BASE] + (ids & rows[ring, MASK]), np.int64)


def expand_ranges(first: Ints, past: Ints) -> tuple[Ints, Ints]:
    """All integers of the ranges [first, past) in turn, and which range each is of."""
    lengths = np.maximum(past - first, 0)
    ring = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(len(ring)) - before[ring] + first[ring], ring


def round_up_to_power_of_two(least: Ints) -> Ints:
    """The smallest power of two that is at least each number (below 2^53)."""
    return np.asarray(np.left_shift(1, np.ceil(np.log2(least)).astype(np.int64)), np.int64)


# The memory of rings: blocks of cells that grow with what they must hold, and move with it.


class RingBlocks:
    """Gives rings, as rows of a table, the blocks of an arena that they need."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def stretch(self, rows: Ints, lo: Ints, past: Ints) -> None:
        """Let rings hold [lo, past) as well; those that hold nothing yet begin there."""
        start_rings(rows, lo, rows[:, MASK] < 0)
        first, end = np.minimum(rows[:, FIRST], lo), np.maximum(rows[:, END], past)
        grown = np.flatnonzero(end - first > rows[:, MASK] + 1)
        if len(grown):
            bigger = rows[grown]
            least = np.maximum(2 * (bigger[:, MASK] + 1), MIN_RING_CELLS)
            self.resize(bigger, round_up_to_power_of_two(np.maximum((end - first)[grown], least)))
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
        rows[:, CLEAN], rows[:, LATE_FROM], rows[:, LATE_TO] = rows[:, FIRST], MAX_ID, -MAX_ID

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
            new, sizes = rings[several], round_up_to_power_of_two(size[several])
            new[:, BASE], new[:, MASK] = self._arena.take(sizes), sizes - 1
            new[:, FIRST], new[:, END], new[:, CLEAN] = lo[several], past[several], lo[several]
            rings[several] = new
            old, slices = held[~alone], (held[~alone, FIRST], held[~alone, END])
            self._arena.move(cells_of(old, *slices), cells_of(rings[of[~alone]], *slices))
            self._arena.give(old[:, BASE], old[:, MASK] + 1)
        return rings


# The rings of all slots: making room, taking slices away, and slices far apart.
#
# A slot has one ring that the loops of `cells` know, from its first open slice on (SPRINGALD, IV-A). It
# grows to max(2 x capacity, needed) and shrinks when it was less than a quarter full since the last
# watermark. A gap longer than `apart` is not filled: what lies beyond gets a further ring of the slot,
# kept here. Invariant: rings of one slot are further apart than any window is long, so each window lies
# over one ring and further rings are like those of other keys.

Run = Callable[..., Any]


class Rings:
    """Where the slices of every slot are. `longest` is the most slices of a window."""

    def __init__(self, arena: Arena, longest: int) -> None:
        self.table = np.empty((0, 8), np.int64)
        self._arena, self._blocks = arena, RingBlocks(arena)
        self._apart = 2 * longest + 64
        self._dense = 4 * longest + 64  # up to here a ring is made without looking for gaps
        self._far = self.table  # further rings, rows as in the table
        self._far_slots = np.empty(0, np.int64)  # the slot of each

    @property
    def nbytes(self) -> int:
        """Memory of the table and of further rings."""
        return self.table.nbytes + self._far.nbytes + self._far_slots.nbytes

    def reserve(self, n_slots: int) -> None:
        """Have a row for each slot below `n_slots`."""
        have = len(self.table)
        if n_slots > have:
            more = np.tile(NO_RING, (max(n_slots, 2 * have) - have, 1))
            self.table = np.concatenate([self.table, more])

    def place(self, slots: Ints, ids: Ints) -> Ints:
        """The cell of each (slot, slice); rings are made, grown or added where it takes that."""
        order = np.argsort(slots, kind="stable")
        heads = run_starts(slots[order])
        touched = slots[order][heads]
        lo = np.minimum.reduceat(ids[order], heads)
        past = np.maximum.reduceat(ids[order], heads) + 1
        easy = self._fits_densely(touched, lo, past, np.diff(heads, append=len(slots)))
        self._cover(touched[easy], lo[easy], past[easy])
        cells = self.table[slots, BASE] + (ids & self.table[slots, MASK])
        if not easy.all():
            apart = np.zeros(len(self.table), np.bool_)
            apart[touched[~easy]] = True
            rows = np.flatnonzero(apart[slots])
            cells[rows] = self._place_apart(slots[rows], ids[rows])
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

    def cover_if_dense(self, slots: Ints, lo: Ints, past: Ints, n_rows: Ints) -> None:
        """Let the rings of `slots` (each once) hold [lo, past), where `n_rows` rows are to come, or stay."""
        near = self._fits_densely(slots, lo, past, n_rows)
        self._cover(slots[near], lo[near], past[near])

    def active(self) -> tuple[Ints, Ints]:
        """All rings that hold slices, as (slot of each, rows as in the table), by slot."""
        held = np.flatnonzero(self.table[:, MASK] >= 0)
        if not len(self._far):
            return held, self.table[held]
        slots = np.concatenate([held, self._far_slots])
        rows = np.concatenate([self.table[held], self._far])
        return sort_by_slot(slots, rows)

    def of_slots(self, slots: Ints) -> tuple[Ints, Ints]:
        """As `active`, for some slots, each once; further rings come last."""
        held = slots[self.table[slots, MASK] >= 0]
        if not len(self._far):
            return held, self.table[held]
        far = self._far_of(slots)
        return (
            np.concatenate([held, self._far_slots[far]]),
            np.concatenate([self.table[held], self._far[far]]),
        )

    def _far_of(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """Which further rings are of these slots."""
        asked = np.zeros(len(self.table), np.bool_)
        asked[slots] = True
        return np.asarray(asked[self._far_slots], np.bool_)

    def forget(self, slots: Ints, rows: Ints, needed_from: int, run: Run) -> Ints:
        """Let go of slices below `needed_from`, for all rings of some slots; gives those left without any.

        `run` runs a loop at the speed that fits.
        """
        held = rows[:, END] - rows[:, FIRST]  # the most since slices were last let go
        cut = np.minimum(np.maximum(rows[:, FIRST], needed_from), rows[:, END])
        self._arena.clear(rows, cut, run)
        rows[:, FIRST] = cut
        empty = cut == rows[:, END]
        if empty.any():
            self._arena.give(rows[empty, BASE], rows[empty, MASK] + 1)
            rows[empty] = NO_RING
        self._shrink(rows, held)
        emptied = self._put_back(slots, rows, empty)
        if self._arena.is_mostly_free:
            self._repack()
        return emptied

    def _put_back(self, slots: Ints, rows: Ints, empty: npt.NDArray[np.bool_]) -> Ints:
        """Rings into the table again; gives the slots left without any."""
        if not len(self._far):
            self.table[slots] = rows
            return np.asarray(slots[empty], np.int64)
        self._keep(slots, slots[~empty], rows[~empty])
        return np.unique(slots[self.table[slots, MASK] < 0])

    def _keep(self, slots: Ints, owners: Ints, rings: Ints) -> None:
        """Give slots these rings and no others: the first of each in the table, where loops find it."""
        others = ~self._far_of(slots)
        owners, rings = sort_by_slot(owners, rings)
        far = np.zeros(len(owners), np.bool_)
        far[1:] = owners[1:] == owners[:-1]
        rings[:, HAS_EXTRA] = np.append(far[1:], False)[: len(far)]
        self.table[slots] = NO_RING
        self.table[owners[~far]] = rings[~far]
        self._far_slots = np.concatenate([self._far_slots[others], owners[far]])
        self._far = np.concatenate([self._far[others], rings[far]])

    def _shrink(self, rows: Ints, held: Ints) -> None:
        """Halve the capacity of rings that were less than a quarter full, as often as that is so.

        What a ring held before counts: one that fills up and empties with every batch keeps its room.
        """
        capacity = rows[:, MASK] + 1
        loose = np.flatnonzero((capacity > MIN_RING_CELLS) & (4 * held < capacity))
        if len(loose):
            smaller = rows[loose]
            self._blocks.resize(
                smaller, round_up_to_power_of_two(np.maximum(2 * held[loose], MIN_RING_CELLS))
            )
            rows[loose] = smaller

    def _repack(self) -> None:
        """Move all rings together, also of slots that nobody asked about; end the table behind them."""
        slots, rows = self.active()
        old = cells_of(rows, rows[:, FIRST], rows[:, END])
        rows[:, BASE], kept = self._arena.repack(old, rows[:, MASK] + 1)
        new = cells_of(rows, rows[:, FIRST], rows[:, END])
        for cells, before in zip(self._arena.cells, kept, strict=True):
            cells[new] = before
        rows[:, CLEAN], rows[:, LATE_FROM], rows[:, LATE_TO] = rows[:, FIRST], MAX_ID, -MAX_ID
        self._put_back(slots, rows, np.zeros(len(rows), np.bool_))
        self.table = self.table[: int(slots.max(initial=-1)) + 1].copy()

    def _fits_densely(self, slots: Ints, lo: Ints, past: Ints, n_rows: Ints) -> npt.NDArray[np.bool_]:
        """Where one ring will do: it has the room, or is short, or has rows in every few slices."""
        rows = self.table[slots]
        held = rows[:, MASK] >= 0
        first = np.where(held, np.minimum(rows[:, FIRST], lo), lo)
        end = np.where(held, np.maximum(rows[:, END], past), past)
        filled = rows[:, END] - rows[:, FIRST] + 4 * n_rows
        near = end - first <= np.maximum(np.maximum(rows[:, MASK] + 1, self._dense), filled)
        return np.asarray(near & (rows[:, HAS_EXTRA] == 0), np.bool_)

    def _cover(self, slots: Ints, lo: Ints, past: Ints) -> None:
        """Let the rings of `slots` (each once) hold [lo, past) as well."""
        rows = self.table[slots]
        self._blocks.stretch(rows, lo, past)
        self.table[slots] = rows

    def _place_apart(self, slots: Ints, ids: Ints) -> Ints:
        """Cells for slices that lie far apart: near ones of a slot share a ring, others get their own."""
        order = np.lexsort((ids, slots))
        owners, numbers = slots[order], ids[order]
        new = np.append(True, (owners[1:] != owners[:-1]) | (numbers[1:] != numbers[:-1]))
        asked, wanted = owners[new], numbers[new]
        touched = asked[run_starts(asked)]
        held_by, held = self.of_slots(touched)
        whose = np.concatenate([held_by, asked])
        lo, past = np.concatenate([held[:, FIRST], wanted]), np.concatenate([held[:, END], wanted + 1])
        found = find_clusters(whose, lo, past, self._apart)
        rings = self._blocks.joined(held, found.of[: len(held)], found.first, found.past)
        home = found.of[len(held) :]
        heads = run_starts(home)
        stretched = rings[home[heads]]
        self._blocks.stretch(stretched, wanted[heads], wanted[np.append(heads[1:], len(home)) - 1] + 1)
        rings[home[heads]] = stretched
        self._keep(touched, found.slots, rings)
        ring = rings[home[np.cumsum(new) - 1]]
        cells = np.empty(len(ids), np.int64)
        cells[order] = ring[:, BASE] + (numbers & ring[:, MASK])
        return cells
