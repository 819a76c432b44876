"""The greatest value."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import ORDERED, Aggregate, aggregated, is_ordered
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Max(Aggregate):
    """The greatest value; null when there are none. NaN is greater than every number."""

    label: ClassVar[str] = "max"

    def type(self, up: Stream) -> pa.DataType:
        """The type of the value."""
        found = self.value_type(up)
        if not is_ordered(found):
            raise self.refuse(found, ORDERED)
        return found


def max(value: str | Expr) -> Max:
    """The largest value of a column or an expression."""
    return Max(aggregated(value))
