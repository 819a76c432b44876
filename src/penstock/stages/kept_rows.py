"""Time windows whose rows are kept: for functions of whole windows, and aggregates that no register holds.

A row is kept once, whatever number of windows it lies in, until the last of them has left. The windows that
leave at a watermark are found from the rows that are there, so windows without rows do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.stages.batch import Ints, Mask
from penstock.stages.members import no_members, stretches, windows_over
from penstock.stages.row_blocks import RowBlocks, of_slots
from penstock.stages.row_order import in_order
from penstock.stages.saved_rows import ints_of, loaded_rows, saved_rows
from penstock.stages.store import ENDED, NEVER, Arriving, Fate, Fates, Left, Saved, nothing
from penstock.timing.slices import closed_windows_of, first_open
from penstock.timing.windows import TimeWindow

FRESH, SHOWN = 1, 0
"""What is written in a kept row's ticket: whether it came since windows were last shown early."""


class KeptRows:
    """Time windows of several kinds with their rows, for all keys.

    Each watermark given to `take` is the one that `leave` was last given.
    """

    def __init__(self, windows: Sequence[TimeWindow], lateness: int, *, rows: pa.Schema) -> None:
        self._windows, self._lateness, self._schema = tuple(windows), lateness, rows
        self._rows = RowBlocks()
        self._left_to = NEVER  # windows with end + lateness up to here have left

    @property
    def n_kinds(self) -> int:
        """How many kinds of window."""
        return len(self._windows)

    @property
    def why(self) -> tuple[str, ...]:
        """How windows are put together."""
        return tuple(f"{window}: rows are kept until their last window leaves" for window in self._windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._rows.nbytes

    def holds(self, slots: Ints) -> Mask:
        """Which slots have rows that an open window needs."""
        return self._rows.holds(slots)

    def take(self, arriving: Arriving, watermark: int) -> tuple[Fates, Ints]:
        """Keep the rows that lie in some open window; (fates, misses) per kind and row."""
        assert watermark == self._left_to or not len(self._rows), "windows leave before more rows are taken"
        self._left_to = max(self._left_to, watermark)
        fates, misses = judge(self._windows, self._lateness, arriving.times, watermark)
        taken = (fates == Fate.TAKEN).any(axis=0)
        rows = arriving if taken.all() else arriving.at(np.flatnonzero(taken))
        fresh = np.full(len(rows.slots), FRESH, np.int64)
        kept = Arriving(rows.slots, rows.times, rows.order, rows=rows.rows, tickets=fresh, lifted=rows.lifted)
        self._rows.add(kept)
        return fates, misses

    def leave(self, watermark: int, *, ended: bool = False) -> Left:
        """Every window with end + lateness <= watermark, and the rows that no other window needs."""
        after, upto = self._left_to - self._lateness, watermark - self._lateness
        self._left_to = max(self._left_to, watermark)
        some = any(first_end(window, after) <= upto for window in self._windows)
        left = self._given(self._rows.find(below=upto) if some else None, after, upto)
        open_from = min(first_open(window, self._left_to, self._lateness) for window in self._windows)
        gone = self._rows.pull(below=open_from)
        return left if gone is None else replace(left, touched=np.unique(gone.slots))

    def early(self) -> Left:
        """The open windows that have got rows since they were last shown."""
        left = self._given(self._rows.find(), self._left_to - self._lateness, ENDED, only_fresh=True)
        shown = self._rows.pull()
        if shown is not None:
            self._rows.add(replace(shown, tickets=np.full(len(shown.slots), SHOWN, np.int64)))
        return left

    def _given(self, rows: Arriving | None, after: int, upto: int, *, only_fresh: bool = False) -> Left:
        """The windows of some rows with after < end <= upto."""
        if rows is None:
            none = nothing()
            return Left(none, none, none, none, none, members=no_members(self._schema))
        order = in_order([rows.slots, rows.times, *rows.order], rows.rows)
        slots, times = rows.slots[order], rows.times[order]
        kinds, starts, lo, hi = windows_between(self._windows, slots, times, after, upto)
        if only_fresh:
            assert rows.tickets is not None, "kept rows say whether they are fresh"
            n_fresh = np.append(0, np.cumsum(rows.tickets[order] == FRESH))
            chosen = n_fresh[hi] > n_fresh[lo]
            kinds, starts, lo, hi = kinds[chosen], starts[chosen], lo[chosen], hi[chosen]
        ends = starts + np.array([window.size for window in self._windows], np.int64)[kinds]
        return Left(kinds, slots[lo], starts, ends, ends - 1, members=stretches(rows, order, lo, hi))

    def export(self, slots: Ints) -> Saved:
        """The kept rows of these slots."""
        rows = saved_rows(self._rows.find(of_slots(slots)), slots)
        return {"rows": rows.append_column("left_to", pa.array(np.full(rows.num_rows, self._left_to)))}

    def load(self, saved: Saved, slots: Ints) -> None:
        """Take up exported rows: what was at place i now belongs to slots[i]."""
        rows = loaded_rows(saved["rows"], slots)
        if rows is not None:
            self._left_to = max(self._left_to, int(ints_of(saved["rows"], "left_to").max()))
            self._rows.add(rows)


def judge(windows: Sequence[TimeWindow], lateness: int, times: Ints, watermark: int) -> tuple[Fates, Ints]:
    """What each kind of window says to each row, and how many of its windows the row has missed."""
    fates = np.full((len(windows), len(times)), Fate.TAKEN, np.uint8)
    misses = np.zeros((len(windows), len(times)), np.int64)
    for kind, window in enumerate(windows):
        n_windows = times // window.every - _first_start(window, times) + 1
        misses[kind] = closed_windows_of(window, times, watermark, lateness)
        fates[kind, misses[kind] == n_windows] = Fate.LATE
        fates[kind, n_windows == 0] = Fate.GAP
    return fates, misses


def windows_between(
    windows: Sequence[TimeWindow], slots: Ints, times: Ints, after: int, upto: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """(kind, start, first row, one past last row) of each window with rows and after < end <= upto.

    Rows come by (slot, time), so a window's rows stand together.
    """
    found = []
    for kind, window in enumerate(windows):
        first = np.maximum(_first_start(window, times), (after - window.size) // window.every + 1)
        last = np.minimum(times // window.every, (upto - window.size) // window.every)
        numbers, lo, hi = windows_over(slots, first, last)
        found.append((np.full(len(lo), kind, np.int64), numbers * window.every, lo, hi))
    kinds, starts, lo, hi = (np.concatenate(each) for each in zip(*found, strict=True))
    return kinds, starts, lo, hi


def first_end(window: TimeWindow, after: int) -> int:
    """The least end of a window that is greater than `after`."""
    return ((after - window.size) // window.every + 1) * window.every + window.size


def _first_start(window: TimeWindow, times: Ints) -> Ints:
    """The first window of each time, as a multiple of `every`."""
    return np.asarray((times - window.size) // window.every + 1, np.int64)
