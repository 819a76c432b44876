"""The store of time windows: accumulators per (slot, slice), combined into windows when these close.

A row is added to one slice, whatever number of windows it lies in; slices wait in rings per slot until no
open window needs them (SPRINGALD's pane stage and window stage, IV). Rows late for some of their windows
change slices that earlier windows have used; those windows have closed and do not change.

Beside the accumulators, sketches are kept per slice, and rows for functions of whole windows and for
aggregates that no accumulator holds: text, decimals, lists. A row is kept once, whatever number of windows it
lies in, until the last of them has closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.kernels.windows.accumulate import Cells
from penstock.kernels.windows.ring import expand_ranges
from penstock.kernels.windows.slice_loop import END, FIRST
from penstock.operators.choices import explain_method
from penstock.stages.policy import JitPolicy
from penstock.stages.rows import store as row_store
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import ENDED, NEVER, InputRows, no_ints
from penstock.stages.window.accumulators import StoredAccumulators, WindowAccumulator, cells_to_columns
from penstock.stages.window.combine import CombineMethod, Combiner, ReadyWindows, list_ready
from penstock.stages.window.folds import CombineFailure, WindowRef
from penstock.stages.window.panes import SliceAccumulators
from penstock.stages.window.store import ClosedWindows, Decided, OpenWindows, StateBatches, decide_rows
from penstock.timing.slices import Slicing, first_open

if TYPE_CHECKING:
    from penstock.stages.window.sketches import SliceSketches

FRESH = "fresh"
"""The column of saved slices that says which are to fire early; left out if all are."""


class TimeStore:
    """Time windows of kinds that share slices, for all keys; with their rows if `rows` has a schema.

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
        sketches: SliceSketches | None = None,
        rows: pa.Schema | None = None,
        method: CombineMethod | None = None,
        max_windows: int = 1 << 20,
        compile_after: int | None = None,
    ) -> None:
        self.slicing, self.lateness = slicing, lateness
        self.accumulators = StoredAccumulators(accumulators)
        self._slices = SliceAccumulators(slicing, self.accumulators.stored, JitPolicy(compile_after))
        self._arena, self._rings = self._slices.arena, self._slices.rings
        self._combiner = Combiner(slicing, self._arena, self._slices.run, len(self._arena.rules))
        self._method, self._max_windows = method, max_windows
        self._closed_to = NEVER  # windows with end + lateness up to here have closed
        self.early_firings = EarlyFirings()
        self._sketches, self.n_kinds = sketches, len(slicing.windows)
        self._schema, self._rows = rows, row_store.RowBlocks()

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        beside = 0 if self._sketches is None else self._sketches.nbytes
        return self._slices.nbytes + self.early_firings.nbytes + beside + self._rows.nbytes

    @property
    def next_end(self) -> int:
        """Return the least watermark at which a window closes, whether or not it has rows."""
        return min(
            first_open(window, self._closed_to, self.lateness) + window.size + self.lateness
            for window in self.slicing.windows
        )

    def explain(self) -> tuple[str, ...]:
        """Say for each kind how its windows are combined from slices, and why, and what else is kept."""
        says = [explain_method(self.slicing.longest)] if self.accumulators.requested else []
        if self._sketches is not None:
            says[0] += f"; and {self._sketches.explain()}"
        if self._schema is not None:
            says.append("rows are kept until their last window closes")
        return tuple("; and ".join(f"{window}: {say}" for say in says) for window in self.slicing.windows)

    def has_state(self, slots: Ints) -> Mask:
        """Return which of these slots have slices that an open window needs."""
        return self._slices.has_state(slots)

    def add(self, rows: InputRows, watermark: int) -> Decided | None:
        """Add the rows that are not late for all their windows to their slices."""
        times, least = rows.times, None
        open_from = self.slicing.open_from(watermark, self.lateness)
        if self.slicing.has_gaps and (gaps := self.slicing.outside(times)).any():
            rows = rows.at(np.flatnonzero(~gaps))
        numbers = rows if rows.rows is None else replace(rows, rows=None, tags=None, lifted=())
        try:
            least_added = self._slices.add(numbers, open_from)
        except CombineFailure as failure:
            failure.window_ref = self._first_window_of(failure, watermark)
            raise
        if self._sketches is not None:
            on_time = numbers.at(np.flatnonzero(rows.times >= open_from))
            self._sketches.add(on_time, self.slicing.ids(on_time.times))
        if self._schema is not None:
            to_keep = InputRows(rows.slots, rows.times, rows.order, rows=rows.rows, lifted=rows.lifted)
            is_late = rows.times < open_from
            self._rows.add(to_keep.at(np.flatnonzero(~is_late)) if is_late.any() else to_keep)
        if len(rows.times) == len(times):
            least = least_added
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
        if watermark < self.next_end:
            return self._gather([])
        slots, rings = self._rings.active()
        after, upto = self._closed_to - self.lateness, watermark - self.lateness
        closed = self._windows_between(slots, rings, after, upto)
        self._closed_to = max(self._closed_to, watermark)
        open_from = self.slicing.open_from(self._closed_to, self.lateness)
        self._rows.pull(below=open_from)
        needed_from = self.slicing.id_of(open_from)
        emptied = self._rings.forget(slots, rings, needed_from, self._slices.run)
        self.early_firings.forget_before(needed_from)
        if self._sketches is not None:
            self._sketches.drop_before(needed_from)
        return replace(closed, touched=emptied)

    def fire_early(self) -> ClosedWindows:
        """Return the open windows with a slice that got rows since windows last fired early."""
        slots, rings = self._rings.active()
        ids, ring = expand_ranges(rings[:, FIRST], rings[:, END])
        n_rows = self._slices.read(rings[ring], ids, 0)
        fresh = n_rows > 0
        held = np.flatnonzero(fresh)
        fresh[held] = self.early_firings.fire(slots[ring[held]], ids[held], n_rows[held])
        return self._windows_between(slots, rings, self._closed_to - self.lateness, ENDED, fresh)

    def _windows_between(
        self, slots: Ints, rings: Ints, after: int, upto: int, fresh: Mask | None = None
    ) -> ClosedWindows:
        """Return the windows with rows and after < end <= upto; with `fresh`, those with a fresh slice."""
        closed, run = [], self._slices.run
        for kind, window in enumerate(self.slicing.windows):
            for listed in list_ready(run, self.slicing, window, rings, after, upto, self._max_windows):
                ready, method = listed, self._method
                if fresh is not None:
                    ready, method = _select_fresh(ready, rings, fresh), "sweep"
                try:
                    filled, cells = self._combiner.combine(rings, ready, method)
                except CombineFailure as failure:
                    if failure.place is not None:
                        start = int(ready.starts[failure.place])
                        slot = int(slots[np.searchsorted(ready.ends, failure.place, side="right")])
                        failure.window_ref = WindowRef(slot, window, start, start + window.size)
                    raise
                owners = np.repeat(slots, filled.counts)
                closed.append(self._closed_windows(kind, owners, filled.starts, cells))
        return self._gather(closed)

    def _closed_windows(self, kind: int, slots: Ints, starts: Ints, cells: Sequence[Cells]) -> ClosedWindows:
        ends = starts + self.slicing.windows[kind].size
        kinds = np.full(len(slots), kind, np.int64)
        results = self.accumulators.results(cells)
        return ClosedWindows(kinds, slots, starts, ends, ends - 1, cells=results)

    def _gather(self, combined: Sequence[ClosedWindows]) -> ClosedWindows:
        """Return all windows as one lot, with their sketches and rows."""
        if not combined:
            no_cells = [rule.neutral_cells(0) for rule in self.accumulators.rules]
            combined = [self._closed_windows(0, no_ints(), no_ints(), no_cells)]
        closed = ClosedWindows.concat(combined)
        bounds = closed.slots, closed.starts, closed.ends
        if self._sketches is not None:
            first, past = self.slicing.ids(closed.starts), self.slicing.ids(closed.ends)
            closed = replace(closed, sketches=self._sketches.read(closed.slots, first, past))
        if self._schema is not None:
            rows = self._rows.find(below=int(closed.ends.max(initial=NEVER)))
            closed = replace(closed, members=row_store.find_members(rows, self._schema, *bounds))
        return closed

    def export(self, slots: Ints) -> StateBatches:
        """Return the slices of these slots that have rows, with their sketches, and the kept rows."""
        owners, ids, cells = self._slices.of_slots(slots)
        saved = dict(self._state_batches(slots, owners, ids, self._arena.cells, cells))
        if self._sketches is not None:
            slices, fresh = saved["slices"], pa.array(np.ones(len(ids), np.bool_))
            columns = {
                row_store.PLACE: slices.column(row_store.PLACE),
                "slice": slices.column("slice"),
                FRESH: slices.column(FRESH) if FRESH in slices.schema.names else fresh,
                "closed_to": slices.column("closed_to"),
                **self._sketches.export(owners, ids),
            }
            saved["sketches"] = pa.RecordBatch.from_pydict(columns)
        if self._schema is not None:
            saved["rows"] = row_store.rows_to_snapshot(self._rows.find(row_store.rows_of_slots(slots)), slots)
        return saved

    def list_open(self, saved: StateBatches) -> OpenWindows:
        """Implement `WindowStore.list_open`: windows of one kind and key, over all its slices."""
        batch = saved["slices"]
        places, ids = row_store.ints_of(batch, row_store.PLACE), row_store.ints_of(batch, "slice")
        order = np.lexsort([ids, places])
        places, times = places[order], self.slicing.starts(ids[order])
        is_next = np.append(np.zeros(1, np.bool_), places[1:] == places[:-1])[: len(places)]
        parts = []
        for kind, window in enumerate(self.slicing.windows):
            last = times // window.every
            first = (times - window.size) // window.every + 1
            first = np.maximum(first, first_open(window, self._closed_to, self.lateness) // window.every)
            # Those that an earlier slice of the key lies in as well are listed there.
            first[is_next] = np.maximum(first, np.append(0, last[:-1] + 1))[is_next]
            numbers, at = expand_ranges(first, np.maximum(last + 1, first))
            parts.append((np.full(len(numbers), kind, np.int64), places[at], numbers * window.every))
        kinds, of_places, starts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return OpenWindows(kinds, of_places, starts)

    def rows_before(self, saved: StateBatches) -> int:
        """Implement `WindowStore.rows_before`: the end of the last slice."""
        ids = row_store.ints_of(saved["slices"], "slice")
        return self.slicing.start_of(int(ids.max()) + 1) if len(ids) else NEVER

    def _state_batches(
        self, slots: Ints, owners: Ints, ids: Ints, cells: Sequence[Cells], places: Ints
    ) -> StateBatches:
        """Return slices as a batch: those at these places of the cells, whose slots are `owners`."""
        columns = {
            row_store.PLACE: pa.array(row_store.places_of(owners, slots)),
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
        self._closed_to = max(self._closed_to, int(row_store.ints_of(batch, "closed_to").max()))
        owners, ids = slots[row_store.ints_of(batch, row_store.PLACE)], row_store.ints_of(batch, "slice")
        self._slices.load(batch, owners, ids)
        self.early_firings.load(batch, owners, ids, row_store.ints_of(batch, "0.0"))
        if self._sketches is not None:
            beside = saved["sketches"]
            self._sketches.load(
                beside, slots[row_store.ints_of(beside, row_store.PLACE)], row_store.ints_of(beside, "slice")
            )
        if (
            self._schema is not None
            and (rows := row_store.rows_from_snapshot(saved["rows"], slots)) is not None
        ):
            self._rows.add(rows)


class EarlyFirings:
    """The slices that fired early last, with how many rows: one has changed if it has more by now.

    Rows only come while a window is open, so their number tells whether anything changed. All open windows
    fire at once, so a window has changed since if one of its slices has.
    """

    def __init__(self) -> None:
        self._slices = np.empty((3, 0), np.int64)  # slot, slice, rows

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._slices.nbytes

    def fire(self, slots: Ints, ids: Ints, n_rows: Ints) -> Mask:
        """Note that all slices with rows fire now; return which have changed since they last did."""
        fresh = self._find_changed(slots, ids, n_rows)
        self._slices = np.stack([slots, ids, n_rows])
        return fresh

    def forget_before(self, id_: int) -> None:
        """Forget the slices before this one."""
        if self._slices.size:
            self._slices = self._slices[:, self._slices[1] >= id_]

    def column(self, slots: Ints, ids: Ints, n_rows: Ints) -> dict[str, pa.Array]:
        """Return which slices of a snapshot are to fire, as a column; no column if all are."""
        return {FRESH: pa.array(self._find_changed(slots, ids, n_rows))} if self._slices.size else {}

    def load(self, saved: pa.RecordBatch, slots: Ints, ids: Ints, n_rows: Ints) -> None:
        """Take over what a snapshot says of its slices; those that it says nothing of have not fired."""
        if FRESH in saved.schema.names:
            fresh = saved.column(FRESH).fill_null(True).to_numpy(zero_copy_only=False)
            fired = np.stack([slots, ids, n_rows])[:, ~fresh]
            self._slices = np.concatenate([self._slices, fired], axis=1)

    def _find_changed(self, slots: Ints, ids: Ints, n_rows: Ints) -> Mask:
        """Return which slices, each named once, have other rows than when they last fired."""
        if not self._slices.size:
            return np.ones(len(slots), np.bool_)
        before = self._slices[:, np.isin(self._slices[0], slots)]
        return _is_new(np.stack([slots, ids, n_rows]), before)


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
