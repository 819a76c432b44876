"""Time windows whose rows are kept: for functions of whole windows, and aggregates that no register holds.

A row is kept once, whatever number of windows it lies in, until the last of them has left. The windows that
leave at a watermark are found from the rows that are there, so windows without rows do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expr.types import from_plain
from penstock.frozen import dataclass
from penstock.operators import aggregates as spec
from penstock.stages.rows.arrays import Form, encode_column
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.order import rank_values, sort_indices
from penstock.stages.rows.store import (
    RowBlocks,
    ints_of,
    list_windows,
    members_of_ranges,
    no_members,
    rows_from_snapshot,
    rows_of_slots,
    rows_to_snapshot,
)
from penstock.stages.sketches.hll import HllSketch, hash_coupons
from penstock.stages.sketches.kll import KllSketch
from penstock.stages.window.accumulators import SumOverflow, value_counts
from penstock.stages.window.store import (
    ENDED,
    NEVER,
    ClosedWindows,
    Decision,
    Decisions,
    InputRows,
    StateBatches,
    WindowRows,
    no_ints,
)
from penstock.timing.slices import closed_windows_of, first_open
from penstock.timing.windows import TimeWindow

FRESH, SHOWN = 1, 0
"""What is written in a kept row's ticket: whether it came since windows were last shown early."""


