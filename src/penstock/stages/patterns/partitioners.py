"""Which rows go to which replica: the distribution function of every pattern (WindFlow, 2.1 and Table 1).

A partitioner looks at the rows only and keeps no state that an answer depends on, so every producer can have
one of its own, and a row that is replayed goes where it went before or to a replica that does as well. Late
rows are found where they arrive, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.stages.keys.slots import BUCKETS, KeyBuckets
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

Partitions = list[tuple[int, Batch]]
"""(replica, its rows), by replica; replicas that get none are not named."""


class Partitioner(Protocol):
    """A distribution function for a number of replicas."""

    degree: int

    def __call__(self, batch: Batch) -> Partitions:
        """Return the rows of each replica, in the order they have in the batch."""

    def owners(self, bucket: int) -> Sequence[int]:
        """Return the replicas that restore a saved bucket, whatever number of them saved it."""

    def __str__(self) -> str:
        """Say what goes where."""


class KeyPartitioner:
    """Sends all rows of a key to one replica: that of the key's bucket (`KeyBuckets`)."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], degree: int) -> None:
        self.degree, self._key = degree, tuple(key)
        self._buckets = KeyBuckets([schema.field(name).type for name in key])

    def buckets(self, batch: Batch) -> Ints:
        """Return the bucket of each row's key; in a dictionary column each value is hashed once."""
        view = batch.view(self._key[0]) if len(self._key) == 1 else None
        if view is not None and view.codes is not None:
            return self._of([view.values], len(view.values)).take(view.codes)
        return self._of([batch.column(name) for name in self._key], batch.num_rows)

    def _of(self, columns: Sequence[pa.Array], n_rows: int) -> Ints:
        return self._buckets.of(columns, n_rows).astype(np.int64)

    def __call__(self, batch: Batch) -> Partitions:
        """Split rows by bucket."""
        if self.degree == 1:
            return _whole(batch)
        return _split_rows(batch, self.buckets(batch) % self.degree, self.degree)

    def owners(self, bucket: int) -> Sequence[int]:
        """Return the one replica that has the bucket's keys."""
        return (bucket % self.degree,)

    def __str__(self) -> str:
        return f"rows by key to {_replicas(self.degree)}"


