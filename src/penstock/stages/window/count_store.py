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
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.windows import accumulate
from penstock.kernels.windows.accumulate import MAX
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
from penstock.stages.window.accumulators import StoredAccumulators, WindowAccumulator, cells_to_columns
from penstock.stages.window.combine import Combiner, list_next_windows
from penstock.stages.window.folds import CombineFailure, WindowRef, lift_values
from penstock.stages.window.panes import SliceAccumulators
from penstock.stages.window.store import ClosedWindows, Decided, Decision, Outcome, StateBatches
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, TimeWindow

NUMBERED, FIRED, CLOSED = range(3)
"""Columns of what is known of a slot: rows numbered, rows numbered when windows last fired early, and from
CLOSED on, one for each kind, the windows that have closed."""

SettledRows = tuple[Ints, npt.NDArray[np.uint8]]
"""(tags, outcomes), as in `ClosedWindows.settled`."""


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
        self._open_rows = [OpenRows(window) for window in windows]
        self._waiting, self._rows = RowBlocks(), RowBlocks()
        self._slots = np.zeros((0, CLOSED + len(self._windows)), np.int64)

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
        tags, outcomes = (np.concatenate(column) for column in zip(*settled, strict=True))
        return replace(closed, touched=touched, settled=(tags, outcomes))

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
        columns = {PLACE: pa.array(places_of(owners, slots)), "pane": pa.array(ids)}
        return pa.RecordBatch.from_pydict(columns | cells_to_columns(self._slices.arena.cells, cells))

    def load(self, saved: pa.RecordBatch, slots: Ints) -> None:
        """Take over exported panes: what was at place i now belongs to slots[i]."""
        if saved.num_rows:
            self._slices.load(saved, slots[ints_of(saved, PLACE)], ints_of(saved, "pane"))


class OpenRows:
    """The rows of a kind of count window whose first window is not full: (slot, rows it needs, tag) of each.

    Rows that another kind of window has admitted have the tag -1 and are not followed.
    """

    def __init__(self, window: CountWindow) -> None:
        self._size, self._every = window.size, window.every
        self._open = np.empty((0, 3), np.int64)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
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


def _settle_all(tags: Ints, outcome: Outcome) -> SettledRows:
    return tags, np.full(len(tags), outcome, np.uint8)
