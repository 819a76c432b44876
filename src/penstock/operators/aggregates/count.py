"""How many rows, or how many values that are not null."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """Rows, or values that are not null."""

    label: ClassVar[str] = "count"

    def type(self, up: Stream) -> pa.DataType:
        """Always int64."""
        if self.value is not None:
            self.value_type(up)
        return pa.int64()


def count(value: str | Expr | None = None) -> Count:
    """Count rows; with a column, count its values that are not null."""
    return Count(None if value is None else aggregated(value))
