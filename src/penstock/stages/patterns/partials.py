"""The two halves of paned and map-reduce windows: replicas that make partials, and those that merge them.

Rows are decided on and counted where partials are made; each comes to one replica. Results are emitted where
partials are merged. Between the two, partials go first and then the watermark as it is, the least of all
replicas: only then may windows close. Replicas need not keep step: the partials of one that is ahead wait for
the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.stages.patterns.partial_stores import (
    PARTIALS,
    FinalPaneStore,
    FinalWindowStore,
    PartialFormat,
    PartialPaneStore,
    PartialWindowStore,
    watermarks_of,
)
from penstock.stages.rows.batch import Batch
from penstock.stages.snapshot import AS_PARTIALS
from penstock.stages.stage import Site
from penstock.stages.window.groups import WindowGroup, window_groups
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.stages.window.store import NEVER, ClosedWindows
from penstock.stages.window.time_store import TimeStore
from penstock.timing.windows import TimeWindow


class _DecomposedStage(WindowStage):
    """A window stage with time stores of its own class."""

    buffers_rows = False
    store: ClassVar[type[TimeStore]]

    def __init__(self, op: Windows, up: Stream, site: Site, *, totally_ordered: bool = False) -> None:
        super().__init__(op, up, site, totally_ordered=totally_ordered)
        self.format = PartialFormat(up, self._layout.accumulators)

    def _build_groups(self) -> tuple[WindowGroup, ...]:
        accumulators = self._layout.accumulators
        return window_groups(self._resolved, accumulators, None, partial=False, time_store=self.store)


class PartialStage(_DecomposedStage):
    """A replica that makes partials.

    It has state only between two calls of `flush`: an engine flushes it before a snapshot, which is then that
    of the final stages alone, and can be restored by any number of replicas.
    """

    def _begin(self) -> None:
        super()._begin()
        self._partials_watermark = NEVER  # under which the late rows of all slices that leave were found

    def flush(self) -> Emitted:
        """Give away everything, as partials."""
        fired = [group.fire_early() for group in self._groups]
        yield from self._emit(fired, final=False)
        self._release(fired)

    def snapshot(self) -> dict[int, bytes]:
        """Return nothing, because the stage has been flushed."""
        assert self._keys.n_live == 0, "a stage that makes partials is flushed before a snapshot"
        return {}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Begin without state."""
        assert not saved, "a stage that makes partials saves nothing"
        self._begin()

    def _advance(self, watermark: int) -> Emitted:
        yield from super()._advance(watermark)
        self._partials_watermark = self._watermark

    def _fire_early(self) -> Emitted:
        """Flush when it is time to fire early: the final stages must know all partials."""
        if self._is_early_due():
            yield from self.flush()

    def _emit(self, closed: list[ClosedWindows], *, final: bool) -> Emitted:
        for part in closed:
            if len(part.slots):
                yield PARTIALS, self.format.to_batch(part, self._keys, self._partials_watermark)


class PartialAggregateStage(PartialStage):
    """Partials of slices: the pane-level query, PLQ."""

    store = PartialPaneStore


class MapAggregateStage(PartialStage):
    """Partials of windows, of the rows that came to this replica: MAP."""

    store = PartialWindowStore


class FinalStage(_DecomposedStage):
    """A replica that merges the partials of some keys; results are emitted here."""

    def _begin(self) -> None:
        super()._begin()
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

    def _advance(self, watermark: int) -> Emitted:
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
        partials = self.format.from_batch(batch, self._keys)
        self._changed_buckets.note(partials.slots)
        for group in self._groups:
            assert isinstance(group.store, FinalPaneStore | FinalWindowStore), "it merges partials"
            of_group = partials.of_kinds(group.kinds)
            if len(of_group.slots):
                group.store.merge(of_group)


class FinalAggregateStage(FinalStage):
    """Windows from slices: the window-level query, WLQ."""

    store = FinalPaneStore


class ReduceAggregateStage(FinalStage):
    """Windows from their partials: REDUCE."""

    form = AS_PARTIALS

    def _build_groups(self) -> tuple[WindowGroup, ...]:
        windows = [window for _, window in self._resolved.windows if isinstance(window, TimeWindow)]
        store = FinalWindowStore(windows, self._resolved.lateness, self._layout.accumulators)
        return (WindowGroup(np.arange(len(windows)), store),)
