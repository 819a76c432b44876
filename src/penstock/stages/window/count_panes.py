"""Panes of rows: accumulators per (slot, range of row numbers), combined into count windows.

Count windows are sliding windows over row numbers, so slices, rings and the methods to combine them are those
of time windows (`time_store.py`), with a number in the place of a time. What differs: each slot has come to a
number of its own, and a window's bounds are the times of its first and last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.windows import accumulate
from penstock.kernels.windows.accumulate import MAX, Cells
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.ring import Rings, expand_ranges
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK
from penstock.operators.choices.device import explain_method
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.store import PLACE, ints_of, places_of
from penstock.stages.window.accumulators import (
    StoredAccumulators,
    WindowAccumulator,
    cells_to_columns,
    load_cells,
)
from penstock.stages.window.combine import CombineMethod, Combiner, ReadyWindows, choose_method
from penstock.stages.window.folds import CombineFailure, WindowRef
from penstock.stages.window.inputs import AccumulatorUpdate, Run
from penstock.stages.window.store import Decisions, InputRows, Outcome
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, TimeWindow


@dataclass(frozen=True, slots=True)
class ClosedCountWindows:
    """Count windows: slot and number of each, the times of its first and last row, its cells."""

    slots: Ints
    index: Ints
    starts: Ints
    ends: Ints
    cells: tuple[Cells, ...]


class CountPanes:
    """The panes that windows which are not full need, for all slots."""

    def __init__(self, window: CountWindow, accumulators: Sequence[WindowAccumulator], run: Run) -> None:
        self._window, self._run = window, run
        self._accumulators = StoredAccumulators(accumulators)
        self._slicing = Slicing.of([TimeWindow(window.size, window.every)])
        # Behind the accumulators: the least time of a pane, as its complement, and the greatest.
        self._arena = Arena([*self._accumulators.rules, MAX, MAX])
        self._rings = Rings(self._arena, self._slicing.longest)
        self._combiner = Combiner(self._slicing, self._arena, run)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._arena.nbytes + self._rings.nbytes

    def explain(self) -> str:
        """Say how panes are combined, and why."""
        rules, longest = self._accumulators.rules, self._slicing.longest
        return "; ".join(dict.fromkeys(explain_method(longest, exact=rule.exact) for rule in rules))

    def add(self, numbers: Ints, rows: InputRows) -> None:
        """Add rows, each in some window and all by (slot, number), to the panes of their numbers."""
        if not len(numbers):
            return
        cells = self._cells_of(rows.slots, self._slicing.ids(numbers))
        order = rows.order[0] if rows.order else np.zeros(len(numbers), np.int64)
        update = AccumulatorUpdate(self._run, cells, rows.times, order, rows.values)
        runs = accumulate.single_run(len(cells)), cells
        self._run(accumulate.keep_max, *runs, rows.times, -1, self._arena.cells[-2])
        self._run(accumulate.keep_max, *runs, rows.times, 0, self._arena.cells[-1])
        try:
            for accumulator, state in zip(self._accumulators.stored, self._arena.cells[:-2], strict=True):
                update.apply(accumulator, state)
        except CombineFailure as failure:
            failure.window_ref = self._first_window_of(failure, numbers, rows)
            raise

    def _first_window_of(self, failure: CombineFailure, numbers: Ints, rows: InputRows) -> WindowRef | None:
        """Return the first window of a row on which combine failed; that row is its last so far."""
        if failure.place is None:
            return None
        slot, number = int(rows.slots[failure.place]), int(numbers[failure.place])
        index = max((number - self._window.size) // self._window.every + 1, 0)
        pane = self._slicing.ids(np.array([index * self._window.every]))
        start = ~self._at(self._rings.table[slot : slot + 1], pane, -2)
        return WindowRef(slot, self._window, int(start[0]), int(rows.times[failure.place]))

    def _cells_of(self, slots: Ints, ids: Ints) -> Ints:
        """Return the cell of each (slot, pane); equal ones stand together."""
        self._rings.reserve(int(slots[-1]) + 1)
        new = np.append(True, (slots[1:] != slots[:-1]) | (ids[1:] != ids[:-1]))
        heads = np.flatnonzero(new)
        cells = self._rings.place(slots[heads], ids[heads])
        return np.repeat(cells, np.diff(heads, append=len(slots)))

    def windows(
        self, slots: Ints, first: Ints, past: Ints, needed_from: Ints | None = None
    ) -> ClosedCountWindows:
        """Combine the windows [first, past) of each slot, all of which have rows.

        With `needed_from`, the row number that each slot's open windows begin at, panes before it are
        dropped; without, nothing changes.
        """
        held = np.flatnonzero(self._has_panes(slots))
        owners, rings = self._rings.of_slots(slots[held])
        ready, ring = self._list(rings, first[held], past[held])
        method: CombineMethod = "sweep"
        if needed_from is not None:
            method = choose_method(self._combiner.longest, rings, ready)
        slots, starts = owners[ring], ~self._at(rings[ring], ready.lo, -2)
        ends = self._at(rings[ring], ready.hi - 1, -1)
        try:
            if method == "tree":
                self._combiner.refresh(rings, ready)
            cells = self._combine(method, rings, ready)
        except CombineFailure as failure:
            if (at := failure.place) is not None:
                failure.window_ref = WindowRef(int(slots[at]), self._window, int(starts[at]), int(ends[at]))
            raise
        windows = ClosedCountWindows(slots, ready.starts // self._window.every, starts, ends, cells)
        if needed_from is not None:
            # One for each ring, where time windows have one for all.
            needed: Any = self._slicing.ids(needed_from[held])
            self._rings.forget(owners, rings, needed, self._run)
        return windows

    def _has_panes(self, slots: Ints) -> Mask:
        self._rings.reserve(int(slots.max(initial=-1)) + 1)
        return np.asarray(self._rings.table[slots, MASK] >= 0, np.bool_)

    def _list(self, rings: Ints, first: Ints, past: Ints) -> tuple[ReadyWindows, Ints]:
        """List the windows [first, past) of each ring, and the ring of each window."""
        numbers, ring = expand_ranges(first, past)
        starts = numbers * self._window.every
        hi = np.minimum(self._slicing.ids(starts + self._window.size), rings[ring, END])
        ends = np.cumsum(np.maximum(past - first, 0))
        return ReadyWindows(starts, self._slicing.ids(starts), hi, ends), ring

    def _at(self, rings: Ints, ids: Ints, state: int) -> Ints:
        """Return one number of one pane per ring."""
        return np.asarray(self._arena.cells[state][rings[:, BASE] + (ids & rings[:, MASK]), 0], np.int64)

    def _combine(self, method: CombineMethod, rings: Ints, ready: ReadyWindows) -> tuple[Cells, ...]:
        """Return the cells of the requested accumulators."""
        rules = self._accumulators.rules
        if not len(ready.starts):
            return self._accumulators.results([rule.neutral_cells(0) for rule in rules])
        cells = [self._combiner.combine(place, method, rings, ready) for place in range(len(rules))]
        return self._accumulators.results(cells)

    def export(self, slots: Ints) -> pa.RecordBatch:
        """Return the panes of these slots that have rows."""
        owners, rings = self._rings.of_slots(slots[self._has_panes(slots)])
        ids, ring = expand_ranges(rings[:, FIRST], rings[:, END])
        filled = self._at(rings[ring], ids, 0) > 0
        ids, ring = ids[filled], ring[filled]
        cells = rings[ring, BASE] + (ids & rings[ring, MASK])
        columns = {PLACE: pa.array(places_of(owners[ring], slots)), "pane": pa.array(ids)}
        return pa.RecordBatch.from_pydict(columns | cells_to_columns(self._arena.cells, cells))

    def load(self, saved: pa.RecordBatch, slots: Ints) -> None:
        """Take over exported panes: what was at place i now belongs to slots[i]."""
        if not saved.num_rows:
            return
        owners = slots[ints_of(saved, PLACE)]
        self._rings.reserve(int(owners.max()) + 1)
        cells = self._rings.place(owners, ints_of(saved, "pane"))  # may replace the arrays of cells
        load_cells(saved, self._arena.cells, cells)


SettledRows = tuple[Ints, Decisions]
"""(tags, outcomes), as in `ClosedWindows.settled`."""


class OpenRows:
    """The rows of a kind of count window whose first window is not full: (slot, rows it needs, tag) of each.

    Rows that another kind of window has admitted have the tag -1 and are not followed.
    """

    def __init__(self, window: CountWindow) -> None:
        self._size, self._every = window.size, window.every
        self._open = np.empty((0, 3), np.int64)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._open.nbytes

    def add(self, slots: Ints, numbers: Ints, tags: Ints, filled: Ints) -> list[SettledRows]:
        """Follow rows; return those in windows that are full, and those whose number is in no window.

        filled[i] is one past the last row of the last full window of row i's slot. A row's first window is
        the one that starts earliest, and is full first.
        """
        pending = tags >= 0
        settled = []
        if self._every > self._size:
            outside = numbers % self._every >= self._size
            settled.append(_settle_all(tags[pending & outside], Outcome.NO_WINDOW))
            pending &= ~outside
        full = numbers < filled
        settled.append(_settle_all(tags[pending & full], Outcome.PASSED))
        rest = np.flatnonzero(pending & ~full)
        first = np.maximum((numbers[rest] - self._size) // self._every + 1, 0) * self._every
        rows = np.stack([slots[rest], first + self._size, tags[rest]], axis=1)
        self._open = np.concatenate([self._open, rows])
        return settled

    def settle(self, n_numbered: Ints) -> SettledRows:
        """Return the rows in windows that have become full; n_numbered[slot] rows of a slot are numbered."""
        full = self._open[:, 1] <= n_numbered[self._open[:, 0]]
        settled = _settle_all(self._open[full, 2], Outcome.PASSED)
        self._open = self._open[~full]
        return settled

    def end(self, outcome: Outcome) -> SettledRows:
        """Return all other rows, at the end of the stream."""
        settled = _settle_all(self._open[:, 2], outcome)
        self._open = self._open[:0].copy()
        return settled

    def export(self, slots: Ints) -> pa.RecordBatch:
        """Return the open rows of these slots."""
        rows = self._open[np.isin(self._open[:, 0], slots)]
        columns = [places_of(rows[:, 0], slots), rows[:, 1], rows[:, 2]]
        return pa.RecordBatch.from_arrays(
            [pa.array(column) for column in columns], names=[PLACE, "due", "tag"]
        )

    def load(self, saved: pa.RecordBatch, slots: Ints) -> None:
        """Take over exported rows: what was at place i now belongs to slots[i]."""
        columns = [slots[ints_of(saved, PLACE)], ints_of(saved, "due"), ints_of(saved, "tag")]
        self._open = np.concatenate([self._open, np.stack(columns, axis=1)])


def concat_settled(parts: Sequence[SettledRows]) -> SettledRows:
    """Return several lots as one."""
    tags, outcomes = zip(*parts, strict=True)
    return np.concatenate(tags), np.concatenate(outcomes)


def _settle_all(tags: Ints, outcome: Outcome) -> SettledRows:
    return tags, np.full(len(tags), outcome, np.uint8)
