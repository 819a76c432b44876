"""Parallel windows: whole windows, also of one key, go to replicas in round-robin.

A replica adds every row of its windows and, because slices are shared, holds parts of windows that are not
its own; these it drops unseen. A row that several replicas get is decided on and counted by its primary
replica (`WindowPartitioner`).

Slices and rows of overlapping windows are at several replicas. One of them saves each: the owner of a window
that holds it. So each of the 256 virtual partitions is saved once, says the same for any number of replicas,
and is loaded by all replicas, each of which takes what its windows hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.expr import compute as pc
from penstock.operators.op import IN, OUT, Stream
from penstock.operators.windows import FINAL, PARALLEL, START, WINDOW, Windows, as_pattern
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.patterns.pattern import WindowPartitioner
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.input import NEVER
from penstock.stages.rows.order import merge_batches
from penstock.stages.rows.store import PLACE, ints_of
from penstock.stages.snapshot import (
    BY_PARTITION,
    FORM,
    KEYS,
    BucketState,
    decode_bucket,
    encode_bucket,
    read_fingerprint,
    restore_keys,
)
from penstock.stages.stage import SavedBytes, StageContext
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.stages.window.store import ClosedWindows, StateBatches, unique_slots
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow


class ParallelStage(WindowStage):
    """Replica number `replica` of those to which `partitioner` sends windows."""

    form = BY_PARTITION
    buffers_rows = False

    def __init__(
        self,
        op: Windows,
        up: Stream,
        site: StageContext,
        partitioner: WindowPartitioner,
        replica: int,
        *,
        totally_ordered: bool = False,
    ) -> None:
        self._partitioner, self._replica = partitioner, replica
        super().__init__(op, up, site, totally_ordered=totally_ordered)

    def _begin(self) -> None:
        super()._begin()
        windows = self._partitioner.windows
        self._slicings = [Slicing.of([windows[kind] for kind in group.kinds]) for group in self._groups]
        # The partitions that changed since the last snapshot; None before the first. And, from then on, those
        # with rows since windows last fired early.
        self._changed: Mask | None = None
        self._unfired = np.zeros(BUCKETS, np.bool_)

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Add rows: those whose primary replica this is as any window stage does, the others in silence."""
        buckets = self._partitioner.buckets(batch)
        is_primary = self._partitioner.primary_replicas(batch.times, buckets) == self._replica
        if self._changed is not None:
            for group in self._groups:
                saved_in = self._partitioner.saved_in(group.kinds, batch.times, buckets)
                self._changed[saved_in] = self._unfired[saved_in] = True
        yield from super().on_batch(batch.where(is_primary), watermark)
        if not is_primary.all():
            self._add_copies(batch.where(~is_primary))

    def _add_copies(self, batch: Batch) -> None:
        """Add rows to windows; those that fail or are late are reported by their primary replica."""
        inputs = self._inputs.evaluate(batch)
        if inputs.failed is not None and inputs.failed.any():
            places = np.flatnonzero(~inputs.failed)
            batch, inputs = batch.take(places), inputs.at(places)
        if batch.num_rows == 0:
            return
        rows = self._input_rows(batch, inputs)
        for group in self._groups:
            group.store.add(rows, self._watermark)
        self._free(unique_slots([rows.slots]))

    def _emit(self, closed: list[ClosedWindows], *, final: bool) -> Emitted:
        return super()._emit([self._own_windows(part, final=final) for part in closed], final=final)

    def _own_windows(self, closed: ClosedWindows, *, final: bool) -> ClosedWindows:
        """Return the windows of this replica; those that close change the state of their partitions."""
        buckets = self._buckets(closed.slots)
        partitions = self._partitioner.virtual_partitions(closed.kinds, closed.starts, buckets)
        is_own = partitions % self._partitioner.degree == self._replica
        if final and self._changed is not None:
            self._changed[partitions[is_own]] = True
        return closed.at(np.flatnonzero(is_own))

    def _note_fired(self, fired: list[ClosedWindows]) -> None:
        """Note that slices which had rows have fired early, which is saved with them."""
        if self._changed is not None:
            self._changed |= self._unfired
            self._unfired[:] = False

    def snapshot(self) -> dict[int, bytes]:
        """Return the state per partition of this replica: all at first, then what changed since."""
        slots = self._keys.live()
        exported, buckets = self._export_groups(slots), self._buckets(slots)
        saved_in = {name: self._saved_in(name, batch, buckets) for name, batch in exported.items()}
        n_open = self._count_open(exported, buckets)
        watermark = max(self._watermark, self._least_watermark)
        saved = {}
        for partition in range(self._replica, BUCKETS, self._partitioner.degree):
            if self._changed is not None and not self._changed[partition]:
                continue
            rows = {name: pa.array(np.flatnonzero(saved_in[name] == partition)) for name in exported}
            batches = {name: batch.take(rows[name]) for name, batch in exported.items()}
            places = np.unique(np.concatenate([ints_of(batch, PLACE) for batch in batches.values()]))
            if not len(places) and self._changed is None:
                continue
            state = {KEYS: self._keys.export(slots[places])}
            for name, batch in batches.items():
                state[name] = _set_places(batch, np.searchsorted(places, ints_of(batch, PLACE)))
            rows_before = self._rows_before(batches)
            piece = BucketState(partition, len(places), watermark, state, n_open[partition], rows_before)
            saved[partition] = encode_bucket(piece, self.site.step, self.fingerprint)
        if self._changed is None:
            self._unfired[list(saved)] = True
        self._changed = np.zeros(BUCKETS, np.bool_)
        return saved

    def _count_open(self, exported: StateBatches, buckets: Ints) -> list[int]:
        """Return the number of open windows of every virtual partition; those of this replica are right."""
        counts = np.zeros(BUCKETS, np.int64)
        for group, own in self._by_group(exported):
            windows = group.store.list_open(own)
            kinds, of_keys = group.kinds[windows.kinds], buckets[windows.places]
            partitions = self._partitioner.virtual_partitions(kinds, windows.starts, of_keys)
            counts += np.bincount(partitions, minlength=BUCKETS)
        return counts.tolist()

    def _saved_in(self, name: str, batch: pa.RecordBatch, buckets: Ints) -> Ints:
        """Return the partition that saves each row of a group's state, by the buckets of the places."""
        kinds = self._groups[_group_number(name)].kinds
        return self._partitioner.saved_in(kinds, self._times(name, batch), buckets[ints_of(batch, PLACE)])

    def _times(self, name: str, batch: pa.RecordBatch) -> Ints:
        """Return when each slice, or kept row, of a group's state begins."""
        if "slice" in batch.schema.names:
            return self._slicings[_group_number(name)].starts(ints_of(batch, "slice"))
        return ints_of(batch, "time") if batch.num_rows else np.empty(0, np.int64)

    def restore(self, saved: Mapping[int, SavedBytes]) -> None:
        """Load the partitions that any number of replicas have saved, as far as they are needed here."""
        site = self.site
        decoded = [decode_bucket(data, site.step, self.fingerprint, site.history) for data in saved.values()]
        pieces = [self.adapt(piece) for piece in decoded]
        self._begin()
        self.load_pieces(pieces)
        self._changed = np.zeros(BUCKETS, np.bool_)
        self._unfired[list(saved)] = True

    def load_pieces(self, pieces: Sequence[BucketState]) -> None:
        """Load what these pieces say of windows of this replica, however they are split."""
        if not pieces:
            return
        slots = np.concatenate(restore_keys(self._keys, pieces))
        self._load_groups(self._join(pieces, self._buckets(slots)), slots)
        self._least_watermark = max(self._least_watermark, *(piece.watermark for piece in pieces))
        if self._least_watermark > NEVER:
            # A partition that was saved before others may still hold windows that have closed since.
            for group in self._groups:
                group.store.close(self._least_watermark)
        self._free(unique_slots([slots]))

    def _join(self, pieces: Sequence[BucketState], buckets: Ints) -> StateBatches:
        """Join what this replica needs of all pieces; places count on from piece to piece."""
        starts = np.cumsum([0, *(piece.n_keys for piece in pieces)])
        parts: dict[str, list[pa.RecordBatch]] = {}
        for piece, start in zip(pieces, starts.tolist(), strict=False):
            for name, batch in piece.batches.items():
                if "/" in name:
                    places = ints_of(batch, PLACE) + start
                    times = self._times(name, batch)
                    needed = self._partitioner.needs(times, buckets[places], self._replica)
                    rows = pa.array(np.flatnonzero(needed))
                    parts.setdefault(name, []).append(_set_places(batch, places).take(rows))
        return {name: _concat_batches(batches) for name, batches in parts.items()}

    def _buckets(self, slots: Ints) -> Ints:
        """Return the buckets of the slots' keys, each key hashed once."""
        different, which = np.unique(slots, return_inverse=True)
        return self._keys.buckets_of(different).astype(np.int64)[which]


