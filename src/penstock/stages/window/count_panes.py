"""Panes of rows: registers per (slot, stretch of row numbers), put together into count windows.

Count windows are sliding windows over row numbers, so slices, rings and the ways to combine them are those of
time windows (`slices.py`), with a number in the place of a time. What differs: each slot has come to a
number of its own, and a window's bounds are the times of its first and last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.windows import accumulate as rows_into
from penstock.kernels.windows.accumulate import MAX, Cells
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.ring import Rings, expand_ranges
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK
from penstock.operators.choices.device import explain_method
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.store import PLACE, ints_of, places_of
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.combine import (
    CombineMethod,
    Combiner,
    ReadyWindows,
    choose_method,
)
from penstock.stages.window.folds import CombineFailure, WindowRef
from penstock.stages.window.inputs import AccumulatorUpdate, Run, to_counts
from penstock.stages.window.store import Decisions, InputRows, Outcome
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, TimeWindow


@dataclass(frozen=True, slots=True)
class ClosedCountWindows:
    """Count windows: slot and number of each, the times of its first and last row, its registers' cells."""

    slots: Ints
    index: Ints
    starts: Ints
    ends: Ints
    cells: tuple[Cells, ...]


class CountPanes:
    """The panes that windows which are not full need, for all slots."""

    def __init__(self, window: CountWindow, registers: Sequence[WindowAccumulator], run: Run) -> None:
        self._window, self._run, self._asked = window, run, tuple(registers)
        self._slicing = Slicing.of([TimeWindow(window.size, window.every)])
        # COUNT is kept as the number of nulls, so the rows are counted in any case.
        others = dict.fromkeys(
            register for register in registers if register.kind is not AccumulatorKind.ROWS
        )
        self._kept = (WindowAccumulator(AccumulatorKind.ROWS), *others)
        # Behind the registers: the least time of a pane, as its complement, and the greatest.
        self._arena = Arena([*(register.rule for register in self._kept), MAX, MAX])
        self._rings = Rings(self._arena, self._slicing.longest)
        self._combiner = Combiner(self._slicing, self._arena, run)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._arena.nbytes + self._rings.nbytes

    @property
    def why(self) -> str:
        """How panes are put together, and why."""
        ways = dict.fromkeys(
            explain_method(self._slicing.longest, exact=register.rule.exact) for register in self._kept
        )
        return "; ".join(ways)

    def add(self, numbers: Ints, rows: InputRows) -> None:
        """Add rows, each in some window and all by (slot, number), to the panes of their numbers."""
        if not len(numbers):
            return
        cells = self._cells_of(rows.slots, self._slicing.ids(numbers))
        order = rows.order[0] if rows.order else np.zeros(len(numbers), np.int64)
        filling = AccumulatorUpdate(self._run, cells, rows.times, order, rows.values)
        places = rows_into.single_run(len(cells)), cells
        self._run(rows_into.keep_max, *places, rows.times, -1, self._arena.cells[-2])
        self._run(rows_into.keep_max, *places, rows.times, 0, self._arena.cells[-1])
        try:
            for register, state in zip(self._kept, self._arena.cells[:-2], strict=True):
                filling.fill(register, state)
        except CombineFailure as failed:
            failed.whose = self._first_of(failed, numbers, rows)
            raise

    def _first_of(self, failed: CombineFailure, numbers: Ints, rows: InputRows) -> WindowRef | None:
        """The first window of a row on which combine failed; that row is its last so far."""
        if failed.place is None:
            return None
        slot, number = int(rows.slots[failed.place]), int(numbers[failed.place])
        index = max((number - self._window.size) // self._window.every + 1, 0)
        pane = self._slicing.ids(np.array([index * self._window.every]))
        start = ~self._at(self._rings.table[slot : slot + 1], pane, -2)
        return WindowRef(slot, self._window, int(start[0]), int(rows.times[failed.place]))

    def _cells_of(self, slots: Ints, ids: Ints) -> Ints:
        """The cell of each (slot, pane); equal ones stand together."""
        self._rings.reserve(int(slots[-1]) + 1)
        new = np.append(True, (slots[1:] != slots[:-1]) | (ids[1:] != ids[:-1]))
        heads = np.flatnonzero(new)
        cells = self._rings.place(slots[heads], ids[heads])
        return np.repeat(cells, np.diff(heads, append=len(slots)))

    def windows(
        self, slots: Ints, first: Ints, past: Ints, needed_from: Ints | None = None
    ) -> ClosedCountWindows:
        """The windows [first, past) of each slot, as far as they have rows, which each has.

        With `needed_from`, the row number that each slot's open windows begin at, panes before it are let
        go; without, nothing changes.
        """
        held = np.flatnonzero(self._held(slots))
        owners, rings = self._rings.of_slots(slots[held])
        listing, ring = self._listing(rings, first[held], past[held])
        way: CombineMethod = (
            "sweep" if needed_from is None else choose_method(self._combiner.longest, rings, listing)
        )
        slots, starts = owners[ring], ~self._at(rings[ring], listing.lo, -2)
        ends = self._at(rings[ring], listing.hi - 1, -1)
        try:
            if way == "tree":
                self._combiner.refresh(rings, listing)
            cells = self._combined(way, rings, listing)
        except CombineFailure as failed:
            if (place := failed.place) is not None:
                failed.whose = WindowRef(
                    int(slots[place]), self._window, int(starts[place]), int(ends[place])
                )
            raise
        found = ClosedCountWindows(slots, listing.starts // self._window.every, starts, ends, cells)
        if needed_from is not None:
            # One for each ring, where time windows have one for all.
            needed: Any = self._slicing.ids(needed_from[held])
            self._rings.forget(owners, rings, needed, self._run)
        return found

    def _held(self, slots: Ints) -> Mask:
        self._rings.reserve(int(slots.max(initial=-1)) + 1)
        return np.asarray(self._rings.table[slots, MASK] >= 0, np.bool_)

    def _listing(self, rings: Ints, first: Ints, past: Ints) -> tuple[ReadyWindows, Ints]:
        numbers, ring = expand_ranges(first, past)
        starts = numbers * self._window.every
        hi = np.minimum(self._slicing.ids(starts + self._window.size), rings[ring, END])
        ends = np.cumsum(np.maximum(past - first, 0))
        return ReadyWindows(starts, self._slicing.ids(starts), hi, ends), ring

    def _at(self, rings: Ints, ids: Ints, state: int) -> Ints:
        """One number of one pane per ring."""
        return np.asarray(self._arena.cells[state][rings[:, BASE] + (ids & rings[:, MASK]), 0], np.int64)

    def _combined(self, way: CombineMethod, rings: Ints, listing: ReadyWindows) -> tuple[Cells, ...]:
        """The cells of the registers that were asked for."""
        if not len(listing.starts):
            return tuple(register.rule.neutral_cells(0) for register in self._asked)
        places = range(len(self._kept))
        cells = [self._combiner.combine(place, way, rings, listing) for place in places]
        held = dict(zip(self._kept, cells, strict=True))
        return tuple(to_counts(register, held[register], cells[0]) for register in self._asked)

    def export(self, slots: Ints) -> pa.RecordBatch:
        """The panes of these slots that have rows."""
        owners, rings = self._rings.of_slots(slots[self._held(slots)])
        ids, ring = expand_ranges(rings[:, FIRST], rings[:, END])
        cells = rings[ring, BASE] + (ids & rings[ring, MASK])
        filled = self._arena.cells[0][cells, 0] > 0
        ids, ring, cells = ids[filled], ring[filled], cells[filled]
        columns = {PLACE: pa.array(places_of(owners[ring], slots)), "pane": pa.array(ids)}
        for place, state in enumerate(self._arena.cells):
            for part in range(state.shape[1]):
                columns[f"{place}.{part}"] = pa.array(state[cells, part], from_pandas=False)
        return pa.RecordBatch.from_pydict(columns)

    def load(self, saved: pa.RecordBatch, slots: Ints) -> None:
        """Take up exported panes: what was at place i now belongs to slots[i]."""
        if not saved.num_rows:
            return
        owners = slots[ints_of(saved, PLACE)]
        self._rings.reserve(int(owners.max()) + 1)
        cells = self._rings.place(owners, ints_of(saved, "pane"))
        for place, state in enumerate(self._arena.cells):
            for part in range(state.shape[1]):
                state[cells, part] = saved.column(f"{place}.{part}").to_numpy()


# What becomes of the rows of count windows: known when the first window with a row is full, or at the end.
#
# Rows whose fate another kind of window has decided have no ticket (-1) and are not followed.

ResolvedRows = tuple[Ints, Decisions]


class OpenRows:
    """The tickets of rows in windows that are not full: (slot, rows the slot needs, ticket) of each."""

    def __init__(self, window: CountWindow) -> None:
        self._size, self._every = window.size, window.every
        self._open = np.empty((0, 3), np.int64)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._open.nbytes

    def add(self, slots: Ints, numbers: Ints, tickets: Ints, filled: Ints) -> list[ResolvedRows]:
        """Follow rows; gives back those in windows that are full, and those whose number is in no window.

        filled[i] is one past the last row of the last full window of row i's slot. A row's first window is
        the one that starts earliest, and is full first.
        """
        mine = tickets >= 0
        settled = []
        if self._every > self._size:
            outside = numbers % self._every >= self._size
            settled.append(_resolve_all(tickets[mine & outside], Outcome.NO_WINDOW))
            mine &= ~outside
        full = numbers < filled
        settled.append(_resolve_all(tickets[mine & full], Outcome.PASSED))
        rest = np.flatnonzero(mine & ~full)
        first = np.maximum((numbers[rest] - self._size) // self._every + 1, 0) * self._every
        new = np.stack([slots[rest], first + self._size, tickets[rest]], axis=1)
        self._open = np.concatenate([self._open, new])
        return settled

    def settle(self, placed: Ints) -> ResolvedRows:
        """The rows in windows that have become full; placed[slot] is how many rows the slot has come to."""
        full = self._open[:, 1] <= placed[self._open[:, 0]]
        settled = _resolve_all(self._open[full, 2], Outcome.PASSED)
        self._open = self._open[~full]
        return settled

    def end(self, outcome: Outcome) -> ResolvedRows:
        """All other rows, at the end of the stream."""
        settled = _resolve_all(self._open[:, 2], outcome)
        self._open = self._open[:0].copy()
        return settled

    def export(self, slots: Ints) -> pa.RecordBatch:
        """The tickets of these slots."""
        rows = self._open[np.isin(self._open[:, 0], slots)]
        arrays = [places_of(rows[:, 0], slots), rows[:, 1], rows[:, 2]]
        return pa.RecordBatch.from_arrays([pa.array(each) for each in arrays], names=[PLACE, "due", "ticket"])

    def load(self, saved: pa.RecordBatch, slots: Ints) -> None:
        """Take up exported tickets: what was at place i now belongs to slots[i]."""
        columns = [slots[ints_of(saved, PLACE)], ints_of(saved, "due"), ints_of(saved, "ticket")]
        self._open = np.concatenate([self._open, np.stack(columns, axis=1)])


def concat_resolved(parts: list[ResolvedRows]) -> ResolvedRows:
    """Several lots as one."""
    tickets, outcomes = zip(*parts, strict=True)
    return np.concatenate(tickets), np.concatenate(outcomes)


def _resolve_all(tickets: Ints, outcome: Outcome) -> ResolvedRows:
    return tickets, np.full(len(tickets), outcome, np.uint8)
