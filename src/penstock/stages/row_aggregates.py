"""Aggregates from the rows of windows, for what registers cannot hold: text, decimals, lists.

Sketches come here from count windows only; other windows keep them without rows (`sketch.py`).

The rows of all leaving windows come at once, in order, window after window; nulls are dropped first.
Then each rule works on segments: the values of window i are values[bounds[i]:bounds[i + 1]].
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expr.types import from_plain
from penstock.frozen import dataclass
from penstock.operators import aggregates as spec
from penstock.stages.arrays import Form, values_of
from penstock.stages.batch import Ints
from penstock.stages.coupons import coupons_of
from penstock.stages.distinct import Distinct
from penstock.stages.lowering import DoesNotFit, counted
from penstock.stages.ranks import Ranks
from penstock.stages.row_order import ranked
from penstock.stages.store import Members

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


def segments(members: Members, column: str) -> Segments:
    """What windows have of a column."""
    values = members.rows.column(column).take(pa.array(members.places))
    if values.null_count == 0:
        return Segments(values, members.offsets)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    before = np.concatenate([[0], np.cumsum(valid)])
    return Segments(values.drop_null(), before[members.offsets])


def from_rows(aggregate: spec.Aggregate, found: Segments, type_: pa.DataType) -> pa.Array:
    """The results of an aggregate of values, one per window."""
    return RULES[type(aggregate)](aggregate, found, type_)


Rule = Callable[[Any, Segments, pa.DataType], pa.Array]


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


def _extreme_counted(aggregate: spec.Aggregate, found: Segments, type_: pa.DataType) -> pa.Array:
    values, n_equal = _extremes(aggregate, found)
    return counted(values, n_equal, found.empty)


def _extremes(aggregate: spec.Aggregate, found: Segments) -> tuple[pa.Array, Ints]:
    """The least or greatest value of each window, by rank, and how many equal it."""
    least = isinstance(aggregate, spec.Min | spec.MinCount)
    ranks = ranked(found.values)
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
            raise DoesNotFit(place, f"the exact sum is {total}, which has more than {_DIGITS} digits")
        totals.append(total if len(part) else None)
    return from_plain(totals, type_)


def _mean(_: spec.Mean, found: Segments, type_: pa.DataType) -> pa.Array:
    """The exact mean of decimals, rounded once."""
    exact = [sum(map(Fraction, part.to_pylist()), Fraction(0)) for part in found.each()]
    means = [float(total / n) if n else None for total, n in zip(exact, found.counts.tolist(), strict=True)]
    return pa.array(means, type_)


def _approx_distinct(_: spec.ApproxDistinct, found: Segments, type_: pa.DataType) -> pa.Array:
    summaries = Distinct.added([None] * len(found.counts), found.windows, coupons_of(found.values))
    return pa.array([summary.estimate() for summary in summaries], type_)


def _quantile(aggregate: spec.Quantile, found: Segments, type_: pa.DataType) -> pa.Array:
    values = values_of(found.values, Form.FLOAT).data
    summaries = Ranks.added([None] * len(found.counts), found.windows, values)
    return pa.array([summary.quantile(aggregate.q) for summary in summaries], type_)


RULES: dict[type[spec.Aggregate], Rule] = {
    spec.Count: _count,
    spec.Collect: _collect,
    spec.First: _first,
    spec.Last: _last,
    spec.Min: _extreme,
    spec.Max: _extreme,
    spec.MinCount: _extreme_counted,
    spec.MaxCount: _extreme_counted,
    spec.Sum: _sum,
    spec.Mean: _mean,
    spec.ApproxDistinct: _approx_distinct,
    spec.Quantile: _quantile,
}
