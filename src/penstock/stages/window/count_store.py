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
from penstock.kernels.windows.accumulate import MAX
from penstock.operators.choices import explain_method
from penstock.stages.policy import JitPolicy
from penstock.stages.rows import store as row_store
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import ENDED, NEVER, InputRows, no_ints
from penstock.stages.rows.order import is_sorted, sort_indices
from penstock.stages.window.accumulators import StoredAccumulators, WindowAccumulator, cells_to_columns
from penstock.stages.window.combine import Combiner, list_next_windows
from penstock.stages.window.folds import CombineFailure, WindowRef, lift_values
from penstock.stages.window.panes import SliceAccumulators
from penstock.stages.window.store import (
    ClosedWindows,
    Decided,
    Decision,
    Decisions,
    OpenWindows,
    Outcome,
    StateBatches,
)
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, TimeWindow

NUMBERED, FIRED, CLOSED = range(3)
"""Columns of what is known of a slot: rows numbered, rows numbered when windows last fired early, and from
CLOSED on, one for each kind, the windows that have closed."""

NO_ROWS = ENDED
"""The number of rows that a slot never has: a row that needs it for a window lies in none."""


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
        self.n_kinds = len(self._windows)
        self._schema, jit = rows, JitPolicy(compile_after)
        self._panes = [CountPanes(window, accumulators, jit) for window in windows]
        # Rows in no full window: the slot, the rows that it needs for the first to be full, and the tag.
        self._open = np.empty((0, 3), np.int64)
        self._waiting, self._rows = row_store.RowBlocks(), row_store.RowBlocks()
        self._slots = np.zeros((0, CLOSED + len(self._windows)), np.int64)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        own = self._waiting.nbytes + self._rows.nbytes + self._slots.nbytes + self._open.nbytes
        return own + sum(panes.nbytes for panes in self._panes)

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
        touched, passed = (no_ints(), no_ints()) if ready is None else self._number(ready)
        slots, settled = touched, self._settle(passed, ended)
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
        return replace(closed, touched=touched, settled=settled)

    def fire_early(self) -> ClosedWindows:
        """Return the windows that are not full and have got rows since they last fired early."""
        slots = np.flatnonzero(self._slots[:, NUMBERED] > self._slots[:, FIRED])
        self._slots[slots, FIRED] = self._slots[slots, NUMBERED]
        return self._read(slots, [self._n_begun(slots, window) for window in self._windows], None)

    def _number(self, rows: InputRows) -> tuple[Ints, Ints]:
        """Number rows, and add those that are in windows; return their slots, and tags that have passed."""
        keys = [rows.slots, rows.times, *rows.order]
        rows = rows if is_sorted(keys) else rows.at(sort_indices(keys, rows.rows))
        heads = np.append(0, np.flatnonzero(rows.slots[1:] != rows.slots[:-1]) + 1)
        slots: Ints = rows.slots[heads]
        counts = np.diff(heads, append=len(rows.slots))
        numbers = np.arange(len(rows.slots)) + np.repeat(self._slots[slots, NUMBERED] - heads, counts)
        self._slots[slots, NUMBERED] += counts
        self._add(numbers, rows)
        if rows.tags is None:
            return slots, no_ints()
        # Where windows leave no gaps, a row with so many after it lies in one that is full.
        enough = min((w.size for w in self._windows if w.every <= w.size), default=NO_ROWS)
        has_passed = numbers < np.repeat(self._slots[slots, NUMBERED] - enough, counts)
        rest = np.flatnonzero(~has_passed)
        self._follow(rows.slots[rest], numbers[rest], rows.tags[rest])
        return slots, rows.tags[has_passed & (rows.tags >= 0)]

    def _follow(self, slots: Ints, numbers: Ints, tags: Ints) -> None:
        """Follow the rows that no other store has admitted until they are settled.

        A row's first window of a kind is the one that starts earliest, and is full first. A row that lies in
        no window needs NO_ROWS.
        """
        due = np.full(len(numbers), NO_ROWS)
        for window in self._windows:
            first = np.maximum((numbers - window.size) // window.every + 1, 0) * window.every
            due = np.minimum(due, np.where(numbers >= first, first + window.size, NO_ROWS))
        rows = np.stack([slots, due, tags], axis=1)
        self._open = np.concatenate([self._open, rows[tags >= 0]])

    def _settle(self, passed: Ints, ended: bool) -> tuple[Ints, Decisions]:
        """Return tags and outcomes of rows that passed at once, and of followed ones that are known now."""
        slots, due, tags = self._open.T
        outcomes = np.full(len(tags), Outcome.PASSED if self._partial else Outcome.UNFINISHED, np.uint8)
        is_full, is_outside = due <= self._slots[slots, NUMBERED], due == NO_ROWS
        outcomes[is_full], outcomes[is_outside] = Outcome.PASSED, Outcome.NO_WINDOW
        known = np.full(len(tags), True) if ended else is_full | is_outside
        self._open = self._open[~known]
        passes = np.full(len(passed), Outcome.PASSED, np.uint8)
        return np.append(passed, tags[known]), np.append(passes, outcomes[known])

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
            rows = self._rows.find(row_store.rows_of_slots(closed.slots)) if len(closed.slots) else None
            sizes = np.array([(window.every, window.size) for window in self._windows])[closed.kinds]
            begins = np.asarray(closed.index) * sizes[:, 0]
            bounds = closed.slots, begins, begins + sizes[:, 1]
            closed = replace(
                closed, members=row_store.find_members(rows, self._schema, *bounds, numbered=True)
            )
            if needed_from is not None:
                self._drop_rows(slots, np.minimum.reduce(needed_from))
        return closed

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
        columns[row_store.PLACE] = pa.array(np.arange(len(slots)))
        saved = {
            "slots": pa.RecordBatch.from_pydict(columns),
            "waiting": row_store.rows_to_snapshot(self._waiting.find(row_store.rows_of_slots(slots)), slots),
        }
        saved |= {f"panes {kind}": panes.export(slots) for kind, panes in enumerate(self._panes)}
        rows = self._open[np.isin(self._open[:, 0], slots)]
        columns = {
            row_store.PLACE: row_store.places_of(rows[:, 0], slots),
            "due": rows[:, 1],
            "tag": rows[:, 2],
        }
        saved["open rows"] = pa.RecordBatch.from_pydict(columns)
        if self._schema is not None:
            saved["rows"] = row_store.rows_to_snapshot(self._rows.find(row_store.rows_of_slots(slots)), slots)
        return saved

    def list_open(self, saved: StateBatches) -> OpenWindows:
        """Implement `WindowStore.list_open`: rows that still wait for their number begin windows too."""
        known, places = saved["slots"], row_store.ints_of(saved["slots"], row_store.PLACE)
        n_rows = row_store.ints_of(known, self._names[NUMBERED])
        if (waiting := saved["waiting"]).num_rows:
            n_rows = n_rows + np.bincount(row_store.ints_of(waiting, row_store.PLACE), minlength=len(n_rows))
        parts = []
        for kind, window in enumerate(self._windows):
            n_closed = row_store.ints_of(known, self._names[CLOSED + kind])
            n_open = np.maximum(-(-n_rows // window.every) - n_closed, 0)
            parts.append((np.full(n_open.sum(), kind, np.int64), np.repeat(places, n_open)))
        kinds, of_places = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return OpenWindows(kinds, of_places, np.zeros(len(kinds), np.int64))

    def rows_before(self, saved: StateBatches) -> int:
        """Implement `WindowStore.rows_before`: nobody asks, since aggregates of count windows stay."""
        return NEVER

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over exported state: what was at place i now belongs to slots[i]."""
        self._reserve(slots)
        known = saved["slots"]
        columns = [row_store.ints_of(known, name) for name in self._names]
        self._slots[slots[row_store.ints_of(known, row_store.PLACE)]] = np.stack(columns, axis=1)
        for kind, panes in enumerate(self._panes):
            panes.load(saved[f"panes {kind}"], slots)
        followed = saved["open rows"]
        open_ = [slots[row_store.ints_of(followed, row_store.PLACE)]]
        open_ += [row_store.ints_of(followed, name) for name in ("due", "tag")]
        self._open = np.concatenate([self._open, np.stack(open_, axis=1)])
        for name, blocks in (("waiting", self._waiting), ("rows", self._rows)):
            rows = row_store.rows_from_snapshot(saved[name], slots) if name in saved else None
            if rows is not None:
                blocks.add(rows)

    @property
    def _names(self) -> list[str]:
        """Return the names of the columns of `_slots`, in saved state."""
        return ["numbered", "fired", *(f"closed {kind}" for kind in range(self.n_kinds))]


class CountPanes:
    """The panes that windows which are not full need, for all slots."""

    def __init__(
        self, window: CountWindow, accumulators: Sequence[WindowAccumulator], run: JitPolicy
    ) -> None:
        self._window, self._run = window, run
        self._accumulators = StoredAccumulators(accumulators)
        stored = self._accumulators.stored
        self._slicing = Slicing.of([TimeWindow(window.size, window.every)])
        # Behind the accumulators: the least time of a pane, as its complement, and the greatest.
        self._slices = SliceAccumulators(self._slicing, stored, run, extra=[MAX, MAX])
        self._rings = self._slices.rings
        self._combiner = Combiner(self._slicing, self._slices.arena, run, len(stored))

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._slices.nbytes

    def explain(self) -> str:
        """Say how panes are combined, and why."""
        return explain_method(self._slicing.longest)

    def add(self, numbers: Ints, rows: InputRows) -> None:
        """Add rows, each in some window and all by (slot, number), to the panes of their numbers."""
        if not len(numbers):
            return
        slots, ids = rows.slots, self._slicing.ids(numbers)
        heads = np.flatnonzero(np.append(True, (slots[1:] != slots[:-1]) | (ids[1:] != ids[:-1])))
        self._rings.reserve(int(slots[-1]) + 1)
        cells = self._rings.place(slots[heads], ids[heads])
        cells = np.repeat(cells, np.diff(heads, append=len(slots)))
        runs = accumulate.row_by_row(cells)
        self._run(accumulate.keep_max, *runs, rows.times, -1, self._slices.arena.cells[-2])
        self._run(accumulate.keep_max, *runs, rows.times, 0, self._slices.arena.cells[-1])
        try:
            self._slices.update(rows, cells)
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
        start = ~self._slices.read(self._rings.table[slot : slot + 1], pane, -2)
        return WindowRef(slot, self._window, int(start[0]), int(rows.times[failure.place]))

    def windows(
        self, kind: int, slots: Ints, first: Ints, past: Ints, needed_from: Ints | None = None
    ) -> ClosedWindows:
        """Combine the windows [first, past) of each slot, all of which have rows.

        With `needed_from`, the row number that each slot's open windows begin at, panes before it are
        dropped; without, nothing changes.
        """
        window, held = self._window, np.flatnonzero(self._slices.has_state(slots))
        owners, rings = self._rings.of_slots(slots[held])
        firsts, counts = first[held] * window.every, np.maximum(past[held] - first[held], 0)
        n_windows = counts.copy()
        cells = [rule.neutral_cells(0) for rule in self._accumulators.rules]
        slots = starts = ends = index = no_ints()
        for ready in list_next_windows(self._run, self._slicing, window, rings, firsts, counts):
            ring = np.repeat(np.arange(len(rings)), n_windows)
            slots, index = owners[ring], ready.starts // window.every
            starts = ~self._slices.read(rings[ring], ready.lo, -2)
            ends = self._slices.read(rings[ring], ready.hi - 1, -1)
            try:
                _, cells = self._combiner.combine(rings, ready, "sweep" if needed_from is None else None)
            except CombineFailure as failure:
                if (at := failure.place) is not None:
                    bounds = int(starts[at]), int(ends[at])
                    failure.window_ref = WindowRef(int(slots[at]), window, *bounds)
                raise
        kinds, results = np.full(len(slots), kind, np.int64), self._accumulators.results(cells)
        if needed_from is not None:
            # One for each ring, where time windows have one for all.
            needed: Any = self._slicing.ids(needed_from[held])
            self._rings.forget(owners, rings, needed, self._run)
        return ClosedWindows(kinds, slots, starts, ends, ends, index, results)

    def export(self, slots: Ints) -> pa.RecordBatch:
        """Return the panes of these slots that have rows."""
        owners, ids, cells = self._slices.of_slots(slots)
        columns = {row_store.PLACE: pa.array(row_store.places_of(owners, slots)), "pane": pa.array(ids)}
        return pa.RecordBatch.from_pydict(columns | cells_to_columns(self._slices.arena.cells, cells))

    def load(self, saved: pa.RecordBatch, slots: Ints) -> None:
        """Take over exported panes: what was at place i now belongs to slots[i]."""
        if saved.num_rows:
            self._slices.load(
                saved, slots[row_store.ints_of(saved, row_store.PLACE)], row_store.ints_of(saved, "pane")
            )
