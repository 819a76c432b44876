"""About how many different values."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.caller import find_call_site
from penstock.errors import SchemaError
from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import ORDERED, Aggregate, aggregated, is_number, is_ordered
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class ApproxDistinct(Aggregate):
    """An estimate of the number of different values, by a mergeable sketch (HLL, lg_k 12)."""

    label: ClassVar[str] = "approx_distinct"
    exact: ClassVar[bool] = False

    def type(self, up: Stream) -> pa.DataType:
        """Always int64."""
        found = self.value_type(up)
        if not is_ordered(found):
            raise self.refuse(found, ORDERED)
        return pa.int64()


def approx_distinct(value: str | Expr) -> ApproxDistinct:
    """About how many different values a column or an expression has."""
    return ApproxDistinct(aggregated(value))


# A value that a given share of the values do not exceed.


@dataclass(frozen=True, slots=True)
class Quantile(Aggregate):
    """An estimate of a quantile, by a mergeable sketch (KLL, k 200), judged by its rank error."""

    q: float = 0.5

    label: ClassVar[str] = "quantile"
    exact: ClassVar[bool] = False

    def type(self, up: Stream) -> pa.DataType:
        """Always float64."""
        found = self.value_type(up)
        if not is_number(found):
            raise self.refuse(found, "integers and floats")
        return pa.float64()


def quantile(value: str | Expr, q: float) -> Quantile:
    """About the value below which the share `q` of a column or an expression lies; 0.5 is the median."""
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise SchemaError(
            f"quantile {q!r} is not a share",
            where=find_call_site(),
            hint="use a number from 0 to 1: 0.5 is the median",
        )
    return Quantile(aggregated(value), q)
