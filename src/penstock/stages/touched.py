"""Which buckets changed since the last snapshot.

Slots are noted as rows come and windows leave; only when a snapshot is made, or a key is forgotten, are keys
hashed. Before the first snapshot nothing is noted: that one saves everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.stages.batch import Ints, Mask
from penstock.stages.keys import KeySlots
from penstock.timing.bucket import BUCKETS


class Touched:
    """The slots with news, and the buckets of keys that are gone."""

    def __init__(self, keys: KeySlots) -> None:
        self._keys = keys
        self._on = False
        self._slots = np.zeros(0, np.bool_)
        self._gone = np.zeros(BUCKETS, np.bool_)

    def note(self, slots: Ints) -> None:
        """The state of these slots has changed."""
        if self._on and len(slots):
            more = int(slots.max()) + 1 - len(self._slots)
            if more > 0:
                self._slots = np.append(self._slots, np.zeros(max(more, len(self._slots)), np.bool_))
            self._slots[slots] = True

    def forget(self, slots: Ints) -> None:
        """The keys of these slots are about to be freed: their buckets change."""
        if self._on and len(slots):
            self._gone[self._keys.buckets_of(slots)] = True
            self._slots[slots[slots < len(self._slots)]] = False

    @property
    def noting(self) -> bool:
        """Whether something has been saved, so that changes are noted."""
        return self._on

    def news(self) -> list[int]:
        """The buckets that changed since the last snapshot; they stay news."""
        return [] if not self._on else np.flatnonzero(self._changed(*self._live())).tolist()

    def held(self) -> dict[int, Ints]:
        """All buckets with live slots."""
        live, buckets = self._live()
        return {int(bucket): live[buckets == bucket] for bucket in np.unique(buckets)}

    def go_on(self, noting: bool, news: Sequence[int]) -> None:
        """After all slots are others: note as before, with these buckets changed, be they empty."""
        self.start()
        self._on = noting
        self._gone[list(news)] = noting

    def take(self) -> dict[int, Ints]:
        """The buckets that changed since the last call, each with its live slots; from now on, note."""
        live, buckets = self._live()
        changed = self._changed(live, buckets)
        self.start()
        return {int(bucket): live[buckets == bucket] for bucket in np.flatnonzero(changed)}

    def start(self) -> None:
        """Everything so far is saved: note what changes from here."""
        self._on = True
        self._slots[:] = False
        self._gone[:] = False

    def _live(self) -> tuple[Ints, Ints]:
        live = self._keys.live()
        return live, self._keys.buckets_of(live).astype(np.int64)

    def _changed(self, live: Ints, buckets: Ints) -> Mask:
        changed = self._gone.copy()
        if self._on:
            known = live < len(self._slots)
            changed[buckets[known][self._slots[live[known]]]] = True
        else:
            changed[buckets] = True
        return changed
