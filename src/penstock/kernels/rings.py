"""The rings of all slots: making room, taking slices away, and slices far apart.

A slot has one ring that the loops of `cells` know, from its first open slice on (SPRINGALD, IV-A). It grows
to max(2 x capacity, needed) and shrinks when it was less than a quarter full since the last watermark. A gap
longer than `apart` is not filled: what lies beyond gets a further ring of the slot, kept here. Invariant:
rings of one slot are further apart than any window is long, so each window lies over one ring and further
rings are like those of other keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.arena import Arena
from penstock.kernels.cells import (
    BASE,
    CLEAN,
    END,
    FIRST,
    GREAT,
    HAS_FAR,
    LATE_FROM,
    LATE_TO,
    MASK,
    SMALLEST,
)

Ints = npt.NDArray[np.int64]
Run = Callable[..., Any]
_NO_RING = np.array([0, -1, 0, 0, 0, GREAT, -GREAT, 0], np.int64)


class Rings:
    """Where the slices of every slot are. `longest` is the most slices of a window."""

    def __init__(self, arena: Arena, longest: int) -> None:
        self.table = np.empty((0, 8), np.int64)
        self._arena = arena
        self._apart = 2 * longest + 64
        self._dense = 4 * longest + 64  # up to here a ring is made without looking for gaps
        self._far: dict[int, list[Ints]] = {}  # slot -> its further rings, rows as in the table

    @property
    def nbytes(self) -> int:
        """Memory of the table; further rings are few."""
        return self.table.nbytes + 64 * sum(map(len, self._far.values()))

    def reserve(self, n_slots: int) -> None:
        """Have a row for each slot below `n_slots`."""
        have = len(self.table)
        if n_slots > have:
            more = np.tile(_NO_RING, (max(n_slots, 2 * have) - have, 1))
            self.table = np.concatenate([self.table, more])

    def place(self, slots: Ints, ids: Ints) -> Ints:
        """The cell of each (slot, slice); rings are made, grown or added where it takes that."""
        order = np.argsort(slots, kind="stable")
        heads = _heads(slots[order])
        touched = slots[order][heads]
        lo = np.minimum.reduceat(ids[order], heads)
        past = np.maximum.reduceat(ids[order], heads) + 1
        easy = self._fits_densely(touched, lo, past, np.diff(heads, append=len(slots)))
        self._cover(touched[easy], lo[easy], past[easy])
        cells = self.table[slots, BASE] + (ids & self.table[slots, MASK])
        tails = np.append(heads[1:], len(slots))
        for i in np.flatnonzero(~easy).tolist():
            rows = order[heads[i] : tails[i]]
            cells[rows] = self._place_apart(int(touched[i]), ids[rows])
        return np.asarray(cells, np.int64)

    def make_room(self, slots: Ints, ids: Ints) -> None:
        """Let rings hold these slices where that takes no look at gaps, so that loops can go on."""
        n_slots = len(self.table)
        if n_slots > 4 * len(slots):
            return
        lo, past = np.full(n_slots, GREAT, np.int64), np.full(n_slots, -GREAT, np.int64)
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
        if not self._far:
            return held, self.table[held]
        far_slots = [slot for slot, rings in self._far.items() for _ in rings]
        slots = np.concatenate([held, np.array(far_slots, np.int64)])
        rows = np.concatenate([self.table[held], *(np.stack(rings) for rings in self._far.values())])
        order = np.lexsort((rows[:, FIRST], slots))
        return slots[order], rows[order]

    def of_slots(self, slots: Ints) -> tuple[Ints, Ints]:
        """As `active`, for some slots."""
        held = slots[self.table[slots, MASK] >= 0]
        far = [(slot, ring) for slot in slots.tolist() for ring in self._far.get(slot, ())]
        more = np.array([slot for slot, _ in far], np.int64)
        rows = [self.table[held], *(ring[None, :] for _, ring in far)]
        return np.concatenate([held, more]), np.concatenate(rows)

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
            rows[empty] = _NO_RING
        self._shrink(rows, held)
        emptied = self._put_back(slots, rows, empty)
        if self._arena.is_mostly_free:
            self._repack()
        return emptied

    def _put_back(self, slots: Ints, rows: Ints, empty: npt.NDArray[np.bool_]) -> Ints:
        """Rings into the table again; gives the slots left without any."""
        if self._far:
            return self._put_back_without_empty(slots, rows, empty)
        self.table[slots] = rows
        return np.asarray(slots[empty], np.int64)

    def _put_back_without_empty(self, slots: Ints, rows: Ints, empty: npt.NDArray[np.bool_]) -> Ints:
        """Give each slot with further rings its earliest one as the ring that loops know."""
        far = [slot for slot in self._far if (slots == slot).any()]
        plain = ~np.isin(slots, np.array(far, np.int64))
        self.table[slots[plain]] = rows[plain]
        gone = [slots[plain & empty]]
        for slot in far:
            here = slots == slot
            left = list(rows[here & ~empty])
            self._keep(slot, left)
            if not left:
                gone.append(np.array([slot], np.int64))
        return np.concatenate(gone)

    def _keep(self, slot: int, rings: list[Ints]) -> None:
        """Make `rings` the slot's rings: the first in the table, the others here."""
        self.table[slot] = rings[0] if rings else _NO_RING
        self.table[slot, HAS_FAR] = len(rings) > 1
        if len(rings) > 1:
            self._far[slot] = [ring.copy() for ring in rings[1:]]
        else:
            self._far.pop(slot, None)

    def _shrink(self, rows: Ints, held: Ints) -> None:
        """Halve the capacity of rings that were less than a quarter full, as often as that is so.

        What a ring held before counts: one that fills up and empties with every batch keeps its room.
        """
        capacity = rows[:, MASK] + 1
        loose = np.flatnonzero((capacity > SMALLEST) & (4 * held < capacity))
        if len(loose):
            smaller = rows[loose]
            self._resize(smaller, _power_of_two(np.maximum(2 * held[loose], SMALLEST)))
            rows[loose] = smaller

    def _repack(self) -> None:
        """Move all rings together, also of slots that nobody asked about; end the table behind them."""
        slots, rows = self.active()
        old = _cells_of(rows, rows[:, FIRST], rows[:, END])
        rows[:, BASE], kept = self._arena.repack(old, rows[:, MASK] + 1)
        new = _cells_of(rows, rows[:, FIRST], rows[:, END])
        for cells, before in zip(self._arena.cells, kept, strict=True):
            cells[new] = before
        rows[:, CLEAN], rows[:, LATE_FROM], rows[:, LATE_TO] = rows[:, FIRST], GREAT, -GREAT
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
        return np.asarray(near & (rows[:, HAS_FAR] == 0), np.bool_)

    def _cover(self, slots: Ints, lo: Ints, past: Ints) -> None:
        """Let the rings of `slots` (each once) hold [lo, past) as well."""
        rows = self.table[slots]
        _start(rows, lo, rows[:, MASK] < 0)
        first, end = np.minimum(rows[:, FIRST], lo), np.maximum(rows[:, END], past)
        grown = np.flatnonzero(end - first > rows[:, MASK] + 1)
        if len(grown):
            bigger = rows[grown]
            least = np.maximum(2 * (bigger[:, MASK] + 1), SMALLEST)
            self._resize(bigger, _power_of_two(np.maximum((end - first)[grown], least)))
            rows[grown] = bigger
        below = lo < rows[:, CLEAN]
        rows[below, LATE_FROM] = np.minimum(rows[below, LATE_FROM], lo[below])
        touched_to = np.maximum(np.minimum(past, rows[:, CLEAN]), rows[:, FIRST])
        rows[below, LATE_TO] = np.maximum(rows[below, LATE_TO], touched_to[below])
        rows[:, FIRST], rows[:, END] = first, end
        self.table[slots] = rows

    def _resize(self, rows: Ints, sizes: Ints) -> None:
        """Give rings blocks of other sizes; their trees are to be built anew."""
        old = _cells_of(rows, rows[:, FIRST], rows[:, END])
        had = rows[:, MASK] >= 0
        blocks = rows[had, BASE], rows[had, MASK] + 1
        rows[:, BASE], rows[:, MASK] = self._arena.take(sizes), sizes - 1
        self._arena.move(old, _cells_of(rows, rows[:, FIRST], rows[:, END]))
        self._arena.give(*blocks)
        rows[:, CLEAN], rows[:, LATE_FROM], rows[:, LATE_TO] = rows[:, FIRST], GREAT, -GREAT

    def _place_apart(self, slot: int, ids: Ints) -> Ints:
        """Cells for slices of one slot that lie far apart: near ones share a ring, others get their own."""
        held = [self.table[slot].copy()] if self.table[slot, MASK] >= 0 else []
        held += self._far.get(slot, [])
        clusters = self._clusters(held, np.unique(ids))
        rings = [self._joined(members, lo, past) for lo, past, members in clusters]
        cells = np.empty(len(ids), np.int64)
        for ring in rings:
            inside = (ids >= ring[FIRST]) & (ids < ring[END])
            cells[inside] = ring[BASE] + (ids[inside] & ring[MASK])
            _note_late(ring, ids[inside])
        self._keep(slot, rings)
        return cells

    def _clusters(self, held: list[Ints], ids: Ints) -> list[tuple[int, int, list[Ints]]]:
        """(first, past, rings inside) of each stretch of slices without a gap longer than `apart`."""
        ends = np.flatnonzero(np.diff(ids) > self._apart)
        los, pasts = ids[np.append(0, ends + 1)], ids[np.append(ends, len(ids) - 1)] + 1
        stretches = [(int(lo), int(past), list[Ints]()) for lo, past in zip(los, pasts, strict=True)]
        stretches += [(int(ring[FIRST]), int(ring[END]), [ring]) for ring in held]
        clusters: list[tuple[int, int, list[Ints]]] = []
        for lo, past, members in sorted(stretches, key=lambda one: one[0]):
            if clusters and lo - clusters[-1][1] <= self._apart:
                before = clusters.pop()
                clusters.append((before[0], max(before[1], past), before[2] + members))
            else:
                clusters.append((lo, past, members))
        return clusters

    def _joined(self, members: list[Ints], lo: int, past: int) -> Ints:
        """One ring over [lo, past) with the slices of the rings in it."""
        if len(members) == 1 and (members[0][FIRST], members[0][END]) == (lo, past):
            return members[0]
        biggest = max((int(ring[MASK]) + 1 for ring in members), default=SMALLEST)
        new = _NO_RING.copy()
        size = _power_of_two(np.array([max(past - lo, biggest)], np.int64))
        new[BASE], new[MASK] = self._arena.take(size)[0], size[0] - 1
        new[FIRST], new[END], new[CLEAN] = lo, past, lo
        for ring in members:
            ids = np.arange(ring[FIRST], ring[END])
            self._arena.move(ring[BASE] + (ids & ring[MASK]), new[BASE] + (ids & new[MASK]))
            self._arena.give(ring[BASE : BASE + 1], ring[MASK : MASK + 1] + 1)
        return new