class RowStore:
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

    def explain(self) -> tuple[str, ...]:
        """How windows are put together."""
        return tuple(f"{window}: rows are kept until their last window leaves" for window in self._windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._rows.nbytes

    def has_state(self, slots: Ints) -> Mask:
        """Which slots have rows that an open window needs."""
        return self._rows.holds(slots)

    def add(self, arriving: InputRows, watermark: int) -> tuple[Decisions, Ints]:
        """Keep the rows that lie in some open window; (fates, misses) per kind and row."""
        assert watermark == self._left_to or not len(self._rows), "windows leave before more rows are taken"
        self._left_to = max(self._left_to, watermark)
        fates, misses = decide_rows(self._windows, self._lateness, arriving.times, watermark)
        taken = (fates == Decision.TAKEN).any(axis=0)
        rows = arriving if taken.all() else arriving.at(np.flatnonzero(taken))
        fresh = np.full(len(rows.slots), FRESH, np.int64)
        kept = InputRows(rows.slots, rows.times, rows.order, rows=rows.rows, tags=fresh, lifted=rows.lifted)
        self._rows.add(kept)
        return fates, misses

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Every window with end + lateness <= watermark, and the rows that no other window needs."""
        after, upto = self._left_to - self._lateness, watermark - self._lateness
        self._left_to = max(self._left_to, watermark)
        some = any(first_end(window, after) <= upto for window in self._windows)
        left = self._given(self._rows.find(below=upto) if some else None, after, upto)
        open_from = min(first_open(window, self._left_to, self._lateness) for window in self._windows)
        gone = self._rows.pull(below=open_from)
        return left if gone is None else replace(left, touched=np.unique(gone.slots))

    def fire_early(self) -> ClosedWindows:
        """The open windows that have got rows since they were last shown."""
        left = self._given(self._rows.find(), self._left_to - self._lateness, ENDED, only_fresh=True)
        shown = self._rows.pull()
        if shown is not None:
            self._rows.add(replace(shown, tags=np.full(len(shown.slots), SHOWN, np.int64)))
        return left

    def _given(
        self, rows: InputRows | None, after: int, upto: int, *, only_fresh: bool = False
    ) -> ClosedWindows:
        """The windows of some rows with after < end <= upto."""
        if rows is None:
            none = no_ints()
            return ClosedWindows(none, none, none, none, none, members=no_members(self._schema))
        order = sort_indices([rows.slots, rows.times, *rows.order], rows.rows)
        slots, times = rows.slots[order], rows.times[order]
        kinds, starts, lo, hi = windows_between(self._windows, slots, times, after, upto)
        if only_fresh:
            assert rows.tags is not None, "kept rows say whether they are fresh"
            n_fresh = np.append(0, np.cumsum(rows.tags[order] == FRESH))
            chosen = n_fresh[hi] > n_fresh[lo]
            kinds, starts, lo, hi = kinds[chosen], starts[chosen], lo[chosen], hi[chosen]
        ends = starts + np.array([window.size for window in self._windows], np.int64)[kinds]
        return ClosedWindows(
            kinds, slots[lo], starts, ends, ends - 1, members=members_of_ranges(rows, order, lo, hi)
        )

    def export(self, slots: Ints) -> StateBatches:
        """The kept rows of these slots."""
        rows = rows_to_snapshot(self._rows.find(rows_of_slots(slots)), slots)
        return {"rows": rows.append_column("left_to", pa.array(np.full(rows.num_rows, self._left_to)))}

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up exported rows: what was at place i now belongs to slots[i]."""
        rows = rows_from_snapshot(saved["rows"], slots)
        if rows is not None:
            self._left_to = max(self._left_to, int(ints_of(saved["rows"], "left_to").max()))
            self._rows.add(rows)


def decide_rows(
    windows: Sequence[TimeWindow], lateness: int, times: Ints, watermark: int
) -> tuple[Decisions, Ints]:
    """What each kind of window says to each row, and how many of its windows the row has missed."""
    fates = np.full((len(windows), len(times)), Decision.TAKEN, np.uint8)
    misses = np.zeros((len(windows), len(times)), np.int64)
    for kind, window in enumerate(windows):
        n_windows = times // window.every - _first_start(window, times) + 1
        misses[kind] = closed_windows_of(window, times, watermark, lateness)
        fates[kind, misses[kind] == n_windows] = Decision.LATE
        fates[kind, n_windows == 0] = Decision.GAP
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
        numbers, lo, hi = list_windows(slots, first, last)
        found.append((np.full(len(lo), kind, np.int64), numbers * window.every, lo, hi))
    kinds, starts, lo, hi = (np.concatenate(each) for each in zip(*found, strict=True))
    return kinds, starts, lo, hi


def first_end(window: TimeWindow, after: int) -> int:
    """The least end of a window that is greater than `after`."""
    return ((after - window.size) // window.every + 1) * window.every + window.size


def _first_start(window: TimeWindow, times: Ints) -> Ints:
    """The first window of each time, as a multiple of `every`."""
    return np.asarray((times - window.size) // window.every + 1, np.int64)


# Aggregates from the rows of windows, for what registers cannot hold: text, decimals, lists.
#
# Sketches come here from count windows only; other windows keep them without rows (`sketch.py`).
#
# The rows of all leaving windows come at once, in order, window after window; nulls are dropped first.
# Then each rule works on segments: the values of window i are values[bounds[i]:bounds[i + 1]].

_WIDE = Context(prec=200)  # exact for any number of rows that fits in memory
_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Segments:
    """The values of windows that are not null, in order, one window after the other."""

    values: pa.Array
    bounds: Ints

    @property
    def counts(self) -> Ints:
        """How many values each window has."""
        return np.diff(self.bounds)

    @property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Which windows have none."""
        return np.asarray(self.counts == 0)

    @property
    def windows(self) -> Ints:
        """The window of each value."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def each(self) -> list[pa.Array]:
        """The values window by window."""
        pairs = zip(self.bounds[:-1].tolist(), self.counts.tolist(), strict=True)
        return [self.values.slice(start, n) for start, n in pairs]

    def reduced(self, how: Any, numbers: Ints) -> Ints:
        """how.reduceat over the windows; zero for those without values."""
        found = np.zeros(len(self.bounds) - 1, np.int64)
        some = ~self.empty
        if some.any():
            found[some] = how.reduceat(numbers, self.bounds[:-1][some])
        return found

    def at(self, places: Ints) -> pa.Array:
        """One value per window, by place among the values; null for windows without any."""
        return self.values.take(pa.array(places, pa.int64(), mask=self.empty))


def window_segments(members: WindowRows, column: str) -> Segments:
    """What windows have of a column."""
    values = members.rows.column(column).take(pa.array(members.places))
    if values.null_count == 0:
        return Segments(values, members.offsets)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    before = np.concatenate([[0], np.cumsum(valid)])
    return Segments(values.drop_null(), before[members.offsets])


def aggregate_rows(aggregate: spec.Aggregate, found: Segments, type_: pa.DataType) -> pa.Array:
    """The results of an aggregate of values, one per window."""
    return AGGREGATORS[type(aggregate)](aggregate, found, type_)


Aggregator = Callable[[Any, Segments, pa.DataType], pa.Array]


def _count(_: spec.Count, found: Segments, type_: pa.DataType) -> pa.Array:
    return pa.array(found.counts, type_)


def _collect(_: spec.Collect, found: Segments, type_: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(found.bounds, pa.int32()), found.values).cast(type_)


def _first(_: spec.First, found: Segments, type_: pa.DataType) -> pa.Array:
    return found.at(found.bounds[:-1])


def _last(_: spec.Last, found: Segments, type_: pa.DataType) -> pa.Array:
    return found.at(found.bounds[1:] - 1)


def _extreme(aggregate: spec.Aggregate, found: Segments, type_: pa.DataType) -> pa.Array:
    return _extremes(aggregate, found)[0]


def _extreme_count(aggregate: spec.Aggregate, found: Segments, type_: pa.DataType) -> pa.Array:
    values, n_equal = _extremes(aggregate, found)
    return value_counts(values, n_equal, found.empty)


def _extremes(aggregate: spec.Aggregate, found: Segments) -> tuple[pa.Array, Ints]:
    """The least or greatest value of each window, by rank, and how many equal it."""
    least = isinstance(aggregate, spec.Min | spec.MinCount)
    ranks = rank_values(found.values)
    best = found.reduced(np.minimum if least else np.maximum, ranks)
    equal = (ranks == np.repeat(best, found.counts)).astype(np.int64)
    holder = np.zeros(int(ranks.max(initial=0)) + 1, np.int64)
    holder[ranks] = np.arange(len(ranks))
    return found.at(holder[best]), found.reduced(np.add, equal)


def _sum(_: spec.Sum, found: Segments, type_: pa.DataType) -> pa.Array:
    """Decimals exactly, or not at all."""
    totals: list[object] = []
    for place, part in enumerate(found.each()):
        total = Decimal(0)
        for value in part.to_pylist():
            total = _WIDE.add(total, value)
        if len(total.as_tuple().digits) > _DIGITS:
            raise SumOverflow(place, f"the exact sum is {total}, which has more than {_DIGITS} digits")
        totals.append(total if len(part) else None)
    return from_plain(totals, type_)


def _mean(_: spec.Mean, found: Segments, type_: pa.DataType) -> pa.Array:
    """The exact mean of decimals, rounded once."""
    exact = [sum(map(Fraction, part.to_pylist()), Fraction(0)) for part in found.each()]
    means = [float(total / n) if n else None for total, n in zip(exact, found.counts.tolist(), strict=True)]
    return pa.array(means, type_)


def _approx_distinct(_: spec.ApproxDistinct, found: Segments, type_: pa.DataType) -> pa.Array:
    summaries = HllSketch.added([None] * len(found.counts), found.windows, hash_coupons(found.values))
    return pa.array([summary.estimate() for summary in summaries], type_)


def _quantile(aggregate: spec.Quantile, found: Segments, type_: pa.DataType) -> pa.Array:
    values = encode_column(found.values, Form.FLOAT).data
    summaries = KllSketch.added([None] * len(found.counts), found.windows, values)
    return pa.array([summary.quantile(aggregate.q) for summary in summaries], type_)


AGGREGATORS: dict[type[spec.Aggregate], Aggregator] = {
    spec.Count: _count,
    spec.Collect: _collect,
    spec.First: _first,
    spec.Last: _last,
    spec.Min: _extreme,
    spec.Max: _extreme,
    spec.MinCount: _extreme_count,
    spec.MaxCount: _extreme_count,
    spec.Sum: _sum,
    spec.Mean: _mean,
    spec.ApproxDistinct: _approx_distinct,
    spec.Quantile: _quantile,
}
