"""Stretches of slices that lie near each other, slot by slot: which of them one ring should hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.frozen import dataclass

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Clusters:
    """Clusters by (slot, first): those of one slot have gaps between them that are longer than asked.

    slots  int64[c]
    first  int64[c]
    past   int64[c]
    of     int64[n]  the cluster of each stretch that was given
    """

    slots: Ints
    first: Ints
    past: Ints
    of: Ints


def clusters_of(slots: Ints, first: Ints, past: Ints, apart: int) -> Clusters:
    """Put together the stretches [first, past) of each slot that have gaps of at most `apart` between them.

    >>> found = clusters_of(np.array([0, 1, 0]), np.array([0, 5, 9]), np.array([3, 6, 11]), 6)
    >>> found.slots.tolist(), found.first.tolist(), found.past.tolist(), found.of.tolist()
    ([0, 1], [0, 5], [11, 6], [0, 1, 0])
    """
    order = np.lexsort((first, slots))
    owners, starts = slots[order], first[order]
    reach = _furthest(owners, past[order])
    begins = np.append(True, (owners[1:] != owners[:-1]) | (starts[1:] - reach[:-1] > apart))
    of = np.empty(len(slots), np.int64)
    of[order] = np.cumsum(begins) - 1
    heads = np.flatnonzero(begins)
    return Clusters(owners[heads], starts[heads], reach[np.append(heads[1:], len(slots)) - 1], of)


def _furthest(owners: Ints, past: Ints) -> Ints:
    """The greatest of `past` so far, for each owner by itself; owners stand in order."""
    by_size = np.lexsort((past, owners))
    rank = np.empty(len(past), np.int64)
    rank[by_size] = np.arange(len(past))
    # Every rank of an owner is above all of those before it, so nothing is carried from one to the next.
    return np.asarray(past[by_size][np.maximum.accumulate(rank)], np.int64)
