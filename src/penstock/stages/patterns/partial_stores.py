"""Partials: what one replica knows of a slice or a window, as an Arrow batch that an engine can carry.

    key_0, key_1, …   the key columns, in their types
    window            int64  the place of the window in the step; of a slice the first window that it serves
    start             int64  microseconds: where the window, or the slice, begins
    watermark         int64  microseconds: the watermark by which late rows were found
    rows.0, int sum of 0.0, int sum of 0.1, …
                      the numbers of each accumulator's cell, by its kind and the place of its values among
                      the step's: int64 or float64, never null

Partials of one (key, window, start) are merged by the accumulators' rules, in any order. A slice is part of
windows that have closed and of others that have not; so a partial is not merged before all windows are gone
that had closed when its rows came (`watermark`).

Two stores give partials away, two merge them. What is given away is forgotten, so a slice or window that gets
more rows later gives another partial. All decide on rows as `TimeStore` does; only what leaves differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.windows.accumulate import Cells
from penstock.kernels.windows.sessions import build_merge_loop
from penstock.kernels.windows.slice_loop import MAX_ID
from penstock.operators.stream import Stream
from penstock.stages.keys.slots import KeySlots
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.store import PLACE, ints_of, places_of
from penstock.stages.window.accumulators import (
    AccumulatorKind,
    WindowAccumulator,
    cells_to_columns,
    load_cells,
    to_counts,
)
from penstock.stages.window.store import ClosedWindows, Decided, InputRows, StateBatches
from penstock.stages.window.time_store import FRESH, EarlyFirings, TimeStore
from penstock.timing.windows import TimeWindow

PARTIALS = "partials"
"""The port on which partials leave a stage."""
_WINDOW, _START, _WATERMARK = "window", "start", "watermark"


@dataclass(frozen=True, slots=True)
class Partials:
    """Partials as arrays, all of one length.

    kinds   int64[n]  the column "window"
    slots   int64[n]  of their keys
    starts  int64[n]
    cells   one array [n, width] per accumulator
    """

    kinds: Ints
    slots: Ints
    starts: Ints
    cells: tuple[Cells, ...]

    def of_kinds(self, kinds: Ints) -> Partials:
        """Return the partials of some kinds."""
        places = np.flatnonzero(np.isin(self.kinds, kinds))
        cells = tuple(cells[places] for cells in self.cells)
        return Partials(self.kinds[places], self.slots[places], self.starts[places], cells)


class PartialFormat:
    """The columns of the partials of one step."""

    def __init__(self, up: Stream, accumulators: Sequence[WindowAccumulator]) -> None:
        self._accumulators = tuple(accumulators)
        self.key = tuple(f"key_{place}" for place in range(len(up.key)))
        types = [up.schema.field(name).type for name in up.key]
        fields = [*zip(self.key, types, strict=True)]
        fields += [(name, pa.int64()) for name in (_WINDOW, _START, _WATERMARK)]
        for accumulator in accumulators:
            type_ = pa.float64() if accumulator.rule.floats else pa.int64()
            fields += [(name, type_) for name in _column_names(accumulator)]
        self.schema = pa.schema(fields)

    def to_batch(self, closed: ClosedWindows, keys: KeySlots, watermark: int) -> Batch:
        """Return what leaves a replica as partials; the time of a partial is where it begins."""
        watermarks = np.full(len(closed.slots), watermark, np.int64)
        columns = [*keys.columns_of(closed.slots), *map(pa.array, (closed.kinds, closed.starts, watermarks))]
        for cells in closed.cells:
            columns += [pa.array(cells[:, part], from_pandas=False) for part in range(cells.shape[1])]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema), closed.starts)

    def from_batch(self, batch: Batch, keys: KeySlots) -> Partials:
        """Read partials, with slots for their keys."""
        rows = batch.rows
        slots = keys.assign([rows.column(name) for name in self.key], rows.num_rows)
        cells = tuple(
            np.stack([_column(rows, name) for name in _column_names(accumulator)], axis=1)
            for accumulator in self._accumulators
        )
        return Partials(_column(rows, _WINDOW), slots, _column(rows, _START), cells)


def _column_names(accumulator: WindowAccumulator) -> list[str]:
    """Return the columns of an accumulator: one for each number of a cell."""
    name = str(accumulator.kind)
    name = name if accumulator.column is None else f"{name} of {accumulator.column}"
    return [f"{name}.{part}" for part in range(accumulator.rule.width)]


def watermarks_of(partials: Batch) -> Ints:
    """Return the watermark by which the late rows of each partial were found."""
    return _column(partials.rows, _WATERMARK)


def _column(rows: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False))


class PartialPaneStore(TimeStore):
    """Slices that leave as partials once the watermark, less the lateness, is past their end (PLQ)."""

    def explain(self) -> tuple[str, ...]:
        """Say that windows are combined elsewhere."""
        return tuple(f"{window}: slices leave as partials" for window in self.slicing.windows)

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Give away the slices that have ended: no window that closes now holds a later one."""
        self._closed_to = max(self._closed_to, watermark)
        return self._give_away(self.slicing.id_of(self._closed_to - self.lateness))

    def fire_early(self) -> ClosedWindows:
        """Give away all slices."""
        return self._give_away(MAX_ID)

    def _give_away(self, before: int) -> ClosedWindows:
        """Give away the slices with numbers below `before`; kinds are 0, ends mean nothing."""
        slots, rings = self._rings.active()
        ids, ring, cells = self._slices.filled(rings, before)
        starts = self.slicing.starts(ids)
        results = self.accumulators.results([of_one[cells] for of_one in self._arena.cells])
        emptied = self._rings.forget(slots, rings, before, self._slices.run)
        kinds = np.zeros(len(ids), np.int64)
        return ClosedWindows(kinds, slots[ring], starts, starts, starts, cells=results, touched=emptied)