Pieces = Mapping[int, SavedBytes]


def form_of(piece: SavedBytes, step: str) -> str:
    """Return the form that a piece of saved windows has."""
    return read_fingerprint(piece, step)[FORM]


def convert_state(
    saved: Pieces, form: str, op: Windows, up: Stream, site: StageContext, *, totally_ordered: bool = False
) -> Pieces:
    """Return all pieces of a step in another form: by key, or by virtual partition.

    Which form state has depends on the pattern, and `pattern="auto"` chooses that by the number of
    replicas; on Spark it is always by key. Both hold the same slices and rows, only split differently, so
    that a restart can go on from either: one replica that has all windows loads the one and saves the
    other.
    """
    before = form_of(next(iter(saved.values())), site.step) if saved else form
    if before == form:
        return saved
    windows = [window for _, window in op.resolve(up).windows if isinstance(window, TimeWindow)]
    partitioner = WindowPartitioner(windows, up.schema, up.key, 1)
    whole = ParallelStage(as_pattern(PARALLEL, op), up, site, partitioner, 0, totally_ordered=totally_ordered)
    old, new = ({**whole.fingerprint, FORM: of} for of in (before, form))
    decoded = [decode_bucket(data, site.step, old, site.history) for data in saved.values()]
    whole.load_pieces([whole.adapt(piece) for piece in decoded])
    if form == BY_PARTITION:
        return whole.snapshot()
    return {bucket: encode_bucket(piece, site.step, new) for bucket, piece in whole.export_buckets().items()}


