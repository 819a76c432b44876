"""The aggregates over the values of a window, in order, with nulls left out.

Exact where numbers allow: sums, means and variances are computed with fractions and rounded once. The
sketches of other engines (`approx_distinct`, `quantile`) are exact here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from penstock.engines.values import clean, same, sort_key
from penstock.operators import aggregates as spec

Values = Sequence[Any]
Rule = Callable[[spec.Aggregate, Values], object]
_WIDE = Context(prec=200)  # exact for any number of rows that fits in memory
_DIGITS = 38


class OutOfRange(Exception):
    """A window's exact sum does not fit the type of the result."""


def aggregated(aggregate: spec.Aggregate, values: Values) -> object:
    """The plain result of any aggregate but folds and event_time_max, which are not of values."""
    return _RULES[type(aggregate)](aggregate, values)


def _sum(_: spec.Aggregate, values: Values) -> object:
    """Null of nothing; integers and decimals exactly, or not at all; floats rounded once."""
    if not values:
        return None
    if isinstance(values[0], float):
        return _float_sum(values)
    if isinstance(values[0], Decimal):
        return _decimal_sum(values)
    total = sum(values)
    if not -(2**63) <= total < 2**63:
        raise OutOfRange(f"the exact sum is {total}, outside int64")
    return total


def _float_sum(values: Values) -> float:
    return special if (special := _not_finite(values)) is not None else _rounded(_total(values))


def _decimal_sum(values: Values) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = _WIDE.add(total, value)
    if len(total.as_tuple().digits) > _DIGITS:
        raise OutOfRange(f"the exact sum is {total}, which has more than {_DIGITS} digits")
    return total


def _not_finite(values: Values) -> float | None:
    """What NaN and infinities make of a sum: NaN spreads, infinities of both signs cancel to NaN."""
    found = {value for value in values if isinstance(value, float) and math.isinf(value)}
    if len(found) == 2 or any(isinstance(value, float) and math.isnan(value) for value in values):
        return math.nan
    return found.pop() if found else None


def _total(values: Values) -> Fraction:
    """The exact sum of finite values."""
    return sum((Fraction(value) for value in values), Fraction(0))


def _rounded(exact: Fraction) -> float:
    """The nearest float; beyond the range, infinity."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _mean(_: spec.Aggregate, values: Values) -> object:
    """Null of nothing; the exact sum by the count, rounded once."""
    if not values:
        return None
    if (special := _not_finite(values)) is not None:
        return special
    return _rounded(_total(values) / len(values))


def _variance(aggregate: spec.Aggregate, values: Values) -> float | None:
    """The mean square distance from the mean; NaN as soon as one value is not finite."""
    assert isinstance(aggregate, spec.Var | spec.Std), "only these two are of distances"
    n = len(values) if aggregate.population else len(values) - 1
    if n < 1:
        return None
    if _not_finite(values) is not None:
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = _total(exact) / len(exact)
    return _rounded(_total([(value - mean) ** 2 for value in exact]) / n)


def _deviation(aggregate: spec.Aggregate, values: Values) -> float | None:
    """The root of the variance."""
    variance = _variance(aggregate, values)
    return None if variance is None else math.sqrt(variance)


def _least(_: spec.Aggregate, values: Values) -> object:
    """NaN is greater than every number; a zero is given as 0.0, whichever sign it had."""
    return clean(min(values, key=sort_key)) if values else None


def _greatest(_: spec.Aggregate, values: Values) -> object:
    """NaN is greater than every number; a zero is given as 0.0, whichever sign it had."""
    return clean(max(values, key=sort_key)) if values else None


def _counted(
    extreme: Callable[[spec.Aggregate, Values], object],
) -> Callable[[spec.Aggregate, Values], object]:
    """An extreme and how many values equal it, as a struct; null of nothing."""

    def rule(aggregate: spec.Aggregate, values: Values) -> object:
        found = extreme(aggregate, values)
        n_equal = sum(same(clean(value)) == same(found) for value in values)
        return {"value": found, "count": n_equal} if values else None

    return rule


def _quantile(aggregate: spec.Aggregate, values: Values) -> object:
    """The nearest rank: the least value that at least the share q of the values do not exceed."""
    assert isinstance(aggregate, spec.Quantile), "asked for quantiles only"
    if not values:
        return None
    # The share as it was typed: Fraction(0.1) itself is a little more than a tenth.
    rank = max(1, math.ceil(Fraction(repr(float(aggregate.q))) * len(values)))
    return float(sorted(values, key=sort_key)[rank - 1])


_RULES: dict[type[spec.Aggregate], Rule] = {
    spec.Count: lambda _, values: len(values),
    spec.Sum: _sum,
    spec.Mean: _mean,
    spec.Var: _variance,
    spec.Std: _deviation,
    spec.Min: _least,
    spec.Max: _greatest,
    spec.MinCount: _counted(_least),
    spec.MaxCount: _counted(_greatest),
    spec.First: lambda _, values: values[0] if values else None,
    spec.Last: lambda _, values: values[-1] if values else None,
    spec.Collect: lambda _, values: list(values),
    spec.ApproxDistinct: lambda _, values: len({same(clean(value)) for value in values}),
    spec.Quantile: _quantile,
}
