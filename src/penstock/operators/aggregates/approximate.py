"""Estimates by mergeable sketches: the number of different values, and quantiles."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.caller import find_call_site
from penstock.errors import SchemaError
from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.basic import NUMBERS, ORDERED, Aggregate, as_value


@dataclass(frozen=True, slots=True)
class ApproxDistinct(Aggregate):
    """An estimate of the number of different values, by a mergeable sketch (HLL, lg_k 12)."""

    label: ClassVar[str] = "approx_distinct"
    accepts: ClassVar[str] = ORDERED
    exact: ClassVar[bool] = False

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return int64."""
        return pa.int64()


def approx_distinct(value: str | Expr) -> ApproxDistinct:
    """Estimate how many different values a column or an expression has."""
    return ApproxDistinct(as_value(value))


@dataclass(frozen=True, slots=True)
class Quantile(Aggregate):
    """An estimate of a quantile, by a mergeable sketch (KLL, k 200), judged by its rank error."""

    q: float = 0.5

    label: ClassVar[str] = "quantile"
    accepts: ClassVar[str] = NUMBERS
    exact: ClassVar[bool] = False

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return float64."""
        return pa.float64()


def quantile(value: str | Expr, q: float) -> Quantile:
    """Estimate the value below which the share `q` of a column or an expression lies; 0.5 is the median."""
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise SchemaError(
            f"quantile {q!r} is not a share",
            where=find_call_site(),
            hint="use a number from 0 to 1: 0.5 is the median",
        )
    return Quantile(as_value(value), q)
