"""Which keys have changed since the last snapshot, so that the next one holds what is new."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from penstock.stages.keys.slots import BUCKETS, KeySlots
from penstock.stages.rows.batch import Ints, Mask


class ChangedBuckets:
    """The slots whose state has changed since the last snapshot, and the buckets of keys that are gone.

    Keys are hashed only when a snapshot is taken or a key is forgotten. Before the first snapshot nothing is
    tracked: that one saves everything.

    tracks  whether a snapshot has been taken, so that changes are tracked
    """

    def __init__(self, keys: KeySlots) -> None:
        self._keys = keys
        self.tracks = False
        self._slots = np.zeros(0, np.bool_)
        self._gone = np.zeros(BUCKETS, np.bool_)

    def note(self, slots: Ints) -> None:
        """Note that the state of these slots has changed."""
        if self.tracks and len(slots):
            self._grow(int(slots.max()))
            self._slots[slots] = True

    def note_slot(self, slot: int) -> None:
        """Note one slot, where changes are tracked."""
        self._grow(slot)
        self._slots[slot] = True

    def _grow(self, slot: int) -> None:
        more = slot + 1 - len(self._slots)
        if more > 0:
            self._slots = np.append(self._slots, np.zeros(max(more, len(self._slots)), np.bool_))

    def forget(self, slots: Ints) -> None:
        """Note that the keys of these slots are about to be freed: their buckets change."""
        if self.tracks and len(slots):
            self._gone[self._keys.buckets_of(slots)] = True
            self._slots[slots[slots < len(self._slots)]] = False

    def peek(self) -> list[int]:
        """Return the buckets that changed since the last snapshot, and goes on tracking them."""
        return [] if not self.tracks else np.flatnonzero(self._changed_mask(*self._live())).tolist()

    def live_buckets(self) -> dict[int, Ints]:
        """Return all buckets with live slots."""
        live, buckets = self._live()
        return {int(bucket): live[buckets == bucket] for bucket in np.unique(buckets)}

    def replace(self, tracks: bool, changed: Sequence[int]) -> None:
        """Go on after all slots were replaced: tracks as before, with these buckets changed."""
        self.start()
        self.tracks = tracks
        self._gone[list(changed)] = tracks

    def take(self, partly: Collection[int] = ()) -> dict[int, Ints]:
        """Return the buckets that changed since the last call, with their live slots; tracks from now on.

        partly  buckets of which only the slots that changed are wanted
        """
        live, buckets = self._live()
        changed = self._changed_mask(live, buckets)
        # Where a bucket has come from another replica, nobody knows which of its slots have changed.
        partly = [bucket for bucket in partly if not self._gone[bucket]] if self.tracks else ()
        if partly:
            known = live < len(self._slots)
            known[known] = self._slots[live[known]]
            wanted = known | ~np.isin(buckets, partly)
            live, buckets = live[wanted], buckets[wanted]
        self.start()
        return {int(bucket): live[buckets == bucket] for bucket in np.flatnonzero(changed)}

    def start(self) -> None:
        """Track what changes from here on: everything so far is saved."""
        self.tracks = True
        self._slots[:] = False
        self._gone[:] = False

    def _live(self) -> tuple[Ints, Ints]:
        live = self._keys.live()
        return live, self._keys.buckets_of(live).astype(np.int64)

    def _changed_mask(self, live: Ints, buckets: Ints) -> Mask:
        changed = self._gone.copy()
        if self.tracks:
            known = live < len(self._slots)
            changed[buckets[known][self._slots[live[known]]]] = True
        else:
            changed[buckets] = True
        return changed