class PartialWindowStore(TimeStore):
    """Windows that leave as partials, when they would close (MAP)."""

    def fire_early(self) -> ClosedWindows:
        """Give away all open windows, and the slices they are combined from."""
        fired = super().fire_early()
        self.early_firings = EarlyFirings()  # none of them counts as fired: more may come of each
        slots, rings = self._rings.active()
        return replace(fired, touched=self._rings.forget(slots, rings, MAX_ID, self._slices.run))


class FinalPaneStore(TimeStore):
    """Slices that come as partials, and the windows combined from them (WLQ)."""

    def merge(self, partials: Partials) -> None:
        """Merge partials into their slices, also those that earlier windows have used."""
        self._rings.reserve(int(partials.slots.max()) + 1)
        places = self._rings.place(partials.slots, self.slicing.ids(partials.starts))
        into, which = np.unique(places, return_inverse=True)
        stored = zip(self.accumulators.stored, self._arena.cells, partials.cells, strict=True)
        for place, (accumulator, state, cells) in enumerate(stored):
            kept = to_counts(accumulator, cells, partials.cells[0])
            self._arena.is_neutral[place] &= not kept.any()
            state[into] = _merge_cells(self._slices.run, accumulator, state[into], kept, which)


class FinalWindowStore:
    """Windows that come as partials (REDUCE): one cell per accumulator and open window."""

    next_end = None

    def __init__(
        self, windows: Sequence[TimeWindow], lateness: int, accumulators: Sequence[WindowAccumulator]
    ) -> None:
        assert accumulators[0].kind is AccumulatorKind.ROWS, "a window without rows does not exist"
        self._windows, self._lateness, self._accumulators = tuple(windows), lateness, tuple(accumulators)
        self._sizes = np.array([window.size for window in windows], np.int64)
        self._open = np.empty((0, 3), np.int64)  # slot, kind, start; each once, sorted
        self._cells: list[Cells] = [accumulator.rule.neutral_cells(0) for accumulator in accumulators]
        self._fresh = np.zeros(0, np.bool_)  # by open window: partials came since it last fired early
        self._run = JitPolicy()

    @property
    def n_kinds(self) -> int:
        """The number of kinds of window."""
        return len(self._windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._open.nbytes + self._fresh.nbytes + sum(cells.nbytes for cells in self._cells)

    def explain(self) -> tuple[str, ...]:
        """Say how windows are combined."""
        return tuple(f"{window}: merged from the partials of replicas" for window in self._windows)

    def add(self, rows: InputRows, watermark: int) -> Decided:
        """Refuse rows, which never come here."""
        raise AssertionError("rows are added by the stages that make partials")

    def merge(self, partials: Partials) -> None:
        """Merge partials into their windows."""
        places = self._merge(partials)
        self._fresh[places] = True

    def _merge(self, partials: Partials) -> Ints:
        """Merge partials into their windows; return where these stand."""
        new = np.stack([partials.slots, partials.kinds, partials.starts], axis=1)
        both, which = np.unique(np.concatenate([self._open, new]), axis=0, return_inverse=True)
        which = which.reshape(-1)
        old, new_places = which[: len(self._open)], which[len(self._open) :]
        for i, (accumulator, cells) in enumerate(zip(self._accumulators, partials.cells, strict=True)):
            into = accumulator.rule.neutral_cells(len(both))
            into[old] = self._cells[i]
            self._cells[i] = _merge_cells(self._run, accumulator, into, cells, new_places)
        fresh = np.zeros(len(both), np.bool_)
        fresh[old] = self._fresh
        self._open, self._fresh = both, fresh
        return np.asarray(new_places, np.int64)

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Close every window with end + lateness <= watermark."""
        closes = self._ends() + self._lateness <= watermark
        closed = self._read(np.flatnonzero(closes))
        self._open, self._fresh = self._open[~closes], self._fresh[~closes]
        self._cells = [cells[~closes] for cells in self._cells]
        return replace(closed, touched=np.unique(closed.slots))

    def fire_early(self) -> ClosedWindows:
        """Return the open windows that changed since they last fired early."""
        changed = np.flatnonzero(self._fresh)
        self._fresh[:] = False
        return self._read(changed)

    def _ends(self) -> Ints:
        return np.asarray(self._open[:, 2] + self._sizes[self._open[:, 1]], np.int64)

    def _read(self, places: Ints) -> ClosedWindows:
        slots, kinds, starts = (np.ascontiguousarray(column) for column in self._open[places].T)
        ends, cells = self._ends()[places], tuple(cells[places] for cells in self._cells)
        return ClosedWindows(kinds, slots, starts, ends, ends - 1, cells=cells)

    def has_state(self, slots: Ints) -> Mask:
        """Return which of these slots have an open window."""
        return np.isin(slots, self._open[:, 0])

    def export(self, slots: Ints) -> StateBatches:
        """Return the open windows of these slots."""
        places = np.flatnonzero(np.isin(self._open[:, 0], slots))
        columns = {
            PLACE: pa.array(places_of(self._open[places, 0], slots)),
            "kind": pa.array(self._open[places, 1]),
            "start": pa.array(self._open[places, 2]),
            FRESH: pa.array(self._fresh[places]),
            **cells_to_columns(self._cells, places),
        }
        return {"windows": pa.RecordBatch.from_pydict(columns)}

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over exported windows: what was at place i now belongs to slots[i]."""
        batch = saved["windows"]
        cells = tuple(each.rule.neutral_cells(batch.num_rows) for each in self._accumulators)
        load_cells(batch, cells, np.arange(batch.num_rows))
        owners = slots[ints_of(batch, PLACE)]
        places = self._merge(Partials(ints_of(batch, "kind"), owners, ints_of(batch, "start"), cells))
        self._fresh[places] = batch.column(FRESH).to_numpy(zero_copy_only=False)


def _merge_cells(
    run: JitPolicy, accumulator: WindowAccumulator, into: Cells, cells: Cells, which: Ints
) -> Cells:
    """Return the cells `into`, each with the others that belong to it: cells[i] to into[which[i]]."""
    both = np.concatenate([into, cells])
    sources = len(into) + np.arange(len(cells))
    run(build_merge_loop(accumulator.rule), np.ascontiguousarray(which, np.int64), sources, both)
    return both[: len(into)]
