"""About how many different values."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import ORDERED, Aggregate, aggregated, is_ordered
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
