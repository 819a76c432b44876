"""Aggregates from the rows of windows, for what registers cannot hold: text, decimals, lists, sketches.

The rows of all leaving windows come at once, in order, window after window; nulls are dropped first.
Then each rule works on segments: the values of window i are values[bounds[i]:bounds[i + 1]].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import datasketches
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kind

from penstock.expr.types import from_plain, to_plain
from penstock.operators import aggregates as spec
from penstock.stages.batch import Ints
from penstock.stages.lowering import DoesNotFit, counted
from penstock.stages.row_order import ranked
from penstock.stages.store import Members

_WIDE = Context(prec=200)  # exact for any number of rows that fits in memory
_DIGITS = 38
LG_K = 12
K = 200


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
    """Each different value once into a sketch: most windows repeat few values often."""
    return pa.array([_distinct(part) for part in found.each()], type_)


def _distinct(part: pa.Array) -> object:
    if kind.is_floating(part.type):
        part = pc.add(part, 0.0)  # -0.0 becomes 0.0
    sketch = datasketches.hll_sketch(LG_K)
    for value in to_plain(part.unique()):
        sketch.update(value if isinstance(value, int | float | str) else repr(value))
    return round(sketch.get_estimate())


def _quantile(aggregate: spec.Quantile, found: Segments, type_: pa.DataType) -> pa.Array:
    return pa.array([_rank(part, aggregate.q) if len(part) else None for part in found.each()], type_)


def _rank(part: pa.Array, q: float) -> float:
    """The value at a share of the ranks; NaN is greater than every number, and sketches do not take it."""
    values = part.to_numpy(zero_copy_only=False).astype(np.float64)
    known = values[~np.isnan(values)]
    rank = max(1, math.ceil(q * len(values)))
    if rank > len(known):
        return math.nan
    sketch = datasketches.kll_doubles_sketch(K)
    sketch.update(known)
    return float(sketch.get_quantile(rank / len(known), True))


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
