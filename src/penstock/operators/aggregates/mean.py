"""The arithmetic mean."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated, is_number, types
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Mean(Aggregate):
    """The mean of the values; null when there are none."""

    label: ClassVar[str] = "mean"

    def type(self, up: Stream) -> pa.DataType:
        """Always float64."""
        found = self.value_type(up)
        if not (is_number(found) or types.is_decimal(found)):
            raise self.refuse(found, "integers, floats and decimals")
        return pa.float64()


def mean(value: str | Expr) -> Mean:
    """The mean of a column or an expression."""
    return Mean(aggregated(value))
