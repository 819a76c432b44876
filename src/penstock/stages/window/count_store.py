"""The store of count windows: window i of a key holds its rows i * every to i * every + size - 1, in order.

    size 3, every 2     rows    0  1  2  3  4  5
                        window 0 [-----)
                        window 1       [-----)

Rows wait until no earlier one can come, which is when W > time + lateness; then they are sorted by (time,
order, columns) and numbered per slot, and windows that are full close. A slot is never forgotten, because its
key's next row has the next number. All kinds of a step number rows alike, so rows wait, are sorted and are
kept once for all of them.

Count windows are sliding windows over row numbers, so slices, rings and the methods to combine them are those
of time windows (`time_store.py`), with a number in the place of a time. What differs: each slot has come to a
number of its own, and a window's bounds are the times of its first and last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.windows import accumulate
from penstock.kernels.windows.accumulate import MAX, Cells
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.ring import Rings, expand_ranges
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK
from penstock.operators.choices import explain_method
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import ENDED, InputRows, WindowRows, no_ints
from penstock.stages.rows.order import is_sorted, sort_indices
from penstock.stages.rows.store import (
    PLACE,
    RowBlocks,
    ints_of,
    list_windows,
    members_of_ranges,
    no_members,
    places_of,
    rows_from_snapshot,
    rows_of_slots,
    rows_to_snapshot,
)
from penstock.stages.window.accumulators import (
    StoredAccumulators,
    WindowAccumulator,
    cells_to_columns,
    load_cells,
)
from penstock.stages.window.admission import OpenRows, SettledRows, concat_settled
from penstock.stages.window.combine import CombineMethod, Combiner, ReadyWindows, choose_method
from penstock.stages.window.folds import CombineFailure, WindowRef, lift_values
from penstock.stages.window.inputs import AccumulatorUpdate, Run
from penstock.stages.window.store import ClosedWindows, Decided, Decision, Outcome, StateBatches
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, TimeWindow

NUMBERED, FIRED, CLOSED = range(3)
"""Columns of what is known of a slot: rows numbered, rows numbered when windows last fired early, and from
CLOSED on, one for each kind, the windows that have closed."""


class CountStore:
    """Count windows of some kinds, for all keys: accumulators of each, and rows if `rows` has a schema.

    Rows that tie on time and order are sorted by `InputRows.rows`, which must be there wherever rows can tie,
    kept or not.
    """

    next_end = None

    def __init__(
        self,
        windows: Sequence[CountWindow],
        lateness: int,
        accumulators: Sequence[WindowAccumulator] = (),
        *,
        partial: bool = False,
        rows: pa.Schema | None = None,
        compile_after: int | None = None,
    ) -> None:
        self._windows, self._lateness, self._partial = tuple(windows), lateness, partial
        self._schema, jit = rows, JitPolicy(compile_after)
        self._panes = [CountPanes(window, accumulators, jit) for window in windows]
        self._open_rows = [OpenRows(window) for window in windows]
        self._waiting, self._rows = RowBlocks(), RowBlocks()
        self._slots = np.zeros((0, CLOSED + len(self._windows)), np.int64)

    @property
    def n_kinds(self) -> int:
        """Return the number of kinds of window."""
        return len(self._windows)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        own = self._waiting.nbytes + self._rows.nbytes + self._slots.nbytes
        own += sum(panes.nbytes for panes in self._panes)
        return own + sum(open_rows.nbytes for open_rows in self._open_rows)

    def explain(self) -> tuple[str, ...]:
        """Say for each kind how windows are combined, and why."""
        rows = "" if self._schema is None else "; rows are kept until their last window closes"
        return tuple(
            f"{window}: rows wait to be put in order; panes of rows, {panes.explain()}{rows}"
            for window, panes in zip(self._windows, self._panes, strict=True)
        )

    def has_state(self, slots: Ints) -> Mask:
        """Return which slots have numbered rows, or rows that wait."""
        known = slots < len(self._slots)
        held = self._waiting.holds(slots)
        held[known] |= self._slots[slots[known], NUMBERED] > 0
        return held

    def add(self, rows: InputRows, watermark: int) -> Decided | None:
        """Let rows wait for their numbers, unless rows of their time are numbered already."""
        rows = replace(rows, values=lift_values(rows.values))
        self._reserve(rows.slots)
        if rows.times.min(initial=ENDED) >= watermark - self._lateness:
            self._waiting.add(rows)
            return None
        late = rows.times < watermark - self._lateness
        self._waiting.add(rows.at(np.flatnonzero(~late)))
        decisions = np.where(late, Decision.LATE, Decision.ADMITTED).astype(np.uint8)
        return np.tile(decisions, (self.n_kinds, 1)), np.tile(late.astype(np.int64), (self.n_kinds, 1))

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Number the rows that the watermark has passed, and close every window that is full."""
        ready = self._waiting.pull(below=watermark - self._lateness)
        slots, settled = (no_ints(), []) if ready is None else self._number(ready)
        touched = slots
        for open_rows in self._open_rows:
            settled.append(open_rows.settle(self._slots[:, NUMBERED]))
            if ended:
                settled.append(open_rows.end(Outcome.PASSED if self._partial else Outcome.UNFINISHED))
        if ended:
            slots = np.flatnonzero(self._slots[:, NUMBERED] > 0)
        count = self._n_begun if ended and self._partial else self._n_full
        past = [count(slots, window) for window in self._windows]
        needed = [
            np.full(len(slots), ENDED) if ended else n_closed * window.every
            for n_closed, window in zip(past, self._windows, strict=True)
        ]
        closed = self._read(slots, past, needed)
        self._slots[slots, CLOSED:] = np.stack(past, axis=1)
        return replace(closed, touched=touched, settled=concat_settled(settled))

    def fire_early(self) -> ClosedWindows:
        """Return the windows that are not full and have got rows since they last fired early."""
        slots = np.flatnonzero(self._slots[:, NUMBERED] > self._slots[:, FIRED])
        self._slots[slots, FIRED] = self._slots[slots, NUMBERED]
        return self._read(slots, [self._n_begun(slots, window) for window in self._windows], None)

    def _number(self, rows: InputRows) -> tuple[Ints, list[SettledRows]]:
        """Number rows and add those that are in windows; return their slots, and the rows settled by that."""
        keys = [rows.slots, rows.times, *rows.order]
        rows = rows if is_sorted(keys) else rows.at(sort_indices(keys, rows.rows))
        heads = np.append(0, np.flatnonzero(rows.slots[1:] != rows.slots[:-1]) + 1)
        slots, counts = rows.slots[heads], np.diff(heads, append=len(rows.slots))
        numbers = np.arange(len(rows.slots)) + np.repeat(self._slots[slots, NUMBERED] - heads, counts)
        self._slots[slots, NUMBERED] += counts
        self._add(numbers, rows)
        if rows.tags is None:
            return slots, []
        settled = []
        for open_rows, window in zip(self._open_rows, self._windows, strict=True):
            n_full = self._n_full(slots, window)
            filled = np.where(n_full > 0, (n_full - 1) * window.every + window.size, 0)
            settled += open_rows.add(rows.slots, numbers, rows.tags, np.repeat(filled, counts))
        return slots, settled

    def _add(self, numbers: Ints, rows: InputRows) -> None:
        """Add the rows whose numbers are in some window."""
        gaps = [numbers % w.every >= w.size for w in self._windows if w.every > w.size]
        outside = np.logical_and.reduce(gaps) if len(gaps) == self.n_kinds else None
        for window, panes in zip(self._windows, self._panes, strict=True):
            if window.every > window.size:
                inside = np.flatnonzero(numbers % window.every < window.size)
                panes.add(numbers[inside], rows.at(inside))
            else:
                panes.add(numbers, rows)
        if self._schema is not None:
            to_keep = InputRows(rows.slots, rows.times, (numbers,), rows=rows.rows, lifted=rows.lifted)
            self._rows.add(to_keep if outside is None else to_keep.at(np.flatnonzero(~outside)))

    def _read(self, slots: Ints, past: list[Ints], needed_from: list[Ints] | None) -> ClosedWindows:
        """Return the windows of each slot and kind that have not closed, before `past`.

        With `needed_from`, the row number that each slot's open windows begin at, panes and rows before it
        are dropped; without, nothing changes.
        """
        first = [self._slots[slots, CLOSED + kind] for kind in range(self.n_kinds)]
        needed = [None] * self.n_kinds if needed_from is None else needed_from
        kinds = zip(self._panes, first, past, needed, strict=True)
        windows = [panes.windows(kind, slots, *bounds) for kind, (panes, *bounds) in enumerate(kinds)]
        closed = ClosedWindows.concat(windows)
        if self._schema is not None:
            closed = replace(closed, members=self._members(closed.slots, slots, first, past, self._schema))
            if needed_from is not None:
                self._drop_rows(slots, np.minimum.reduce(needed_from))
        return closed

    def _members(
        self, owners: Ints, slots: Ints, first: list[Ints], past: list[Ints], schema: pa.Schema
    ) -> WindowRows:
        """Return the rows of windows, which come kind by kind, slot by slot and by number."""
        rows = self._rows.find(rows_of_slots(owners)) if len(owners) else None
        if rows is None:
            return no_members(schema)
        order = sort_indices([rows.slots, rows.order[0]])
        numbers, owner = rows.order[0][order], places_of(rows.slots[order], slots)
        ranges = []
        for window, begun, gone in zip(self._windows, first, past, strict=True):
            low = np.maximum((numbers - window.size) // window.every + 1, begun[owner])
            ranges.append(list_windows(owner, low, np.minimum(numbers // window.every, gone[owner] - 1)))
        _, lo, hi = (np.concatenate(column) for column in zip(*ranges, strict=True))
        return members_of_ranges(rows, order, lo, hi)

    def _drop_rows(self, slots: Ints, needed_from: Ints) -> None:
        """Drop the rows that no open window needs."""
        needed = np.zeros(len(self._slots), np.int64)
        needed[slots] = needed_from
        self._rows.pull(lambda rows: np.asarray(rows.order[0] < needed[rows.slots]))

    def _n_full(self, slots: Ints, window: CountWindow) -> Ints:
        """Return the number of windows that the rows of each slot have filled."""
        n_rows = self._slots[slots, NUMBERED]
        return np.asarray(np.maximum((n_rows - window.size) // window.every + 1, 0), np.int64)

    def _n_begun(self, slots: Ints, window: CountWindow) -> Ints:
        """Return the number of windows of each slot that have a row."""
        return np.asarray(-(-self._slots[slots, NUMBERED] // window.every), np.int64)

    def _reserve(self, slots: Ints) -> None:
        n_slots = int(slots.max(initial=-1)) + 1
        have, width = self._slots.shape
        if n_slots > have:
            more = max(n_slots, 2 * have) - have
            self._slots = np.concatenate([self._slots, np.zeros((more, width), np.int64)])

    def export(self, slots: Ints) -> StateBatches:
        """Return what is known of these slots, the rows that wait, and panes, open rows and kept rows."""
        self._reserve(slots)
        columns = {
            name: pa.array(column) for name, column in zip(self._names, self._slots[slots].T, strict=True)
        }
        columns[PLACE] = pa.array(np.arange(len(slots)))
        saved = {
            "slots": pa.RecordBatch.from_pydict(columns),
            "waiting": rows_to_snapshot(self._waiting.find(rows_of_slots(slots)), slots),
        }
        for kind, (panes, open_rows) in enumerate(zip(self._panes, self._open_rows, strict=True)):
            saved |= {f"panes {kind}": panes.export(slots), f"open rows {kind}": open_rows.export(slots)}
        if self._schema is not None:
            saved["rows"] = rows_to_snapshot(self._rows.find(rows_of_slots(slots)), slots)
        return saved

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over exported state: what was at place i now belongs to slots[i]."""
        self._reserve(slots)
        known = saved["slots"]
        columns = [ints_of(known, name) for name in self._names]
        self._slots[slots[ints_of(known, PLACE)]] = np.stack(columns, axis=1)
        for kind, (panes, open_rows) in enumerate(zip(self._panes, self._open_rows, strict=True)):
            panes.load(saved[f"panes {kind}"], slots)
            open_rows.load(saved[f"open rows {kind}"], slots)
        for name, blocks in (("waiting", self._waiting), ("rows", self._rows)):
            rows = rows_from_snapshot(saved[name], slots) if name in saved else None
            if rows is not None:
                blocks.add(rows)

    @property
    def _names(self) -> list[str]:
        """Return the names of the columns of `_slots`, in saved state."""
        return ["numbered", "fired", *(f"closed {kind}" for kind in range(self.n_kinds))]


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
        """Return the memory held."""
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
        self, kind: int, slots: Ints, first: Ints, past: Ints, needed_from: Ints | None = None
    ) -> ClosedWindows:
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
        kinds, index = np.full(len(slots), kind, np.int64), ready.starts // self._window.every
        windows = ClosedWindows(kinds, slots, starts, ends, ends, index, cells)
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
