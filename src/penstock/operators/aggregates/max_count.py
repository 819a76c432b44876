"""The greatest value and how many rows have it."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import ORDERED, Aggregate, aggregated, is_ordered
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class MaxCount(Aggregate):
    """The greatest value and the number of rows that have it, as a struct; null when there are none."""

    label: ClassVar[str] = "max_count"

    def type(self, up: Stream) -> pa.DataType:
        """struct<value, count>."""
        found = self.value_type(up)
        if not is_ordered(found):
            raise self.refuse(found, ORDERED)
        return pa.struct([pa.field("value", found), pa.field("count", pa.int64())])


def max_count(value: str | Expr) -> MaxCount:
    """The largest value of a column or an expression, and how many rows have it."""
    return MaxCount(aggregated(value))
