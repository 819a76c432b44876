"""All the values, as a list."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Collect(Aggregate):
    """All values that are not null, in the order (time, seq)."""

    label: ClassVar[str] = "collect"
    ordered: ClassVar[bool] = True

    def type(self, up: Stream) -> pa.DataType:
        """A list of the value's type."""
        return pa.list_(self.value_type(up))


def collect(value: str | Expr) -> Collect:
    """A list of the values of a column or an expression, in order of time."""
    return Collect(aggregated(value))
