"""Time windows whose rows are kept, and the aggregates computed from them.

Rows are kept for functions of whole windows, and for aggregates that no accumulator holds: text, decimals,
lists. A row is kept once, whatever number of windows it lies in, until the last of them has closed. The
windows that close at a watermark are found from the rows that are there, so windows without rows do not
exist. (Sketches are computed from rows in count windows only; other windows keep them without rows.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expr.values import from_plain
from penstock.frozen import dataclass
from penstock.operators import aggregates as spec
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import ENDED, NEVER, Form, InputRows, WindowRows, encode_column, no_ints
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
from penstock.stages.sketches import HllSketch, KllSketch, hash_coupons
from penstock.stages.window.accumulators import SumOverflow, build_value_counts
from penstock.stages.window.store import ClosedWindows, Decided, Decision, StateBatches, decide_rows
from penstock.timing.slices import first_open
from penstock.timing.windows import TimeWindow

FRESH, FIRED = 1, 0
"""The tag of a kept row: whether it came since windows last fired early."""


class RowStore:
    """Time windows of several kinds with their rows, for all keys."""

    next_end = None

    def __init__(self, windows: Sequence[TimeWindow], lateness: int, *, rows: pa.Schema) -> None:
        self._windows, self._lateness, self._schema = tuple(windows), lateness, rows
        self.n_kinds = len(self._windows)
        self._rows = RowBlocks()
        self._closed_to = NEVER  # windows with end + lateness up to here have closed

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._rows.nbytes

    def explain(self) -> tuple[str, ...]:
        """Say how windows are kept."""
        return tuple(f"{window}: rows are kept until their last window closes" for window in self._windows)

    def has_state(self, slots: Ints) -> Mask:
        """Return which slots have rows that an open window needs."""
        return self._rows.holds(slots)

    def add(self, rows: InputRows, watermark: int) -> Decided | None:
        """Keep the rows that lie in some open window."""
        assert watermark == self._closed_to or not len(self._rows), "windows close before more rows are added"
        self._closed_to = max(self._closed_to, watermark)
        decided = decide_rows(self._windows, self._lateness, rows.times, watermark)
        if decided is not None:
            admitted = (decided[0] == Decision.ADMITTED).any(axis=0)
            rows = rows if admitted.all() else rows.at(np.flatnonzero(admitted))
        fresh = np.full(len(rows.slots), FRESH, np.int64)
        self._rows.add(
            InputRows(rows.slots, rows.times, rows.order, rows=rows.rows, tags=fresh, lifted=rows.lifted)
        )
        return decided

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Close every window with end + lateness <= watermark, and drop the rows that no other needs."""
        after, upto = self._closed_to - self._lateness, watermark - self._lateness
        opens = (
            first_open(window, self._closed_to, self._lateness) + window.size for window in self._windows
        )
        closed = self._windows_of(self._rows.find(below=upto) if min(opens) <= upto else None, after, upto)
        self._closed_to = max(self._closed_to, watermark)
        open_from = min(first_open(window, self._closed_to, self._lateness) for window in self._windows)
        dropped = self._rows.pull(below=open_from)
        return closed if dropped is None else replace(closed, touched=np.unique(dropped.slots))

    def fire_early(self) -> ClosedWindows:
        """Return the open windows that have got rows since they last fired early."""
        after = self._closed_to - self._lateness
        fired = self._windows_of(self._rows.find(), after, ENDED, only_fresh=True)
        rows = self._rows.pull()
        if rows is not None:
            self._rows.add(replace(rows, tags=np.full(len(rows.slots), FIRED, np.int64)))
        return fired

    def _windows_of(
        self, rows: InputRows | None, after: int, upto: int, *, only_fresh: bool = False
    ) -> ClosedWindows:
        """Return the windows of some rows with after < end <= upto."""
        if rows is None:
            none = no_ints()
            return ClosedWindows(none, none, none, none, none, members=no_members(self._schema))
        order = sort_indices([rows.slots, rows.times, *rows.order], rows.rows)
        slots, times = rows.slots[order], rows.times[order]
        parts = []
        for kind, window in enumerate(self._windows):
            first = np.maximum(times - window.size, after - window.size) // window.every + 1
            last = np.minimum(times // window.every, (upto - window.size) // window.every)
            numbers, lo, hi = list_windows(slots, first, last)
            parts.append((np.full(len(lo), kind, np.int64), numbers * window.every, lo, hi))
        kinds, starts, lo, hi = (np.concatenate(column) for column in zip(*parts, strict=True))
        if only_fresh:
            assert rows.tags is not None, "kept rows say whether they are fresh"
            n_fresh = np.append(0, np.cumsum(rows.tags[order] == FRESH))
            chosen = n_fresh[hi] > n_fresh[lo]
            kinds, starts, lo, hi = kinds[chosen], starts[chosen], lo[chosen], hi[chosen]
        ends = starts + np.array([window.size for window in self._windows], np.int64)[kinds]
        members = members_of_ranges(rows, order, lo, hi)
        return ClosedWindows(kinds, slots[lo], starts, ends, ends - 1, members=members)

    def export(self, slots: Ints) -> StateBatches:
        """Return the kept rows of these slots."""
        rows = rows_to_snapshot(self._rows.find(rows_of_slots(slots)), slots)
        return {"rows": rows.append_column("closed_to", pa.array(np.full(rows.num_rows, self._closed_to)))}

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over exported rows: what was at place i now belongs to slots[i]."""
        rows = rows_from_snapshot(saved["rows"], slots)
        if rows is not None:
            self._closed_to = max(self._closed_to, int(ints_of(saved["rows"], "closed_to").max()))
            self._rows.add(rows)


_WIDE = Context(prec=200)  # exact for any number of rows that fits in memory
_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Segments:
    """The values of windows that are not null: those of window i are values[bounds[i]:bounds[i + 1]]."""

    values: pa.Array
    bounds: Ints

    @property
    def counts(self) -> Ints:
        """Return the number of values of each window."""
        return np.diff(self.bounds)

    @property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Return which windows have no values."""
        return np.asarray(self.counts == 0)

    @property
    def windows(self) -> Ints:
        """Return the window of each value."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def split(self) -> list[pa.Array]:
        """Return the values window by window."""
        pairs = zip(self.bounds[:-1].tolist(), self.counts.tolist(), strict=True)
        return [self.values.slice(start, n) for start, n in pairs]

    def reduce(self, ufunc: Any, numbers: Ints) -> Ints:
        """Reduce the numbers of each window by a ufunc; zero for windows without values."""
        reduced = np.zeros(len(self.bounds) - 1, np.int64)
        filled = ~self.empty
        if filled.any():
            reduced[filled] = ufunc.reduceat(numbers, self.bounds[:-1][filled])
        return reduced

    def at(self, places: Ints) -> pa.Array:
        """Return one value per window, by place among the values; null for windows without any."""
        return self.values.take(pa.array(places, pa.int64(), mask=self.empty))


def window_segments(members: WindowRows, column: str) -> Segments:
    """Return the values that windows have of a column."""
    values = members.rows.column(column).take(pa.array(members.places))
    if values.null_count == 0:
        return Segments(values, members.offsets)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    before = np.concatenate([[0], np.cumsum(valid)])
    return Segments(values.drop_null(), before[members.offsets])


def aggregate_rows(aggregate: spec.Aggregate, segments: Segments, type_: pa.DataType) -> pa.Array:
    """Return the result of each window, as an array of the aggregate's type."""
    match aggregate:
        case spec.Count():
            return pa.array(segments.counts, type_)
        case spec.Collect():
            bounds = pa.array(segments.bounds, pa.int32())
            return pa.ListArray.from_arrays(bounds, segments.values).cast(type_)
        case spec.First():
            return segments.at(segments.bounds[:-1])
        case spec.Last():
            return segments.at(segments.bounds[1:] - 1)
        case spec.Min() | spec.Max() | spec.MinCount() | spec.MaxCount():
            return _extreme(aggregate, segments)
        case spec.Sum():
            return _sum_decimals(segments, type_)
        case spec.Mean():  # of decimals: exact, and rounded once
            totals = [sum(map(Fraction, values.to_pylist()), Fraction(0)) for values in segments.split()]
            counts = segments.counts.tolist()
            means = [float(t / n) if n else None for t, n in zip(totals, counts, strict=True)]
            return pa.array(means, type_)
    new = [None] * len(segments.counts)
    if isinstance(aggregate, spec.Quantile):
        numbers = encode_column(segments.values, Form.FLOAT).data
        quantiles = KllSketch.update(new, segments.windows, numbers)
        return pa.array([sketch.quantile(aggregate.q) for sketch in quantiles], type_)
    assert isinstance(aggregate, spec.ApproxDistinct), f"{aggregate} is not computed from rows"
    distinct = HllSketch.update(new, segments.windows, hash_coupons(segments.values))
    return pa.array([sketch.estimate() for sketch in distinct], type_)


def _extreme(aggregate: spec.Aggregate, segments: Segments) -> pa.Array:
    """Return the least or greatest value of each window, by rank, and for MinCount and MaxCount how many."""
    is_min = isinstance(aggregate, spec.Min | spec.MinCount)
    ranks = rank_values(segments.values)
    best = segments.reduce(np.minimum if is_min else np.maximum, ranks)
    place_of_rank = np.zeros(int(ranks.max(initial=0)) + 1, np.int64)
    place_of_rank[ranks] = np.arange(len(ranks))
    values = segments.at(place_of_rank[best])
    if isinstance(aggregate, spec.Min | spec.Max):
        return values
    equal = (ranks == np.repeat(best, segments.counts)).astype(np.int64)
    return build_value_counts(values, segments.reduce(np.add, equal), segments.empty)


def _sum_decimals(segments: Segments, type_: pa.DataType) -> pa.Array:
    """Sum decimals exactly, or not at all."""
    totals: list[object] = []
    for place, values in enumerate(segments.split()):
        total = Decimal(0)
        for value in values.to_pylist():
            total = _WIDE.add(total, value)
        if len(total.as_tuple().digits) > _DIGITS:
            raise SumOverflow(place, f"the exact sum is {total}, which has more than {_DIGITS} digits")
        totals.append(total if len(values) else None)
    return from_plain(totals, type_)
