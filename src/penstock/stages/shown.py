"""Which slices have been shown early, with how many rows: one has changed if it has more by now.

Rows only come while a window is open, so their number tells whether anything did. All open windows are shown
at once, so a window has changed since then if one of its slices has. A snapshot says so of every slice, in a
column that is left out where nothing has been shown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.cells import END, FIRST
from penstock.kernels.ring_rows import spread
from penstock.stages.batch import Ints, Mask
from penstock.stages.combining import Listing

FRESH = "fresh"


class Shown:
    """The slices that `early` showed last. Invariant: they stand by slot."""

    def __init__(self) -> None:
        self._slices = np.empty((3, 0), np.int64)  # slot, slice, rows
        self._loaded: list[Ints] = []

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._slices.nbytes + sum(each.nbytes for each in self._loaded)

    def show(self, slots: Ints, ids: Ints, rows: Ints) -> Mask:
        """Show all slices that have rows, by slot: gives which had others when they were last shown."""
        fresh = self._fresh(slots, ids, rows)
        self._slices, self._loaded = np.stack([slots, ids, rows]), []
        return fresh

    def forget_before(self, id_: int) -> None:
        """Slices before this one are needed no more."""
        self._settle()
        if self._slices.size:
            self._slices = self._slices[:, self._slices[1] >= id_]

    def column(self, slots: Ints, ids: Ints, rows: Ints) -> dict[str, Any]:
        """For a snapshot of some slices: which of them are to be shown; no column if all are."""
        self._settle()
        return {FRESH: self._fresh(slots, ids, rows)} if self._slices.size else {}

    def load(self, saved: pa.RecordBatch, slots: Ints, ids: Ints, rows: Ints) -> None:
        """Take up what a snapshot says of its slices; of those that it says nothing of, none was shown."""
        if FRESH in saved.schema.names:
            fresh = saved.column(FRESH).fill_null(True).to_numpy(zero_copy_only=False)
            self._loaded.append(np.stack([slots, ids, rows])[:, ~fresh])

    def _fresh(self, slots: Ints, ids: Ints, rows: Ints) -> Mask:
        """Which slices, each named once, have other rows than when they were last shown."""
        self._settle()
        if not self._slices.size:
            return np.ones(len(slots), np.bool_)
        asked = np.unique(slots)
        first, past = (np.searchsorted(self._slices[0], asked, side) for side in ("left", "right"))
        places, _ = spread(first, past)
        return _not_in(np.stack([slots, ids, rows]), self._slices[:, places])

    def _settle(self) -> None:
        """What was loaded, bucket by bucket, among the others."""
        if self._loaded:
            every = np.concatenate([self._slices, *self._loaded], axis=1)
            self._slices, self._loaded = every[:, np.argsort(every[0], kind="stable")], []


def with_fresh(listing: Listing, rings: Ints, fresh: Mask) -> Listing:
    """The listed windows that have a fresh slice; `fresh` says it of all slices, ring by ring."""
    lengths = rings[:, END] - rings[:, FIRST]
    n_fresh = np.append(0, np.cumsum(fresh))
    place = np.repeat(np.cumsum(lengths) - lengths - rings[:, FIRST], listing.counts)
    return listing.only(n_fresh[place + listing.hi] > n_fresh[place + listing.lo])


def _not_in(now: Ints, before: Ints) -> Mask:
    """Which columns of `now` are not among those of `before`; neither has a column twice."""
    both = np.concatenate([before, now], axis=1)
    order = np.lexsort(both[::-1])
    same = np.zeros(len(order), np.bool_)
    equal = (both[:, order[1:]] == both[:, order[:-1]]).all(axis=0)
    same[order[1:][equal]] = True
    same[order[:-1][equal]] = True
    return ~same[before.shape[1] :]
