"""Paned and map-reduce windows: replicas that make partials of slices, and replicas that merge them.

A *partial* is what one replica knows of a slice, as a row of an Arrow batch that an engine can carry:

    key_0, key_1, …   the key columns, in their types
    window            int64  the place in the step of the first window that the slice serves
    start             int64  microseconds: where the slice begins
    watermark         int64  microseconds: the watermark by which late rows were found
    rows.0, int sum of 0.0, int sum of 0.1, …
                      the numbers of each accumulator's cell, by its kind and the place of its values among
                      the step's: int64 or float64, never null

Partials of one (key, window, start) are merged by the accumulators' rules, in any order. What is given away
is forgotten, so a slice that gets more rows later gives another partial.

Rows are decided on and counted where partials are made; each comes to one replica. Results are emitted where
partials are merged. Between the two, partials go first and then the watermark as it is, the least of all
replicas: only then may windows close. Replicas need not keep step: the partials of one that is ahead wait.

Invariant: a slice is part of windows that have closed and of others that have not, so a partial is not merged
before all windows are gone that had closed when its rows came (`watermark`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.windows.accumulate import Cells, add_parts, build_rule_loop
from penstock.kernels.windows.slice_loop import MAX_ID
from penstock.operators.op import Stream
from penstock.stages.keys.slots import KeySlots
from penstock.stages.patterns.pattern import PARTIALS
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.rows.input import NEVER
from penstock.stages.stage import SavedBytes
from penstock.stages.window.accumulators import WindowAccumulator, to_counts
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.stages.window.store import ClosedWindows
from penstock.stages.window.time_store import TimeStore

_WINDOW, _START, _WATERMARK = "window", "start", "watermark"


Partials = tuple[Ints, Ints, Ints, tuple[Cells, ...]]
"""(kinds, slots, starts, cells): the column "window", the slots of the keys, the column "start", and one
array [n, width] per accumulator."""


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
        return _column(rows, _WINDOW), slots, _column(rows, _START), cells


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
    """Slices that leave as partials once the watermark, less the lateness, is past their end."""

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
        ids, ring, cells = self._slices.slices_with_rows(rings, before)
        starts = self.slicing.starts(ids)
        results = self.accumulators.results([of_one[cells] for of_one in self._arena.cells])
        emptied = self._rings.forget(slots, rings, before, self._slices.run)
        kinds = np.zeros(len(ids), np.int64)
        return ClosedWindows(kinds, slots[ring], starts, starts, starts, cells=results, touched=emptied)


class FinalPaneStore(TimeStore):
    """Slices that come as partials, and the windows combined from them."""

    def merge(self, slots: Ints, starts: Ints, partials: Sequence[Cells]) -> None:
        """Merge the cells of partials into their slices, also those that earlier windows have used."""
        self._rings.reserve(int(slots.max()) + 1)
        places = self._rings.place(slots, self.slicing.ids(starts))
        at = np.zeros(1, np.int64)
        stored = zip(self.accumulators.stored, self._arena.cells, partials, strict=True)
        for place, (accumulator, state, cells) in enumerate(stored):
            added = to_counts(accumulator, cells, partials[0])
            self._arena.is_neutral[place] &= not added.any()
            merge = build_rule_loop(add_parts, accumulator.rule)
            self._slices.run(merge, places, np.array(added, state.dtype, order="C"), state, at)


class PartialAggregateStage(WindowStage):
    """A replica that makes partials of slices: the pane-level query PLQ, or MAP.

    It has state only between two calls of `flush`: an engine flushes it before a snapshot, which is then that
    of the final stages alone, and can be restored by any number of replicas.
    """

    buffers_rows, time_store = False, PartialPaneStore

    def _begin(self) -> None:
        super()._begin()
        self.format = PartialFormat(self._up, self._layout.accumulators)
        self._partials_watermark = NEVER  # under which the late rows of all slices that leave were found

    def flush(self) -> Emitted:
        """Give away everything, as partials."""
        fired = [group.renumber(group.store.fire_early()) for group in self._groups]
        yield from self._emit(fired, final=False)
        self._release(fired)

    def snapshot(self) -> dict[int, bytes]:
        """Return nothing, because the stage has been flushed."""
        assert self._keys.n_live == 0, "a stage that makes partials is flushed before a snapshot"
        return {}

    def restore(self, saved: Mapping[int, SavedBytes]) -> None:
        """Begin without state."""
        assert not saved, "a stage that makes partials saves nothing"
        self._begin()

    def _advance(self, watermark: float) -> Emitted:
        yield from super()._advance(watermark)
        self._partials_watermark = self._watermark

    def _fire_early(self) -> Emitted:
        """Flush when it is time to fire early: the final stages must know all partials."""
        return self.flush()

    def _emit(self, closed: list[ClosedWindows], *, final: bool) -> Emitted:
        for part in closed:
            if len(part.slots):
                yield PARTIALS, self.format.to_batch(part, self._keys, self._partials_watermark)


class FinalAggregateStage(WindowStage):
    """A replica that merges the partials of some keys into windows: the window-level query WLQ, or REDUCE."""

    buffers_rows, time_store = False, FinalPaneStore

    def _begin(self) -> None:
        super()._begin()
        self.format = PartialFormat(self._up, self._layout.accumulators)
        self._waiting: list[Batch] = []

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Merge partials. Late rows were found where they were made, and windows wait for all of them."""
        self._waiting.append(batch)
        self._merge_waiting()
        return iter(())

    def drain(self) -> Emitted:
        """Close all windows, because no more partials come."""
        last = [int(watermarks_of(partials).max()) for partials in self._waiting]
        yield from self._advance(max(last, default=NEVER))
        yield from super().drain()

    def snapshot(self) -> dict[int, bytes]:
        """Return the state per bucket, once all replicas have come equally far."""
        assert not self._waiting, "a snapshot is made when every replica has the watermark"
        return super().snapshot()

    def _advance(self, watermark: float) -> Emitted:
        """Advance to the watermark, stopping wherever partials wait for it."""
        stops = {int(stop) for partials in self._waiting for stop in np.unique(watermarks_of(partials))}
        for stop in sorted(stop for stop in stops if stop < watermark):
            yield from super()._advance(stop)
            self._merge_waiting()
        yield from super()._advance(watermark)
        self._merge_waiting()

    def _merge_waiting(self) -> None:
        """Merge the partials that do not come too soon."""
        waiting, self._waiting = self._waiting, []
        for partials in waiting:
            is_due = watermarks_of(partials) <= self._watermark
            if is_due.any():
                self._merge(partials.where(is_due))
            if not is_due.all():
                self._waiting.append(partials.where(~is_due))

    def _merge(self, batch: Batch) -> None:
        kinds, slots, starts, cells = self.format.from_batch(batch, self._keys)
        self._changed_buckets.note(slots)
        for group in self._groups:
            assert isinstance(group.store, FinalPaneStore), "it merges partials"
            places = np.flatnonzero(np.isin(kinds, group.kinds))
            if len(places):
                group.store.merge(slots[places], starts[places], [of_one[places] for of_one in cells])
