"""Which buckets changed since the last snapshot.

Slots are noted as rows come and windows leave; only when a snapshot is made, or a key is forgotten, are keys
hashed. Before the first snapshot nothing is noted: that one saves everything.
"""

from __future__ import annotations

import numpy as np

from penstock.stages.batch import Ints
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

    def take(self) -> dict[int, Ints]:
        """The buckets that changed since the last call, each with its live slots; from now on, note."""
        live = self._keys.live()
        buckets = self._keys.buckets_of(live)
        changed = self._gone.copy()
        if self._on:
            known = live < len(self._slots)
            changed[buckets[known][self._slots[live[known]]]] = True
        else:
            changed[buckets] = True
        self.start()
        return {int(bucket): live[buckets == bucket] for bucket in np.flatnonzero(changed)}

    def start(self) -> None:
        """Everything so far is saved: note what changes from here."""
        self._on = True
        self._slots[:] = False
        self._gone[:] = False
