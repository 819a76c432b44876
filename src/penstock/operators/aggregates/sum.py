"""The sum: exact for integers, in 64-bit floats otherwise."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated, types
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """The sum of the values; null when there are none.

    An integer sum is exact: the run fails only if the window's own sum leaves int64, never because a
    part of it did.
    """

    label: ClassVar[str] = "sum"

    def type(self, up: Stream) -> pa.DataType:
        """int64 for integers, float64 for floats, the widest decimal of the same scale."""
        found = self.value_type(up)
        if types.is_integer(found):
            return pa.int64()
        if types.is_floating(found):
            return pa.float64()
        if types.is_decimal(found):
            return pa.decimal128(38, found.scale)
        raise self.refuse(found, "integers, floats and decimals")


def sum(value: str | Expr) -> Sum:
    """Add up a column or an expression."""
    return Sum(aggregated(value))
