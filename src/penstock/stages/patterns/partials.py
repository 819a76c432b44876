"""The two halves of paned and map-reduce windows: replicas that make parts, and those that join them.

Rows are judged and counted where parts are made; each comes to one replica. Results leave where parts are
joined. Between the two, parts go first and then the watermark as it is, the least of all replicas: only then
may windows leave. Replicas need not keep step: the parts of one that is ahead wait for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from penstock.stages.window.admission import Admission
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.stages.window.store import NEVER, ClosedWindows, WindowGroup, unique_slots
from penstock.stages.window.time_store import TimeStore
from penstock.timing.windows import TimeWindow


class _DecomposedStage(WindowStage):
    """A window stage with stores of its own class in the place of slices."""

    gathers = False
    store: ClassVar[type[TimeStore]]

    def __init__(self, op: Windows, up: Stream, site: Site, *, totally_ordered: bool = False) -> None:
        super().__init__(op, up, site, totally_ordered=totally_ordered)
        self.format = PartialFormat(up, self._sheet.registers)

    def _begin(self) -> None:
        super()._begin()
        self._shelves = self._own(self._shelves)
        self._judging = Admission(self._resolved, self._shelves, self.site.accounts)

    def _own(self, shelves: Sequence[WindowGroup]) -> tuple[WindowGroup, ...]:
        """The same windows, sharing slices as before."""
        made = []
        for shelf in shelves:
            (plain,) = shelf.stores
            assert isinstance(plain, TimeStore), "only time windows of registers come in parts"
            own = self.store(plain.slicing, plain.lateness, plain.registers)
            made.append(WindowGroup(shelf.kinds.tolist(), [own]))
        return tuple(made)


class PartialStage(_DecomposedStage):
    """A replica that makes parts.

    It has state only between two calls of `flush`: an engine flushes it before a snapshot, which is then that
    of the stages that join parts alone, and can be taken up by any number of replicas.
    """

    def _begin(self) -> None:
        super()._begin()
        self._judged = NEVER  # by this watermark were judged all rows of slices that it has passed

    def flush(self) -> Emitted:
        """Give away everything, as parts."""
        lefts = [shelf.fire_early() for shelf in self._shelves]
        yield from self._given(lefts, final=False)
        touched = unique_slots([left.touched for left in lefts])
        self._changed_buckets.note(touched)
        self._free(touched)

    def snapshot(self) -> dict[int, bytes]:
        """Nothing: what this stage knew has been flushed."""
        assert self._keys.n_live == 0, "a stage that makes parts is flushed before a snapshot"
        return {}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Begin anew."""
        assert not saved, "a stage that makes parts saves nothing"
        self._begin()

    def _up_to(self, watermark: int) -> Emitted:
        yield from super()._up_to(watermark)
        self._judged = self._watermark

    def _early(self) -> Emitted:
        """When it is time to show open windows, the stages that show them must know all parts."""
        if self._is_time():
            yield from self.flush()

    def _given(self, lefts: list[ClosedWindows], *, final: bool) -> Emitted:
        for left in lefts:
            if len(left.slots):
                yield PARTIALS, self.format.batch(left, self._keys, self._judged)


class PartialAggregateStage(PartialStage):
    """Parts of slices: the pane-level query, PLQ."""

    store = PartialPaneStore


class MapAggregateStage(PartialStage):
    """Parts of windows, of the rows that came to this replica: MAP."""

    store = PartialWindowStore


class FinalStage(_DecomposedStage):
    """A replica that puts the parts of some keys together; results leave here."""

    def _begin(self) -> None:
        super()._begin()
        self._waiting: list[Batch] = []

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Take parts in. The watermark was heeded where they were made, and windows wait for all of them."""
        self._waiting.append(batch)
        self._take_waiting()
        return iter(())

    def drain(self) -> Emitted:
        """No more parts come: let everything go."""
        yield from self._up_to(max(map(self._last_judged, self._waiting), default=NEVER))
        yield from super().drain()

    def snapshot(self) -> dict[int, bytes]:
        """The state per bucket, once all replicas have come equally far."""
        assert not self._waiting, "a snapshot is made when every replica has the watermark"
        return super().snapshot()

    def _up_to(self, watermark: int) -> Emitted:
        """As far as the watermark, halting wherever parts wait for it."""
        halts = {int(judged) for parts in self._waiting for judged in np.unique(watermarks_of(parts))}
        for halt in sorted(halt for halt in halts if halt < watermark):
            yield from super()._up_to(halt)
            self._take_waiting()
        yield from super()._up_to(watermark)
        self._take_waiting()

    def _last_judged(self, parts: Batch) -> int:
        return int(watermarks_of(parts).max())

    def _take_waiting(self) -> None:
        """Put in the parts that do not come too soon."""
        waiting, self._waiting = self._waiting, []
        for parts in waiting:
            ripe = watermarks_of(parts) <= self._watermark
            if ripe.any():
                self._take_parts(parts.where(ripe))
            if not ripe.all():
                self._waiting.append(parts.where(~ripe))

    def _take_parts(self, parts: Batch) -> None:
        cut = self.format.cut(parts, self._keys)
        self._changed_buckets.note(cut.slots)
        for shelf in self._shelves:
            (store,) = shelf.stores
            assert isinstance(store, FinalPaneStore | FinalWindowStore), "parts go to stores of parts"
            mine = cut.where(shelf.kinds)
            if len(mine.slots):
                store.take_parts(mine)


class FinalAggregateStage(FinalStage):
    """Windows from slices: the window-level query, WLQ."""

    store = FinalPaneStore


class ReduceAggregateStage(FinalStage):
    """Windows from their parts: REDUCE."""

    form = AS_PARTIALS

    def _own(self, shelves: Sequence[WindowGroup]) -> tuple[WindowGroup, ...]:
        windows = [window for _, window in self._resolved.windows if isinstance(window, TimeWindow)]
        store = FinalWindowStore(windows, self._resolved.lateness, self._sheet.registers)
        return (WindowGroup(range(len(windows)), [store]),)
