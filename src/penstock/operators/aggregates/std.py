"""The standard deviation, of a sample or of the whole population."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated, is_number
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Std(Aggregate):
    """The standard deviation; null with no values, and with one value of a sample."""

    population: bool = False

    label: ClassVar[str] = "std"

    def type(self, up: Stream) -> pa.DataType:
        """Always float64."""
        found = self.value_type(up)
        if not is_number(found):
            raise self.refuse(found, "integers and floats")
        return pa.float64()


def std(value: str | Expr, *, population: bool = False) -> Std:
    """The standard deviation of a column or an expression, of a sample unless `population=True`."""
    return Std(aggregated(value), population)