def _note_late(ring: Ints, ids: Ints) -> None:
    """Note the slices that the ring's tree already holds."""
    used = ids[ids < ring[CLEAN]]
    if len(used):
        ring[LATE_FROM] = min(ring[LATE_FROM], used.min())
        ring[LATE_TO] = max(ring[LATE_TO], used.max() + 1)


def _start(rows: Ints, lo: Ints, new: npt.NDArray[np.bool_]) -> None:
    """Let rings that hold nothing begin at `lo`."""
    rows[new, FIRST] = rows[new, END] = rows[new, CLEAN] = lo[new]
    rows[new, LATE_FROM], rows[new, LATE_TO] = GREAT, -GREAT


def _heads(ordered: Ints) -> Ints:
    """Where each stretch of equal numbers begins."""
    return np.append(0, np.flatnonzero(np.diff(ordered)) + 1)


def _cells_of(rows: Ints, first: Ints, past: Ints) -> Ints:
    """The cells of slices [first, past) of each ring, one ring after the other."""
    ids, ring = spread(first, past)
    return np.asarray(rows[ring, BASE] + (ids & rows[ring, MASK]), np.int64)


def spread(first: Ints, past: Ints) -> tuple[Ints, Ints]:
    """All integers of the ranges [first, past) in turn, and which range each is of."""
    lengths = np.maximum(past - first, 0)
    ring = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(len(ring)) - before[ring] + first[ring], ring


def _power_of_two(least: Ints) -> Ints:
    """The smallest power of two that is at least each number (below 2^53)."""
    return np.asarray(np.left_shift(1, np.ceil(np.log2(least)).astype(np.int64)), np.int64)
