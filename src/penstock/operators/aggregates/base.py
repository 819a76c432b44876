"""What an aggregate is: which values it takes, the type of its result, and whether row order matters."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.errors import SchemaError
from penstock.expr import Expr, col, type_of
from penstock.frozen import dataclass
from penstock.operators.stream import Stream

types = pa.types


def is_number(type_: pa.DataType) -> bool:
    """Return whether a type is an integer or a float."""
    return bool(types.is_integer(type_) or types.is_floating(type_))


def is_number_or_decimal(type_: pa.DataType) -> bool:
    """Return whether a type is an integer, a float or a decimal."""
    return is_number(type_) or bool(types.is_decimal(type_))


def is_ordered(type_: pa.DataType) -> bool:
    """Return whether the values of a type have an order that all engines agree on."""
    return bool(
        is_number_or_decimal(type_)
        or types.is_boolean(type_)
        or types.is_string(type_)
        or types.is_binary(type_)
        or types.is_date(type_)
        or types.is_timestamp(type_)
    )


ANYTHING = "values of any type"
NUMBERS = "integers and floats"
NUMBERS_AND_DECIMALS = "integers, floats and decimals"
ORDERED = "numbers, booleans, strings, binaries, dates, timestamps and decimals"
_ACCEPTS = {NUMBERS: is_number, NUMBERS_AND_DECIMALS: is_number_or_decimal, ORDERED: is_ordered}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of the rows of a window that can be computed from partial results.

    `value` is the expression that is aggregated; rows where it is null are skipped. It is None where
    the aggregate is of rows and not of values (`count()`, a fold over rows).
    """

    value: Expr | None

    label: ClassVar[str] = "aggregate"
    accepts: ClassVar[str] = ANYTHING
    """The types of `value` that can be aggregated so."""
    ordered: ClassVar[bool] = False
    """Whether the answer depends on the order of rows (then they are seen in order (time, seq))."""
    exact: ClassVar[bool] = True
    """Whether engines must agree to the last digit (sketches need not)."""

    def type(self, up: Stream) -> pa.DataType:
        """Return the type of the result; raise a SchemaError when the value's type is not accepted."""
        value_type = self.value_type(up)
        if self.accepts in _ACCEPTS and not _ACCEPTS[self.accepts](value_type):
            raise SchemaError(
                f"{self.label} cannot take {self.value} of type {value_type}",
                detail=f"{self.label} takes {self.accepts}",
                hint=f"give it something of such a type, or cast it: ({self.value}).cast(...)",
            )
        return self.result_type(value_type)

    def result_type(self, value_type: pa.DataType) -> pa.DataType:
        """Return the type of the result for values of an accepted type: theirs, unless overridden."""
        return value_type

    def value_type(self, up: Stream) -> pa.DataType:
        """Return the type of what is aggregated."""
        assert self.value is not None, "only row aggregates have no value, and they do not ask"
        return type_of(self.value, up.schema)

    def __str__(self) -> str:
        return f"{self.label}({self.value})" if self.value is not None else f"{self.label}()"


def as_value(value: str | Expr) -> Expr:
    """Return a column name or an expression as an expression."""
    return value if isinstance(value, Expr) else col(value)
