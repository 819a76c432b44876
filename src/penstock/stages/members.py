"""The rows of windows that leave: which window each row is of, and every window's rows in order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.kernels.ring_rows import spread
from penstock.stages.batch import Ints
from penstock.stages.row_order import in_order
from penstock.stages.store import Arriving, Members, nothing

NO_WINDOW = -1


def no_members(schema: pa.Schema) -> Members:
    """The rows of no windows."""
    return Members(pa.RecordBatch.from_pylist([], schema=schema), np.zeros(1, np.int64), nothing())


def members_of(rows: Arriving, windows: Ints, n_windows: int) -> Members:
    """Rows by window from the number of each row's window."""
    assert rows.rows is not None, "a store that keeps rows is given rows"
    offsets = np.append(0, np.cumsum(np.bincount(windows, minlength=n_windows)))
    places = in_order([windows, rows.times, *rows.order], rows.rows)
    return Members(rows.rows, offsets, places, rows.lifted)


def windows_of(rows: Arriving, slots: Ints, starts: Ints, ends: Ints) -> Ints:
    """The window [start, end) of its slot that each row lies in, or NO_WINDOW; those of a slot are apart.

    Starts and rows are sorted together, so the window of a row is the last start before it.
    """
    n = len(slots)
    if not n:
        return np.full(len(rows.slots), NO_WINDOW, np.int64)
    of_row = np.append(np.zeros(n, np.int64), np.ones(len(rows.slots), np.int64))
    order = in_order([np.append(slots, rows.slots), np.append(starts, rows.times), of_row])
    latest = np.maximum.accumulate(np.where(order < n, np.arange(len(order)), -1))
    window = np.empty(len(order), np.int64)
    window[order] = np.where(latest < 0, NO_WINDOW, order[latest])
    window = window[n:]
    inside = (window >= 0) & (slots[window] == rows.slots) & (rows.times < ends[window])
    return np.where(inside, window, NO_WINDOW)


def windows_over(slots: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
    """(number, first row, one past last row) of every window, from the windows [first, last] of each row.

    Rows come by slot, and within a slot neither `first` nor `last` falls. So the windows that begin at a row
    are those after the last of the row before, those that end at it are before the first of the row behind,
    and both lists have the same windows in the same order.
    """
    same = slots[1:] == slots[:-1]
    begin, until = first.copy(), last + 1
    begin[1:] = np.where(same, np.maximum(first[1:], last[:-1] + 1), first[1:])
    until[:-1] = np.where(same, np.minimum(last[:-1] + 1, first[1:]), last[:-1] + 1)
    numbers, lo = spread(begin, last + 1)
    _, hi = spread(first, until)
    return numbers, lo, hi + 1


def stretches(rows: Arriving, order: Ints, lo: Ints, hi: Ints) -> Members:
    """Windows whose rows stand together once in order: window i has the rows order[lo[i] : hi[i]]."""
    assert rows.rows is not None, "a store that keeps rows is given rows"
    places, _ = spread(lo, hi)
    return Members(rows.rows, np.append(0, np.cumsum(hi - lo)), order[places], rows.lifted)
