"""Windows that leave, of one shelf or several: together, in the order of results, and some of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.stages.batch import Ints
from penstock.stages.shelf import picked
from penstock.stages.store import Left

_FEW = 1 << 16


def in_order_of_end(left: Left) -> Ints | None:
    """The order of results, by (end, start, kind, index, slot); None where they stand so already.

    Stores mostly give windows slot by slot, each slot's in order. Where every slot has the same windows, as
    in a steady stream, that is a table to be read by columns. Else sorting by few different ends and keeping
    what is equal in its order is enough: that takes no comparisons.
    """
    if left.index is None and not left.kinds.any() and (left.slots[1:] >= left.slots[:-1]).all():
        if (left.ends[1:] >= left.ends[:-1]).all():
            return None
        n, width = len(left.slots), int(np.searchsorted(left.slots, left.slots[0], side="right"))
        if n % width == 0 and (left.slots[::width] == left.slots[width - 1 :: width]).all():
            table = left.starts.reshape(-1, width), left.ends.reshape(-1, width)
            if all((rows == rows[0]).all() and (rows[0, 1:] > rows[0, :-1]).all() for rows in table):
                return np.ascontiguousarray(np.arange(n).reshape(-1, width).T).reshape(-1)
        since = left.ends - left.ends.min()
        step = np.gcd.reduce(since)
        if since.max() // step < _FEW and (left.ends - left.starts == left.ends[0] - left.starts[0]).all():
            return np.argsort((since // step).astype(np.uint16), kind="stable")
    return np.lexsort((left.slots, index_of(left), left.kinds, left.starts, left.ends))


def at(left: Left, windows: Ints) -> Left:
    """Where and when some of the windows are."""
    return picked(Left(left.kinds, left.slots, left.starts, left.ends, left.times, left.index), windows)


def joined(lefts: Sequence[Left]) -> Left:
    """Where and when the windows of several shelves are; index -1 for those that are not count windows."""
    if len(lefts) == 1:
        return lefts[0]
    names = ("kinds", "slots", "starts", "ends", "times")
    kinds, slots, starts, ends, times = (np.concatenate([getattr(left, n) for left in lefts]) for n in names)
    return Left(kinds, slots, starts, ends, times, np.concatenate([index_of(left) for left in lefts]))


def index_of(left: Left) -> Ints:
    """The number of each count window among those of its key; -1 for other windows."""
    return np.full(len(left.slots), -1, np.int64) if left.index is None else left.index
