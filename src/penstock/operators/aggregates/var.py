"""The variance, of a sample or of the whole population."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated, is_number
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Var(Aggregate):
    """The variance; null with no values, and with one value of a sample."""

    population: bool = False

    label: ClassVar[str] = "var"

    def type(self, up: Stream) -> pa.DataType:
        """Always float64."""
        found = self.value_type(up)
        if not is_number(found):
            raise self.refuse(found, "integers and floats")
        return pa.float64()


def var(value: str | Expr, *, population: bool = False) -> Var:
    """The variance of a column or an expression, of a sample unless `population=True`."""
    return Var(aggregated(value), population)
