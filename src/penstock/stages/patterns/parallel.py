"""The state of parallel windows by lane: which part of a replica's state it saves, and which it takes up.

Slices and rows of overlapping windows are at several replicas. One of them saves each: the owner of a window
that holds it (`WindowDeal.saved_in`). So the 256 lanes are saved once each, say the same for any number of
replicas, and are taken up by all replicas, each of which takes what its windows hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.stages.patterns.partitioners import WindowPartitioner
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.store import PLACE, ints_of
from penstock.stages.snapshot import BY_PARTITION, KEYS, BucketState, decode_bucket, encode_bucket
from penstock.stages.stage import Site
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.stages.window.store import NEVER, ClosedWindows, WindowGroup, select_windows, unique_slots
from penstock.timing.slices import Slicing

Batches = Mapping[str, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What one lane has: the places of its keys among those exported, and batches that count in `places`."""

    lane: int
    places: Ints
    batches: Batches


class VirtualPartitions:
    """The lanes of one replica's shelves."""

    def __init__(self, deal: WindowPartitioner, replica: int, shelves: Sequence[WindowGroup]) -> None:
        self._deal, self._replica = deal, replica
        self._kinds = [shelf.kinds for shelf in shelves]
        self._slicings = [Slicing.of([deal.windows[kind] for kind in kinds]) for kinds in self._kinds]

    @property
    def own(self) -> range:
        """The lanes that this replica saves."""
        return range(self._replica, self._deal.n_lanes, self._deal.degree)

    def saving(self, times: Ints, buckets: Ints) -> Iterator[Ints]:
        """The lanes that save what the shelves know of each time, shelf by shelf."""
        for kinds in self._kinds:
            yield self._deal.saved_in(kinds, times, buckets)

    def cut(self, exported: Batches, buckets: Ints, lanes: Sequence[int]) -> Iterator[PartitionState]:
        """Exported state, lane by lane; `buckets` are those of the places that it counts in."""
        of_rows = {}
        for name, batch in exported.items():
            kinds = self._kinds[_group_number(name)]
            of_rows[name] = self._deal.saved_in(
                kinds, self._times(name, batch), buckets[ints_of(batch, PLACE)]
            )
        for lane in lanes:
            rows = {name: np.flatnonzero(each == lane) for name, each in of_rows.items()}
            mine = {name: batch.take(pa.array(rows[name])) for name, batch in exported.items()}
            places = np.unique(np.concatenate([ints_of(batch, PLACE) for batch in mine.values()]))
            moved = {name: _set_places(batch, _rank(batch, places)) for name, batch in mine.items()}
            yield PartitionState(lane, places, moved)

    def joined(self, pieces: Sequence[BucketState], buckets: Ints) -> Batches:
        """What this replica needs of all lanes, as one; places count on from piece to piece."""
        starts = np.cumsum([0, *(piece.n_keys for piece in pieces)])
        found: dict[str, list[pa.RecordBatch]] = {}
        for piece, start in zip(pieces, starts.tolist(), strict=False):
            for name, batch in piece.batches.items():
                if "/" in name:
                    places = ints_of(batch, PLACE) + start
                    needed = self._deal.needed(self._times(name, batch), buckets[places], self._replica)
                    rows = pa.array(np.flatnonzero(needed))
                    found.setdefault(name, []).append(_set_places(batch, places).take(rows))
        return {name: _concat_batches(batches) for name, batches in found.items()}

    def _times(self, name: str, batch: pa.RecordBatch) -> Ints:
        """When what each row of a saved batch tells of begins: a slice, or a row that was kept."""
        if "slice" in batch.schema.names:
            return self._slicings[_group_number(name)].starts(ints_of(batch, "slice"))
        return ints_of(batch, "time") if batch.num_rows else np.empty(0, np.int64)


def _group_number(name: str) -> int:
    """Batches are named "shelf/store.what"."""
    return int(name.partition("/")[0])


def _rank(batch: pa.RecordBatch, places: Ints) -> Ints:
    return np.searchsorted(places, ints_of(batch, PLACE))


def _set_places(batch: pa.RecordBatch, places: Ints) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(PLACE), PLACE, pa.array(places, pa.int64()))


def _concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one. Those without rows may lack columns, so they are left out."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return (filled or batches)[0]
    tables = [pa.Table.from_batches([batch]) for batch in filled]
    # What has not been shown early need not say so: then a column is null there.
    whole = pa.concat_tables(tables, promote_options="default")
    return whole.combine_chunks().to_batches()[0]


# Parallel windows: whole windows, also of one key, dealt to replicas.
#
# A replica takes in every row of its windows and, for slices are shared, holds parts of windows that are not
# its own; these it lets go unseen. A row that several replicas get is judged and counted by its home
# (`dealing.py`). State is saved by lane, and any number of replicas can take it up (`lanes.py`).


