"""The first value in order of time."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class First(Aggregate):
    """The first value that is not null, in the order (time, seq)."""

    label: ClassVar[str] = "first"
    ordered: ClassVar[bool] = True

    def type(self, up: Stream) -> pa.DataType:
        """The type of the value."""
        return self.value_type(up)


def first(value: str | Expr) -> First:
    """The first value of a column or an expression, in order of time."""
    return First(aggregated(value))
