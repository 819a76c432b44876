"""Aggregates computed from the rows of windows: those that no accumulator holds, of text, decimals and lists.

Sketches are computed from rows in count windows only, which have them anyway; other windows keep sketches
without rows.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expr.values import from_plain
from penstock.frozen import Frozen
from penstock.operators import aggregates as spec
from penstock.stages.rows.batch import Ints
from penstock.stages.rows.input import Form, WindowRows, encode_column
from penstock.stages.rows.order import rank_values
from penstock.stages.sketches import HllSketch, KllSketch, hash_coupons
from penstock.stages.window.accumulators import SumOverflow, build_value_counts

_WIDE = Context(prec=200)  # exact for any number of rows that fits in memory
_DIGITS = 38


class Segments(Frozen):
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
