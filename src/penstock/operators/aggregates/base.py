"""What an aggregate is: which columns it reads, the type it gives, and whether row order matters."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.errors import SchemaError
from penstock.expr import Expr, col, type_of
from penstock.frozen import dataclass
from penstock.operators.stream import Stream

types = pa.types


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of the rows of a window that can be put together from parts.

    `value` is the expression that is aggregated; rows where it is null are skipped. It is None where
    the aggregate is of rows and not of values (`count()`, a fold over rows).
    """

    value: Expr | None

    label: ClassVar[str] = "aggregate"
    ordered: ClassVar[bool] = False
    """Whether the answer depends on the order of rows (then they are seen in order (time, seq))."""
    exact: ClassVar[bool] = True
    """Whether engines must agree to the last digit (sketches need not)."""

    def type(self, up: Stream) -> pa.DataType:
        """The type of the result; SchemaError when the value's type cannot be aggregated so."""
        raise NotImplementedError

    def value_type(self, up: Stream) -> pa.DataType:
        """The type of what is aggregated."""
        assert self.value is not None, "only row aggregates have no value, and they do not ask"
        return type_of(self.value, up.schema)

    def refuse(self, found: pa.DataType, accepts: str) -> SchemaError:
        """The error for a type that this aggregate cannot take."""
        return SchemaError(
            f"{self.label} cannot take {self.value} of type {found}",
            detail=f"{self.label} takes {accepts}",
            hint=f"give it something of such a type, or cast it: ({self.value}).cast(...)",
        )

    def __str__(self) -> str:
        return f"{self.label}({self.value})" if self.value is not None else f"{self.label}()"


def aggregated(value: str | Expr) -> Expr:
    """A column name or an expression, as an expression."""
    return value if isinstance(value, Expr) else col(value)


def is_number(found: pa.DataType) -> bool:
    """Integers and floats."""
    return bool(types.is_integer(found) or types.is_floating(found))


def is_ordered(found: pa.DataType) -> bool:
    """Types whose values have an order that all engines agree on."""
    return bool(
        is_number(found)
        or types.is_boolean(found)
        or types.is_string(found)
        or types.is_binary(found)
        or types.is_date(found)
        or types.is_timestamp(found)
        or types.is_decimal(found)
    )


ORDERED = "numbers, booleans, strings, binaries, dates, timestamps and decimals"