class ParallelStage(WindowStage):
    """Replica number `replica` of those that `deal` deals windows to."""

    form = BY_PARTITION
    gathers = False

    def __init__(
        self,
        op: Windows,
        up: Stream,
        site: Site,
        deal: WindowPartitioner,
        replica: int,
        *,
        totally_ordered: bool = False,
    ) -> None:
        self._deal, self._replica = deal, replica
        super().__init__(op, up, site, totally_ordered=totally_ordered)

    def _begin(self) -> None:
        super()._begin()
        self._lanes = VirtualPartitions(self._deal, self._replica, self._shelves)
        # The lanes with news since the last snapshot; None before the first. And, from then on, those with
        # rows since windows were last shown early.
        self._changed: Mask | None = None
        self._unshown = np.zeros(self._deal.n_lanes, np.bool_)

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Take rows in: those at home here as any window stage does, guests without a word about them."""
        at_home = self._deal.primary_replicas(batch) == self._replica
        if self._changed is not None:
            for lanes in self._lanes.saving(batch.times, self._deal.buckets(batch)):
                self._changed[lanes] = self._unshown[lanes] = True
        yield from super().on_batch(batch.where(at_home), watermark)
        if not at_home.all():
            self._take_guests(batch.where(~at_home))

    def snapshot(self) -> dict[int, bytes]:
        """The state per lane of this replica: all of it at first, then what changed since the last time."""
        slots = self._keys.live()
        exported = {
            f"{number}/{name}": batch
            for number, shelf in enumerate(self._shelves)
            for name, batch in shelf.export(slots).items()
        }
        asked = [lane for lane in self._lanes.own if self._changed is None or self._changed[lane]]
        saved = {}
        for cut in self._lanes.cut(exported, self._buckets(slots), asked):
            if len(cut.places) or self._changed is not None:
                tickets = self._judging.settling.export(cut.lane)
                batches = {KEYS: self._keys.export(slots[cut.places]), "tickets": tickets, **cut.batches}
                watermark = max(self._watermark, self._least)
                piece = BucketState(cut.lane, len(cut.places), watermark, batches)
                saved[cut.lane] = encode_bucket(piece, self.site.step, self._depends_on)
        if self._changed is None:
            self._unshown[list(saved)] = True
        self._changed = np.zeros(self._deal.n_lanes, np.bool_)
        return saved

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Take up all lanes that any number of replicas have saved, as far as they are needed here."""
        pieces = [decode_bucket(data, self.site.step, self._depends_on) for data in saved.values()]
        self._begin()
        self.take_up(pieces)
        self._changed = np.zeros(self._deal.n_lanes, np.bool_)
        self._unshown[list(saved)] = True

    def take_up(self, pieces: Sequence[BucketState]) -> None:
        """Have what these pieces tell of windows of this replica, however they are cut."""
        if not pieces:
            return
        given = [self._keys.assign(piece.batches[KEYS].columns, piece.n_keys) for piece in pieces]
        slots = np.concatenate(given)
        batches = self._lanes.joined(pieces, self._buckets(slots))
        for number, shelf in enumerate(self._shelves):
            start = f"{number}/"
            shelf.load({n.removeprefix(start): b for n, b in batches.items() if n.startswith(start)}, slots)
        self._least = max(piece.watermark for piece in pieces)
        if self._least > NEVER:
            # A lane that was saved before others may still hold windows that have left since.
            for shelf in self._shelves:
                shelf.close(self._least, ended=False)
        self._free(unique_slots([slots]))

    def _take_guests(self, batch: Batch) -> None:
        """Rows into windows; one that fails or is late is told of by its home."""
        lifted = self._lifting.lift(batch)
        if lifted.failed is not None and lifted.failed.any():
            batch = batch.where(~lifted.failed)
            lifted = self._lifting.lift(batch)
        if batch.num_rows == 0:
            return
        slots = self._slots(batch)
        arriving = self._arriving(batch, lifted, slots)
        for shelf in self._shelves:
            shelf.add(arriving, self._watermark)
        self._free(unique_slots([slots]))

    def _note_shown(self, lefts: list[ClosedWindows]) -> None:
        """Slices are saved with whether they have been shown: those that had rows by now are news."""
        if self._changed is not None:
            self._changed |= self._unshown
            self._unshown[:] = False

    def _given(self, lefts: list[ClosedWindows], *, final: bool) -> Emitted:
        return super()._given([self._mine(left, final=final) for left in lefts], final=final)

    def _mine(self, left: ClosedWindows, *, final: bool) -> ClosedWindows:
        """The windows that belong to this replica; those that leave change the state of their lanes."""
        lanes = self._deal.virtual_partitions(left.kinds, left.starts, self._buckets(left.slots))
        mine = lanes % self._deal.degree == self._replica
        if final and self._changed is not None:
            self._changed[lanes[mine]] = True
        return select_windows(left, np.flatnonzero(mine))

    def _buckets(self, slots: Ints) -> Ints:
        """The buckets of the slots' keys, each key hashed once."""
        each, which = np.unique(slots, return_inverse=True)
        return self._keys.buckets_of(each).astype(np.int64)[which]