class WindowPartitioner:
    """Sends whole windows to replicas in round-robin; a row goes to all that have one of its windows.

    Window number w (start / every) of a key in bucket b is in *virtual partition* (w + b) mod 256, and
    partition p belongs to replica p mod degree: the windows of one key go round, and those that are open at
    one time for many keys are spread as well. Virtual partitions are for windows what buckets are for keys:
    state is saved by them, so any number of replicas can restore it. Each row has one *primary replica*,
    the owner of the last window of the first kind that starts at or before it, also when that has ended in
    a gap: it decides on the row and counts it.
    """

    def __init__(
        self, windows: Sequence[TimeWindow], schema: pa.Schema, key: Sequence[str], degree: int
    ) -> None:
        self.degree, self.n_virtual = degree, BUCKETS
        self.windows = tuple(windows)
        self._every = np.array([window.every for window in windows], np.int64)
        self._keys = KeyPartitioner(schema, key, degree)

    def __call__(self, batch: Batch) -> Partitions:
        """Split rows by window; a row may go to several replicas."""
        buckets = self._keys.buckets(batch)
        primary = self._primary_replicas(batch.times, buckets)
        masks = [
            self.needs(batch.times, buckets, replica) | (primary == replica) for replica in range(self.degree)
        ]
        return [(replica, batch.where(mask)) for replica, mask in enumerate(masks) if mask.any()]

    def buckets(self, batch: Batch) -> Ints:
        """Return the bucket of each row's key."""
        return self._keys.buckets(batch)

    def primary_replicas(self, batch: Batch) -> Ints:
        """Return the replica that decides on each row and counts it."""
        return self._primary_replicas(batch.times, self._keys.buckets(batch))

    def virtual_partitions(self, kinds: Ints, starts: Ints, buckets: Ints) -> Ints:
        """Return the partition of each window, by its kind, its start and the bucket of its key."""
        return np.asarray((starts // self._every[kinds] + buckets) % BUCKETS, np.int64)

    def saved_in(self, kinds: Ints, times: Ints, buckets: Ints) -> Ints:
        """Return the partition that saves what is known of each time for some kinds of window.

        It is that of a window that holds the time: its replica has got all rows of that time.
        """
        holder = np.full(len(times), int(kinds[0]), np.int64)
        for kind in kinds[::-1].tolist():
            holder[times % self._every[kind] < self.windows[kind].size] = kind
        return self.virtual_partitions(holder, times, buckets)

    def needs(self, times: Ints, buckets: Ints, replica: int) -> Mask:
        """Return which times lie in a window of the replica."""
        needed = np.zeros(len(times), np.bool_)
        for window in self.windows:
            first = (times - window.size) // window.every + 1
            n_windows = np.minimum(times // window.every + 1 - first, BUCKETS)
            partition = (first + buckets) % BUCKETS
            # Partitions follow each other up to the last, and then begin again.
            before_end = np.minimum(n_windows, BUCKETS - partition)
            needed |= (replica - partition) % self.degree < before_end
            needed |= replica % self.degree < n_windows - before_end
        return needed

    def owners(self, bucket: int) -> Sequence[int]:
        """Return all: windows overlap, so what one partition saves others need too."""
        return range(self.degree)

    def _primary_replicas(self, times: Ints, buckets: Ints) -> Ints:
        return (times // self.windows[0].every + buckets) % BUCKETS % self.degree

    def __str__(self) -> str:
        return f"windows in turn to {_replicas(self.degree)}; a row to all that have one of its windows"


class PanePartitioner:
    """Sends slices to replicas in round-robin, for all keys: a row goes to one replica.

    Where kinds of window do not share slices, those of the first decide; slices of the others may then come
    as several partials, which are merged like any others.
    """

    def __init__(self, windows: Sequence[TimeWindow], degree: int) -> None:
        self.degree = degree
        self._slicing = Slicing.groups(windows)[0]

    def __call__(self, batch: Batch) -> Partitions:
        """Split rows by slice."""
        if self.degree == 1:
            return _whole(batch)
        return _split_rows(batch, self._slicing.ids(batch.times) % self.degree, self.degree)

    def owners(self, bucket: int) -> Sequence[int]:
        """Return none: stages that make partials save nothing."""
        return ()

    def __str__(self) -> str:
        return f"slices in turn to {_replicas(self.degree)}"


class RoundRobinPartitioner:
    """Sends row after row to replicas in round-robin, so that every window is split into equal parts."""

    def __init__(self, degree: int) -> None:
        self.degree = degree
        self._next = 0

    def __call__(self, batch: Batch) -> Partitions:
        """Send the next row to the next replica, across batches."""
        if self.degree == 1:
            return _whole(batch)
        replicas = (self._next + np.arange(batch.num_rows)) % self.degree
        self._next = (self._next + batch.num_rows) % self.degree
        return _split_rows(batch, replicas, self.degree)

    def owners(self, bucket: int) -> Sequence[int]:
        """Return none: stages that make partials save nothing."""
        return ()

    def __str__(self) -> str:
        return f"rows in turn to {_replicas(self.degree)}"


def _whole(batch: Batch) -> Partitions:
    return [(0, batch)] if batch.num_rows else []


def _split_rows(batch: Batch, replicas: Ints, degree: int) -> Partitions:
    masks = ((replica, replicas == replica) for replica in range(degree))
    return [(replica, batch.where(mask)) for replica, mask in masks if mask.any()]


def _replicas(degree: int) -> str:
    return f"{degree} replica{'s' if degree > 1 else ''}"
