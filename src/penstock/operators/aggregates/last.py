"""The last value in order of time."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Last(Aggregate):
    """The last value that is not null, in the order (time, seq)."""

    label: ClassVar[str] = "last"
    ordered: ClassVar[bool] = True

    def type(self, up: Stream) -> pa.DataType:
        """The type of the value."""
        return self.value_type(up)


def last(value: str | Expr) -> Last:
    """The last value of a column or an expression, in order of time."""
    return Last(aggregated(value))
