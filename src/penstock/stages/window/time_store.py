"""The store of time windows: accumulators per (slot, slice), combined into windows when these close.

A row is added to one slice, whatever number of windows it lies in; slices wait in rings per slot until no
open window needs them (SPRINGALD's pane stage and window stage, IV). Rows late for some of their windows
change slices that earlier windows have used; those windows have closed and do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.kernels.windows.accumulate import Cells
from penstock.kernels.windows.ring import expand_ranges
from penstock.kernels.windows.slice_loop import END, FIRST, MASK
from penstock.operators.choices import explain_method
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import ENDED, NEVER, InputRows, no_ints
from penstock.stages.rows.store import PLACE, ints_of, places_of
from penstock.stages.window.accumulators import (
    StoredAccumulators,
    WindowAccumulator,
    cells_to_columns,
    load_cells,
)
from penstock.stages.window.admission import decide_rows
from penstock.stages.window.combine import CombineMethod, Combiner, ReadyWindows, choose_method, list_ready
from penstock.stages.window.folds import CombineFailure, WindowRef
from penstock.stages.window.panes import SliceAccumulators
from penstock.stages.window.store import ClosedWindows, Decided, StateBatches
from penstock.timing.slices import Slicing, first_open

FRESH = "fresh"
"""The column of saved slices that says which are to fire early; left out if all are."""


class TimeStore:
    """Time windows of kinds that share slices, for all keys.

    At most `max_windows` windows of a key close in one pass over its tree (the paper's n_w); they all close
    at the same watermark. For FIRST and LAST, `InputRows.order` has one array, or none: then ties go to the
    greater value. `method` forces one way to combine, for tests.
    """

    def __init__(
        self,
        slicing: Slicing,
        lateness: int,
        accumulators: Sequence[WindowAccumulator],
        *,
        method: CombineMethod | None = None,
        max_windows: int = 1 << 20,
        compile_after: int | None = None,
    ) -> None:
        self.slicing, self.lateness = slicing, lateness
        self.accumulators = StoredAccumulators(accumulators)
        self._slices = SliceAccumulators(slicing, self.accumulators.stored, compile_after)
        self._arena, self._rings = self._slices.arena, self._slices.rings
        self._combiner = Combiner(slicing, self._arena, self._slices.run)
        self._method, self._max_windows = method, max_windows
        self._closed_to = NEVER  # windows with end + lateness up to here have closed
        self.early_firings = EarlyFirings()

    @property
    def n_kinds(self) -> int:
        """Return the number of kinds of window."""
        return len(self.slicing.windows)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._slices.nbytes + self.early_firings.nbytes

    @property
    def next_end(self) -> int | None:
        """Return the least watermark at which a window closes, whether or not it has rows."""
        return self._next_end()

    def _next_end(self) -> int:
        return min(
            first_open(window, self._closed_to, self.lateness) + window.size + self.lateness
            for window in self.slicing.windows
        )

    def explain(self) -> tuple[str, ...]:
        """Say for each kind how its windows are combined from slices, and why."""
        longest = self.slicing.longest
        methods = dict.fromkeys(explain_method(longest, exact=rule.exact) for rule in self.accumulators.rules)
        return tuple(f"{window}: {'; '.join(methods)}" for window in self.slicing.windows)

    def has_state(self, slots: Ints) -> Mask:
        """Return which of these slots have slices that an open window needs."""
        known = slots < len(self._rings.table)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self._rings.table[slots[known], MASK] >= 0
        return held

    def add(self, rows: InputRows, watermark: int) -> Decided | None:
        """Add the rows that are not late for all their windows to their slices."""
        times, least = rows.times, None
        open_from = self.slicing.open_from(watermark, self.lateness)
        if self.slicing.has_gaps and (gaps := self.slicing.outside(times)).any():
            rows = rows.at(np.flatnonzero(~gaps))
        slots = None if rows.single_key else rows.slots
        order = rows.order[0] if rows.order else None
        try:
            added = self._slices.add(slots, rows.times, rows.values, order, open_from)
        except CombineFailure as failure:
            failure.window_ref = self._first_window_of(failure, watermark)
            raise
        if len(rows.times) == len(times):
            least = added.least_time
        return decide_rows(self.slicing.windows, self.lateness, times, watermark, least)

    def _first_window_of(self, failure: CombineFailure, watermark: int) -> WindowRef | None:
        """Return the open window of a row on which combine failed that would close first."""
        if failure.slot is None or failure.time is None:
            return None
        windows = [
            (max(window.starts(failure.time)[0], first_open(window, watermark, self.lateness)), window)
            for window in self.slicing.windows
            if window.starts(failure.time)
        ]
        start, window = min(windows, key=lambda pair: pair[0] + pair[1].size)
        return WindowRef(failure.slot, window, start, start + window.size)

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Close every window with end + lateness <= watermark, and drop slices that only they needed."""
        if watermark < self._next_end():
            return self._no_windows()
        slots, rings = self._rings.active()
        after, upto = self._closed_to - self.lateness, watermark - self.lateness
        combined = [
            self._combine(kind, slots, rings, ready)
            for kind in range(self.n_kinds)
            for ready in self._list_ready(kind, rings, after, upto)
        ]
        self._closed_to = max(self._closed_to, watermark)
        needed_from = self.slicing.id_of(self.slicing.open_from(self._closed_to, self.lateness))
        emptied = self._rings.forget(slots, rings, needed_from, self._slices.run)
        self.early_firings.forget_before(needed_from)
        closed = ClosedWindows.concat(combined or [self._no_windows()])
        return replace(closed, touched=emptied)

    def fire_early(self) -> ClosedWindows:
        """Return the open windows with a slice that got rows since windows last fired early."""
        slots, rings = self._rings.active()
        ids, ring = expand_ranges(rings[:, FIRST], rings[:, END])
        n_rows = self._slices.row_counts(rings[ring], ids)
        fresh = n_rows > 0
        held = np.flatnonzero(fresh)
        fresh[held] = self.early_firings.fire(slots[ring[held]], ids[held], n_rows[held])
        combined = [
            self._combine(kind, slots, rings, _select_fresh(ready, rings, fresh), "sweep")
            for kind in range(self.n_kinds)
            for ready in self._list_ready(kind, rings, self._closed_to - self.lateness, ENDED)
        ]
        return ClosedWindows.concat(combined or [self._no_windows()])

    def _list_ready(self, kind: int, rings: Ints, after: int, upto: int) -> list[ReadyWindows]:
        window = self.slicing.windows[kind]
        return list_ready(self._slices.run, self.slicing, window, rings, after, upto, self._max_windows)

    def _combine(
        self, kind: int, slots: Ints, rings: Ints, ready: ReadyWindows, method: CombineMethod | None = None
    ) -> ClosedWindows:
        """Combine the ready windows that have rows."""
        combiner = self._combiner
        method = method or self._method or choose_method(combiner.longest, rings, ready, combiner.is_light)
        try:
            if method == "tree":
                combiner.refresh(rings, ready)
            counts = combiner.combine(0, method, rings, ready)
            filled = counts[:, 0] > 0
            if not filled.all():
                ready, counts = ready.only(filled), counts[filled]
            rest = [combiner.combine(i, method, rings, ready) for i in range(1, len(self._arena.cells))]
        except CombineFailure as failure:
            if failure.place is not None:
                start, window = int(ready.starts[failure.place]), self.slicing.windows[kind]
                slot = int(slots[np.searchsorted(ready.ends, failure.place, side="right")])
                failure.window_ref = WindowRef(slot, window, start, start + window.size)
            raise
        owners = np.repeat(slots, ready.counts)
        return self._closed_windows(kind, owners, ready.starts, [counts, *rest])

    def _closed_windows(self, kind: int, slots: Ints, starts: Ints, cells: Sequence[Cells]) -> ClosedWindows:
        ends = starts + self.slicing.windows[kind].size
        kinds = np.full(len(slots), kind, np.int64)
        results = self.accumulators.results(cells)
        return ClosedWindows(kinds, slots, starts, ends, ends - 1, cells=results)

    def _no_windows(self) -> ClosedWindows:
        no_cells = [rule.neutral_cells(0) for rule in self.accumulators.rules]
        return self._closed_windows(0, no_ints(), no_ints(), no_cells)

    def export(self, slots: Ints) -> StateBatches:
        """Return the slices of these slots that have rows."""
        owners, rings = self._rings.of_slots(slots[self.has_state(slots)])
        ids, ring, cells = self._slices.slices_with_rows(rings)
        return self._state_batches(slots, owners[ring], ids, self._arena.cells, cells)

    def _state_batches(
        self, slots: Ints, owners: Ints, ids: Ints, cells: Sequence[Cells], places: Ints
    ) -> StateBatches:
        """Return slices as a batch: those at these places of the cells, whose slots are `owners`."""
        columns = {
            PLACE: pa.array(places_of(owners, slots)),
            "slice": pa.array(ids),
            "closed_to": pa.array(np.full(len(ids), self._closed_to)),
            **cells_to_columns(cells, places),
            **self.early_firings.column(owners, ids, cells[0][places, 0]),
        }
        return {"slices": pa.RecordBatch.from_pydict(columns)}

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over exported slices: what was at place i now belongs to slots[i]."""
        batch = saved["slices"]
        if batch.num_rows == 0:
            return
        self._closed_to = max(self._closed_to, int(ints_of(batch, "closed_to").max()))
        owners, ids = slots[ints_of(batch, PLACE)], ints_of(batch, "slice")
        self._rings.reserve(int(owners.max()) + 1)
        places = self._rings.place(owners, ids)
        self._arena.is_neutral = [False] * len(self._arena.cells)
        load_cells(batch, self._arena.cells, places)
        self.early_firings.load(batch, owners, ids, ints_of(batch, "0.0"))


class EarlyFirings:
    """The slices that fired early last, with how many rows: one has changed if it has more by now.

    Rows only come while a window is open, so their number tells whether anything changed. All open windows
    fire at once, so a window has changed since if one of its slices has. Invariant: slices are ordered by
    slot.
    """

    def __init__(self) -> None:
        self._slices = np.empty((3, 0), np.int64)  # slot, slice, rows
        self._loaded: list[Ints] = []

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._slices.nbytes + sum(slices.nbytes for slices in self._loaded)

    def fire(self, slots: Ints, ids: Ints, n_rows: Ints) -> Mask:
        """Note that all slices with rows, ordered by slot, fire now; return which have changed since."""
        fresh = self._find_changed(slots, ids, n_rows)
        self._slices, self._loaded = np.stack([slots, ids, n_rows]), []
        return fresh

    def forget_before(self, id_: int) -> None:
        """Forget the slices before this one."""
        self._merge_loaded()
        if self._slices.size:
            self._slices = self._slices[:, self._slices[1] >= id_]

    def column(self, slots: Ints, ids: Ints, n_rows: Ints) -> dict[str, pa.Array]:
        """Return which slices of a snapshot are to fire, as a column; no column if all are."""
        self._merge_loaded()
        return {FRESH: pa.array(self._find_changed(slots, ids, n_rows))} if self._slices.size else {}

    def load(self, saved: pa.RecordBatch, slots: Ints, ids: Ints, n_rows: Ints) -> None:
        """Take over what a snapshot says of its slices; those that it says nothing of have not fired."""
        if FRESH in saved.schema.names:
            fresh = saved.column(FRESH).fill_null(True).to_numpy(zero_copy_only=False)
            self._loaded.append(np.stack([slots, ids, n_rows])[:, ~fresh])

    def _find_changed(self, slots: Ints, ids: Ints, n_rows: Ints) -> Mask:
        """Return which slices, each named once, have other rows than when they last fired."""
        self._merge_loaded()
        if not self._slices.size:
            return np.ones(len(slots), np.bool_)
        wanted = np.unique(slots)
        first, past = (np.searchsorted(self._slices[0], wanted, side) for side in ("left", "right"))
        places, _ = expand_ranges(first, past)
        return _is_new(np.stack([slots, ids, n_rows]), self._slices[:, places])

    def _merge_loaded(self) -> None:
        """Put what was loaded, bucket by bucket, among the others."""
        if self._loaded:
            slices = np.concatenate([self._slices, *self._loaded], axis=1)
            self._slices, self._loaded = slices[:, np.argsort(slices[0], kind="stable")], []


def _select_fresh(ready: ReadyWindows, rings: Ints, fresh: Mask) -> ReadyWindows:
    """Return the windows that have a fresh slice; `fresh` says it of all slices, ring by ring."""
    lengths = rings[:, END] - rings[:, FIRST]
    n_fresh = np.append(0, np.cumsum(fresh))
    place = np.repeat(np.cumsum(lengths) - lengths - rings[:, FIRST], ready.counts)
    return ready.only(n_fresh[place + ready.hi] > n_fresh[place + ready.lo])


def _is_new(now: Ints, before: Ints) -> Mask:
    """Return which columns of `now` are not among those of `before`; neither has a column twice."""
    both = np.concatenate([before, now], axis=1)
    order = np.lexsort(both[::-1])
    twice = np.zeros(len(order), np.bool_)
    equal = (both[:, order[1:]] == both[:, order[:-1]]).all(axis=0)
    twice[order[1:][equal]] = True
    twice[order[:-1][equal]] = True
    return ~twice[before.shape[1] :]
