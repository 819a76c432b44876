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
from penstock.stages.batch import Ints
from penstock.stages.patterns.dealing import WindowDeal
from penstock.stages.saved_rows import PLACE, ints_of
from penstock.stages.saved_state import Piece
from penstock.stages.shelf import Shelf
from penstock.timing.slices import Slicing

Batches = Mapping[str, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Cut:
    """What one lane has: the places of its keys among those exported, and batches that count in `places`."""

    lane: int
    places: Ints
    batches: Batches


class Lanes:
    """The lanes of one replica's shelves."""

    def __init__(self, deal: WindowDeal, replica: int, shelves: Sequence[Shelf]) -> None:
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

    def cut(self, exported: Batches, buckets: Ints, lanes: Sequence[int]) -> Iterator[Cut]:
        """Exported state, lane by lane; `buckets` are those of the places that it counts in."""
        of_rows = {}
        for name, batch in exported.items():
            kinds = self._kinds[_shelf(name)]
            of_rows[name] = self._deal.saved_in(
                kinds, self._times(name, batch), buckets[ints_of(batch, PLACE)]
            )
        for lane in lanes:
            rows = {name: np.flatnonzero(each == lane) for name, each in of_rows.items()}
            mine = {name: batch.take(pa.array(rows[name])) for name, batch in exported.items()}
            places = np.unique(np.concatenate([ints_of(batch, PLACE) for batch in mine.values()]))
            moved = {name: _placed(batch, _rank(batch, places)) for name, batch in mine.items()}
            yield Cut(lane, places, moved)

    def joined(self, pieces: Sequence[Piece], buckets: Ints) -> Batches:
        """What this replica needs of all lanes, as one; places count on from piece to piece."""
        starts = np.cumsum([0, *(piece.n_keys for piece in pieces)])
        found: dict[str, list[pa.RecordBatch]] = {}
        for piece, start in zip(pieces, starts.tolist(), strict=False):
            for name, batch in piece.batches.items():
                if "/" in name:
                    places = ints_of(batch, PLACE) + start
                    needed = self._deal.needed(self._times(name, batch), buckets[places], self._replica)
                    rows = pa.array(np.flatnonzero(needed))
                    found.setdefault(name, []).append(_placed(batch, places).take(rows))
        return {name: _one(batches) for name, batches in found.items()}

    def _times(self, name: str, batch: pa.RecordBatch) -> Ints:
        """When what each row of a saved batch tells of begins: a slice, or a row that was kept."""
        if "slice" in batch.schema.names:
            return self._slicings[_shelf(name)].starts(ints_of(batch, "slice"))
        return ints_of(batch, "time") if batch.num_rows else np.empty(0, np.int64)


def _shelf(name: str) -> int:
    """Batches are named "shelf/store.what"."""
    return int(name.partition("/")[0])


def _rank(batch: pa.RecordBatch, places: Ints) -> Ints:
    return np.searchsorted(places, ints_of(batch, PLACE))


def _placed(batch: pa.RecordBatch, places: Ints) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(PLACE), PLACE, pa.array(places, pa.int64()))


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one. Those without rows may lack columns, so they are left out."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return (filled or batches)[0]
    tables = [pa.Table.from_batches([batch]) for batch in filled]
    # What has not been shown early need not say so: then a column is null there.
    whole = pa.concat_tables(tables, promote_options="default")
    return whole.combine_chunks().to_batches()[0]
