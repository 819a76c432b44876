"""Which rows go to which replica: the distribution function of each pattern (WindFlow, 2.1 and Table 1).

A deal looks at the rows only and keeps no state that an answer depends on, so every producer can have one
of its own, and a row that is replayed goes where it went before or to a replica that does as well. Rows are
judged by the watermark where they arrive, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.stages.keys.slots import KeyBuckets
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.timing.bucket import BUCKETS
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

Partitions = list[tuple[int, Batch]]
"""(replica, its rows), by replica; replicas that get none are not named."""


class Partitioner(Protocol):
    """A distribution function for a number of replicas."""

    degree: int

    def __call__(self, batch: Batch) -> Partitions:
        """The rows of each replica, in the order they have in the batch."""

    def owners(self, bucket: int) -> Sequence[int]:
        """The replicas that take up a saved bucket, whatever number of them saved it."""

    def __str__(self) -> str:
        """What goes where, for explain()."""


class KeyPartitioner:
    """All rows of a key to one replica: that of the key's bucket (`timing/bucket.py`)."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], degree: int) -> None:
        self.degree, self._key = degree, tuple(key)
        self._buckets = KeyBuckets([schema.field(name).type for name in key])

    def buckets(self, batch: Batch) -> Ints:
        """The bucket of each row's key; where the key stands in a shorter column, of its values there."""
        coded = batch.dictionary_column(self._key[0]) if len(self._key) == 1 else None
        if coded is not None:
            return self._of([coded.values], len(coded.values)).take(coded.codes)
        return self._of([batch.column(name) for name in self._key], batch.num_rows)

    def _of(self, columns: Sequence[pa.Array], n_rows: int) -> Ints:
        return self._buckets.of(columns, n_rows).astype(np.int64)

    def __call__(self, batch: Batch) -> Partitions:
        """By bucket."""
        if self.degree == 1:
            return _whole(batch)
        return _split_rows(batch, self.buckets(batch) % self.degree, self.degree)

    def owners(self, bucket: int) -> Sequence[int]:
        """The one that has the bucket's keys."""
        return (bucket % self.degree,)

    def __str__(self) -> str:
        return f"rows by key to {_replicas(self.degree)}"


class WindowPartitioner:
    """Whole windows to replicas in turn; a row goes to every replica that has one of its windows.

    Window number w (start / every) of a key in bucket b is in *lane* (w + b) mod 256, and lane l belongs to
    replica l mod degree: the windows of one key go round, and those that are open at one time for many keys
    are spread as well. Lanes are for windows what buckets are for keys: state is saved by them, so any number
    of replicas can take it up. Each row has one *home*, the owner of the last window of the first kind that
    starts at or before it, also when that has ended in a gap: there the row is judged and counted; elsewhere
    it is a guest.
    """

    def __init__(
        self, windows: Sequence[TimeWindow], schema: pa.Schema, key: Sequence[str], degree: int
    ) -> None:
        self.degree, self.n_lanes = degree, BUCKETS
        self.windows = tuple(windows)
        self._every = np.array([window.every for window in windows], np.int64)
        self._keys = KeyPartitioner(schema, key, degree)

    def __call__(self, batch: Batch) -> Partitions:
        """By window; a row may be in several shares."""
        buckets = self._keys.buckets(batch)
        homes = self._primary_replicas(batch.times, buckets)
        masks = [self.needed(batch.times, buckets, each) | (homes == each) for each in range(self.degree)]
        return [(each, batch.where(mask)) for each, mask in enumerate(masks) if mask.any()]

    def buckets(self, batch: Batch) -> Ints:
        """The bucket of each row's key."""
        return self._keys.buckets(batch)

    def primary_replicas(self, batch: Batch) -> Ints:
        """The replica at which each row is judged and counted."""
        return self._primary_replicas(batch.times, self._keys.buckets(batch))

    def virtual_partitions(self, kinds: Ints, starts: Ints, buckets: Ints) -> Ints:
        """The lane of each window, by its kind, its start and the bucket of its key."""
        return np.asarray((starts // self._every[kinds] + buckets) % BUCKETS, np.int64)

    def saved_in(self, kinds: Ints, times: Ints, buckets: Ints) -> Ints:
        """The lane that saves what is known of each time for some kinds of window.

        It is that of a window that holds the time: its replica has been given all rows of that time.
        """
        found = np.full(len(times), int(kinds[0]), np.int64)
        for kind in kinds[::-1].tolist():
            found[times % self._every[kind] < self.windows[kind].size] = kind
        return self.virtual_partitions(found, times, buckets)

    def needed(self, times: Ints, buckets: Ints, replica: int) -> Mask:
        """Which times lie in a window of the replica."""
        found = np.zeros(len(times), np.bool_)
        for window in self.windows:
            first = (times - window.size) // window.every + 1
            n_windows = np.minimum(times // window.every + 1 - first, BUCKETS)
            lane = (first + buckets) % BUCKETS
            # Lanes follow each other up to the last, and then begin again.
            before_end = np.minimum(n_windows, BUCKETS - lane)
            found |= (replica - lane) % self.degree < before_end
            found |= replica % self.degree < n_windows - before_end
        return found

    def owners(self, bucket: int) -> Sequence[int]:
        """All: windows overlap, so what one lane saves others need too, and each takes what it needs."""
        return range(self.degree)

    def _primary_replicas(self, times: Ints, buckets: Ints) -> Ints:
        return (times // self.windows[0].every + buckets) % BUCKETS % self.degree

    def __str__(self) -> str:
        return f"windows in turn to {_replicas(self.degree)}; a row to all that have one of its windows"


class PanePartitioner:
    """Slices to replicas in turn, for all keys: a row goes to one replica.

    Where kinds of window do not share slices, those of the first decide; slices of the others may then come
    in several parts, which are combined like any others.
    """

    def __init__(self, windows: Sequence[TimeWindow], degree: int) -> None:
        self.degree = degree
        self._slicing = Slicing.groups(windows)[0]

    def __call__(self, batch: Batch) -> Partitions:
        """By slice."""
        if self.degree == 1:
            return _whole(batch)
        return _split_rows(batch, self._slicing.ids(batch.times) % self.degree, self.degree)

    def owners(self, bucket: int) -> Sequence[int]:
        """None: what makes parts saves nothing."""
        return ()

    def __str__(self) -> str:
        return f"slices in turn to {_replicas(self.degree)}"


class RoundRobinPartitioner:
    """Row after row to replicas in turn, so that every window is cut into parts of about equal size."""

    def __init__(self, degree: int) -> None:
        self.degree = degree
        self._next = 0

    def __call__(self, batch: Batch) -> Partitions:
        """The next replica for the next row, across batches."""
        if self.degree == 1:
            return _whole(batch)
        turns = (self._next + np.arange(batch.num_rows)) % self.degree
        self._next = (self._next + batch.num_rows) % self.degree
        return _split_rows(batch, turns, self.degree)

    def owners(self, bucket: int) -> Sequence[int]:
        """None: what makes parts saves nothing."""
        return ()

    def __str__(self) -> str:
        return f"rows in turn to {_replicas(self.degree)}"


def _whole(batch: Batch) -> Partitions:
    return [(0, batch)] if batch.num_rows else []


def _split_rows(batch: Batch, replicas: Ints, degree: int) -> Partitions:
    masks = ((each, replicas == each) for each in range(degree))
    return [(each, batch.where(mask)) for each, mask in masks if mask.any()]


def _replicas(degree: int) -> str:
    return f"{degree} replica{'s' if degree > 1 else ''}"
