"""Which slices have been shown early, with how many rows: one has changed if it has more by now.

Rows only come while a window is open, so their number tells whether anything did. All open windows are shown
at once, so a window has changed since then if one of its slices has. A snapshot says so of every slice, in a
column that is left out where nothing has been shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.windows.accumulate import Cells
from penstock.kernels.windows.ring import expand_ranges
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK
from penstock.operators.choices.device import explain_method
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.combine import CombineMethod, Combiner, ReadyWindows, choose_method, list_ready
from penstock.stages.window.folds import CombineFailure, WindowRef
from penstock.stages.window.inputs import to_counts
from penstock.stages.window.panes import SliceAccumulators
from penstock.stages.window.store import (
    ENDED,
    NEVER,
    ClosedWindows,
    Decided,
    Decision,
    InputRows,
    StateBatches,
)
from penstock.timing.slices import Slicing, closed_windows_of, first_open
from penstock.timing.windows import TimeWindow

FRESH = "fresh"


class EarlyFirings:
    """The slices that `early` showed last. Invariant: they stand by slot."""

    def __init__(self) -> None:
        self._slices = np.empty((3, 0), np.int64)  # slot, slice, rows
        self._loaded: list[Ints] = []

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._slices.nbytes + sum(each.nbytes for each in self._loaded)

    def show(self, slots: Ints, ids: Ints, rows: Ints) -> Mask:
        """Show all slices that have rows, by slot: gives which had others when they were last shown."""
        fresh = self._fresh(slots, ids, rows)
        self._slices, self._loaded = np.stack([slots, ids, rows]), []
        return fresh

    def forget_before(self, id_: int) -> None:
        """Slices before this one are needed no more."""
        self._settle()
        if self._slices.size:
            self._slices = self._slices[:, self._slices[1] >= id_]

    def column(self, slots: Ints, ids: Ints, rows: Ints) -> dict[str, Any]:
        """For a snapshot of some slices: which of them are to be shown; no column if all are."""
        self._settle()
        return {FRESH: self._fresh(slots, ids, rows)} if self._slices.size else {}

    def load(self, saved: pa.RecordBatch, slots: Ints, ids: Ints, rows: Ints) -> None:
        """Take up what a snapshot says of its slices; of those that it says nothing of, none was shown."""
        if FRESH in saved.schema.names:
            fresh = saved.column(FRESH).fill_null(True).to_numpy(zero_copy_only=False)
            self._loaded.append(np.stack([slots, ids, rows])[:, ~fresh])

    def _fresh(self, slots: Ints, ids: Ints, rows: Ints) -> Mask:
        """Which slices, each named once, have other rows than when they were last shown."""
        self._settle()
        if not self._slices.size:
            return np.ones(len(slots), np.bool_)
        asked = np.unique(slots)
        first, past = (np.searchsorted(self._slices[0], asked, side) for side in ("left", "right"))
        places, _ = expand_ranges(first, past)
        return _not_in(np.stack([slots, ids, rows]), self._slices[:, places])

    def _settle(self) -> None:
        """What was loaded, bucket by bucket, among the others."""
        if self._loaded:
            every = np.concatenate([self._slices, *self._loaded], axis=1)
            self._slices, self._loaded = every[:, np.argsort(every[0], kind="stable")], []


def select_fresh(listing: ReadyWindows, rings: Ints, fresh: Mask) -> ReadyWindows:
    """The listed windows that have a fresh slice; `fresh` says it of all slices, ring by ring."""
    lengths = rings[:, END] - rings[:, FIRST]
    n_fresh = np.append(0, np.cumsum(fresh))
    place = np.repeat(np.cumsum(lengths) - lengths - rings[:, FIRST], listing.counts)
    return listing.only(n_fresh[place + listing.hi] > n_fresh[place + listing.lo])


def _not_in(now: Ints, before: Ints) -> Mask:
    """Which columns of `now` are not among those of `before`; neither has a column twice."""
    both = np.concatenate([before, now], axis=1)
    order = np.lexsort(both[::-1])
    same = np.zeros(len(order), np.bool_)
    equal = (both[:, order[1:]] == both[:, order[:-1]]).all(axis=0)
    same[order[1:][equal]] = True
    same[order[:-1][equal]] = True
    return ~same[before.shape[1] :]


# The store of time windows: registers per (slot, slice), put together into windows when these leave.
#
# A row is added to one slice, whatever number of windows it lies in; slices wait in rings per slot until no
# open window needs them (SPRINGALD's pane stage and window stage, IV). Rows late for some of their windows
# change slices that earlier windows have used; those windows have left and do not change.


class TimeStore:
    """Time windows of kinds that share slices, for all keys. `way` forces one way to combine, for tests.

    At most `most` windows of a key leave in one pass over its tree (the paper's n_w); they all leave at the
    same watermark. For FIRST and LAST, `Arriving.order` has one array, or none: then ties go to the greater
    value. Each watermark given to `take` is the one that `leave` was last given.
    """

    def __init__(
        self,
        slicing: Slicing,
        lateness: int,
        registers: Sequence[WindowAccumulator],
        *,
        way: CombineMethod | None = None,
        most: int = 1 << 20,
        compile_after: int | None = None,
    ) -> None:
        self.slicing, self.lateness, self.registers = slicing, lateness, tuple(registers)
        # Invariant: the rows of every slice are counted first, because only windows with rows leave.
        self._kept = (
            WindowAccumulator(AccumulatorKind.ROWS),
            *(each for each in registers if each.kind is not AccumulatorKind.ROWS),
        )
        self._cells = SliceAccumulators(slicing, self._kept, compile_after)
        self._arena, self._rings = self._cells.arena, self._cells.rings
        self._combiner = Combiner(slicing, self._arena, self._cells.run)
        self._way, self._most = way, most
        self._left_to = NEVER  # windows with end + lateness up to here have left
        self.shown = EarlyFirings()

    @property
    def n_kinds(self) -> int:
        """How many kinds of window."""
        return len(self.slicing.windows)

    def explain(self) -> tuple[str, ...]:
        """For each kind: how its windows are put together, and why."""
        ways = list(
            dict.fromkeys(
                explain_method(self.slicing.longest, exact=register.rule.exact) for register in self._kept
            )
        )
        return tuple(f"{window}: {'; '.join(ways)}" for window in self.slicing.windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._cells.nbytes + self.shown.nbytes

    @property
    def next_end(self) -> int:
        """The least watermark at which a window leaves, whoever has rows in it."""
        return min(
            first_open(window, self._left_to, self.lateness) + window.size + self.lateness
            for window in self.slicing.windows
        )

    def has_state(self, slots: Ints) -> Mask:
        """Which of these slots have slices that an open window needs."""
        known = slots < len(self._rings.table)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self._rings.table[slots[known], MASK] >= 0
        return held

    def add(self, arriving: InputRows, watermark: int) -> Decided | None:
        """Judge rows and add what is not late to its slices; (fates, misses) per kind and row."""
        times, gaps = arriving.times, None
        if self.slicing.has_gaps:
            gaps = self.slicing.outside(times)
            arriving = arriving.at(np.flatnonzero(~gaps)) if gaps.any() else arriving
        order = arriving.order[0] if arriving.order else None
        open_from = self.slicing.open_from(watermark, self.lateness)
        slots = None if arriving.single_key else arriving.slots
        try:
            least = self._cells.add(slots, arriving.times, arriving.values, order, open_from).least
        except CombineFailure as failed:
            failed.whose = self._first_of(failed, watermark)
            raise
        return self._judge(times, least if gaps is None else int(times.min(initial=watermark)), watermark)

    def _first_of(self, failed: CombineFailure, watermark: int) -> WindowRef | None:
        """The open window of a row on which combine failed that would leave first."""
        if failed.slot is None or failed.time is None:
            return None
        found = [
            (max(window.starts(failed.time)[0], first_open(window, watermark, self.lateness)), window)
            for window in self.slicing.windows
            if window.starts(failed.time)
        ]
        start, window = min(found, key=lambda each: each[0] + each[1].size)
        return WindowRef(failed.slot, window, start, start + window.size)

    def _judge(self, times: Ints, least: int, watermark: int) -> Decided | None:
        """What each kind says to each row. Only rows before the watermark can have missed a window."""
        before = np.empty(0, np.int64)
        if least < watermark - self.lateness:
            before = np.flatnonzero(times < watermark - self.lateness)
        elif not any(window.every > window.size for window in self.slicing.windows):
            return None
        shape = (self.n_kinds, len(times))
        fates, misses = np.zeros(shape, np.uint8), np.zeros(shape, np.int64)
        for kind, window in enumerate(self.slicing.windows):
            if len(before):
                missed = closed_windows_of(window, times[before], watermark, self.lateness)
                misses[kind, before] = missed
                fates[kind, before[missed == _windows_of(window, times[before])]] = Decision.LATE
            if window.every > window.size:
                fates[kind, np.mod(times, window.every) >= window.size] = Decision.GAP
        return fates, misses

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Let go every window with end + lateness <= watermark, and the slices that only they needed."""
        if watermark < self.next_end:
            return self._asked_for(self._left([], np.empty(0, np.int64)))
        slots, rings = self._rings.active()
        after, upto = self._left_to - self.lateness, watermark - self.lateness
        found = [
            self._combined(kind, slots, rings, listing)
            for kind, window in enumerate(self.slicing.windows)
            for listing in self._ready(window, rings, after, upto)
        ]
        self._left_to = max(self._left_to, watermark)
        needed_from = self.slicing.id_of(self.slicing.open_from(self._left_to, self.lateness))
        emptied = self._rings.forget(slots, rings, needed_from, self._cells.run)
        self.shown.forget_before(needed_from)
        return self._asked_for(self._left(found, emptied))

    def _ready(self, window: TimeWindow, rings: Ints, after: int, upto: int) -> list[ReadyWindows]:
        run = self._cells.run
        return list_ready(run, self.slicing, window, rings, after, upto, self._most)

    def fire_early(self) -> ClosedWindows:
        """The open windows that changed since they were last shown."""
        slots, rings = self._rings.active()
        fresh = self._show(slots, rings)
        after = self._left_to - self.lateness
        found = [
            self._combined(kind, slots, rings, select_fresh(listing, rings, fresh), way="sweep")
            for kind, window in enumerate(self.slicing.windows)
            for listing in self._ready(window, rings, after, ENDED)
        ]
        return self._asked_for(self._left(found, np.empty(0, np.int64)))

    def _show(self, slots: Ints, rings: Ints) -> Mask:
        """Which of all slices, ring by ring, have got rows since they were last shown, which is now."""
        ids, ring = expand_ranges(rings[:, FIRST], rings[:, END])
        rows = self._arena.cells[0][rings[ring, BASE] + (ids & rings[ring, MASK]), 0]
        fresh = rows > 0
        held = np.flatnonzero(fresh)
        fresh[held] = self.shown.show(slots[ring[held]], ids[held], rows[held])
        return np.asarray(fresh, np.bool_)

    def _combined(
        self, kind: int, slots: Ints, rings: Ints, listing: ReadyWindows, way: CombineMethod | None = None
    ) -> tuple[int, Ints, ReadyWindows, list[Cells]]:
        """The listed windows that have rows, with the cells of every register."""
        way = (
            way or self._way or choose_method(self._combiner.longest, rings, listing, self._combiner.lightly)
        )
        try:
            if way == "tree":
                self._combiner.refresh(rings, listing)
            counts = self._combiner.combine(0, way, rings, listing)
            filled = counts[:, 0] > 0
            if not filled.all():
                listing, counts = listing.only(filled), counts[filled]
            others = [self._combiner.combine(i, way, rings, listing) for i in range(1, len(self._kept))]
        except CombineFailure as failed:
            if failed.place is not None:
                start, window = int(listing.starts[failed.place]), self.slicing.windows[kind]
                slot = int(slots[np.searchsorted(listing.ends, failed.place, side="right")])
                failed.whose = WindowRef(slot, window, start, start + window.size)
            raise
        owners = np.repeat(slots, listing.counts)
        return kind, owners, listing, [counts, *others]

    def _left(self, found: list[tuple[int, Ints, ReadyWindows, list[Cells]]], emptied: Ints) -> ClosedWindows:
        if len(found) == 1:
            kind, slots, listing, cells = found[0]
            ends = listing.starts + self.slicing.windows[kind].size
            kinds = np.full(len(slots), kind, np.int64)
            return ClosedWindows(
                kinds, slots, listing.starts, ends, ends - 1, cells=tuple(cells), touched=emptied
            )
        kinds = _concat([np.full(len(owners), kind, np.int64) for kind, owners, _, _ in found])
        slots = _concat([owners for _, owners, _, _ in found])
        starts = _concat([listing.starts for _, _, listing, _ in found])
        sizes = np.array([window.size for window in self.slicing.windows], np.int64)
        ends = starts + sizes[kinds]
        cells = [
            np.concatenate([register.rule.neutral_cells(0), *(each[i] for _, _, _, each in found)])
            for i, register in enumerate(self._kept)
        ]
        return ClosedWindows(kinds, slots, starts, ends, ends - 1, cells=tuple(cells), touched=emptied)

    def _asked_for(self, left: ClosedWindows) -> ClosedWindows:
        """With the cells of the registers that were asked for, as they were asked for."""
        kept = iter(zip(self._kept[1:], left.cells[1:], strict=True))
        n_rows = left.cells[0]
        asked = (
            n_rows if each.kind is AccumulatorKind.ROWS else to_counts(*next(kept), n_rows)
            for each in self.registers
        )
        return replace(left, cells=tuple(asked))

    def export(self, slots: Ints) -> StateBatches:
        """The slices of these slots that have rows."""
        owners, rings = self._rings.of_slots(slots[self.has_state(slots)])
        ids, ring = expand_ranges(rings[:, FIRST], rings[:, END])
        cells = rings[ring, BASE] + (ids & rings[ring, MASK])
        filled = self._arena.cells[0][cells, 0] > 0
        ids, ring, cells = ids[filled], ring[filled], cells[filled]
        places = np.argsort(slots, kind="stable")
        place = places[np.searchsorted(slots[places], owners[ring])]
        columns = {"place": place, "slice": ids, "left_to": np.full(len(ids), self._left_to)}
        for i, (register, state) in enumerate(zip(self._kept, self._arena.cells, strict=True)):
            columns |= {f"{i}.{part}": state[cells, part] for part in range(register.rule.width)}
        columns |= self.shown.column(owners[ring], ids, columns["0.0"])
        return {
            "slices": pa.RecordBatch.from_pydict({name: pa.array(each) for name, each in columns.items()})
        }

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up exported slices: what was at place i now belongs to slots[i]."""
        batch = saved["slices"]
        if batch.num_rows == 0:
            return
        columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
        self._left_to = max(self._left_to, int(columns["left_to"].max()))
        owners = slots[columns["place"]]
        self._rings.reserve(int(owners.max()) + 1)
        cells = self._rings.place(owners, columns["slice"])
        self._arena.is_neutral = [False] * len(self._kept)
        for i, (register, state) in enumerate(zip(self._kept, self._arena.cells, strict=True)):
            for part in range(register.rule.width):
                state[cells, part] = columns[f"{i}.{part}"]
        self.shown.load(batch, owners, columns["slice"], columns["0.0"])


def _windows_of(window: Any, times: Ints) -> Ints:
    """How many windows of a kind each time lies in."""
    last = times // window.every
    return np.asarray(last - (times - window.size) // window.every, np.int64)


def _concat(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])