class ResultOrderStage:
    """Puts the results of parallel replicas in order, by (window_end, window_start) per key.

    Results wait until the watermark, the least of all replicas, says that no earlier one can come. So between
    two watermarks that all replicas have passed nothing waits, and there is nothing to save. Results were
    counted by the replicas that computed them.
    """

    def __init__(self, op: Windows, up: Stream) -> None:
        self._schema = op.outputs({IN: up})[OUT].schema
        self._resolved = op.resolve(up)
        self._waiting: list[Batch] = []

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Keep results until all replicas have come as far."""
        self._waiting.append(batch)
        return iter(())

    def on_watermark(self, watermark: float) -> Emitted:
        """Emit the results of windows that the watermark has passed, and early ones."""
        if not self._waiting:
            return
        waiting = merge_batches(self._waiting, self._schema)
        ready = waiting.times + 1 + self._resolved.lateness <= watermark
        if self._resolved.early is not None:
            ready |= ~np.asarray(waiting.rows.column(FINAL).to_numpy(zero_copy_only=False), np.bool_)
        self._waiting = [] if ready.all() else [waiting.where(~ready)]
        if ready.any():
            results = waiting.where(ready)
            yield OUT, results.take(self._order(results))

    def drain(self) -> Emitted:
        """Emit everything."""
        yield from self.on_watermark(float("inf"))

    def snapshot(self) -> Mapping[int, bytes]:
        """Return nothing: nothing waits once a watermark has come from all replicas."""
        assert not self._waiting, "a snapshot is made between batches, when every replica has the watermark"
        return {}

    def restore(self, saved: Mapping[int, SavedBytes]) -> None:
        """Begin without results."""
        assert not saved, "results that wait are not saved"
        self._waiting = []

    def _order(self, batch: Batch) -> Ints:
        """Return the order by end, start and window; rows of one window stay as they were."""
        columns = {"end": pa.array(batch.times), "start": batch.rows.column(START)}
        if self._resolved.has_labels:
            labels = pa.array([label for label, _ in self._resolved.windows], pa.string())
            columns["window"] = pc.index_in(batch.rows.column(WINDOW), labels)
        columns["place"] = pa.array(np.arange(batch.num_rows))
        keys = [(name, "ascending") for name in columns]
        return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy(), np.int64)


def _group_number(name: str) -> int:
    """Return the group of a batch, which is named "group/…"."""
    return int(name.partition("/")[0])


def _set_places(batch: pa.RecordBatch, places: Ints) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(PLACE), PLACE, pa.array(places, pa.int64()))


def _concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches. Those without rows may lack columns, so they are left out."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return (filled or batches)[0]
    tables = [pa.Table.from_batches([batch]) for batch in filled]
    # Slices that have not fired early may lack the column that says so: it is null then.
    whole = pa.concat_tables(tables, promote_options="default")
    return whole.combine_chunks().to_batches()[0]
