"""Casts, only those on which all engines can agree to the last bit; what does not fit fails the row.

- int to int: in range. int to float: the nearest float64 (float32 through it). bool to number: 1 and 0.
- float to int: towards zero; NaN and out of range fail. decimal to float64: the nearest.
- text to int: `[+-]?digits`, in range. text to float: decimal digits with `.` and `e`, or NaN, Infinity.
- text to bool: true and false in any case; back: true, false. int to text: decimal digits.
- text to date: YYYY-MM-DD. text to timestamp: a date, then `T` or a space, HH:MM, :SS, up to nine decimals
  (rounded down to six), then Z or ±HH:MM (UTC if missing); back in one fixed form, for the years 1 to 9999.
- date to timestamp: midnight; back: rounded down. A zone is a label: a cast to another keeps the instant.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.signature import Operand, Signature, is_numeric
from penstock.expr.surface import MethodCall
from penstock.expr.types import parse_type
from penstock.expr.values import type_name
from penstock.frozen import dataclass

Kind = Callable[[pa.DataType], bool]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(MethodCall):
    """The value as another type."""

    type: pa.DataType

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a type that has a rule for the cast."""
        source = operands[0].type
        if kind.is_null(source):
            return Signature((self.type,), self.type)
        if not can_cast(source, self.type):
            raise SchemaError(
                f"{self} cannot turn {type_name(source)} into {type_name(self.type)}",
                detail="only casts on which all engines agree exist",
                hint=_hint(source, self.type),
            )
        return Signature((source,), self.type)

    def _call_text(self, *arguments: str) -> str:
        return f'cast("{type_name(self.type)}")'


def can_cast(source: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether there is a rule from one type to the other."""
    if source == wanted:
        return True
    if kind.is_decimal128(source) and kind.is_decimal128(wanted):
        whole = wanted.precision - wanted.scale >= source.precision - source.scale
        return bool(wanted.scale >= source.scale and whole)
    return any(left(source) and right(wanted) for left, right in _RULES)


_RULES: tuple[tuple[Kind, Kind], ...] = (
    (is_numeric, is_numeric),
    (kind.is_boolean, is_numeric),
    (kind.is_boolean, kind.is_string),
    (kind.is_signed_integer, kind.is_string),
    (kind.is_timestamp, kind.is_string),
    (kind.is_date32, kind.is_string),
    (kind.is_string, is_numeric),
    (kind.is_string, kind.is_boolean),
    (kind.is_string, kind.is_timestamp),
    (kind.is_string, kind.is_date32),
    (kind.is_string, kind.is_binary),
    (kind.is_date32, kind.is_timestamp),
    (kind.is_timestamp, kind.is_date32),
    (kind.is_timestamp, kind.is_timestamp),
    (kind.is_decimal128, kind.is_float64),
)


def cast_target(type: pa.DataType | str) -> pa.DataType:
    """Return the type to cast to, which may be given by its name."""
    return parse_type(type)


def _hint(source: pa.DataType, wanted: pa.DataType) -> str:
    if kind.is_floating(source) and kind.is_string(wanted):
        return "engines print floats differently; round and cast to int64 first, or print in a row function"
    if kind.is_boolean(wanted):
        return "ask a question instead, for example != 0"
    if is_numeric(source) and (kind.is_timestamp(wanted) or kind.is_date32(wanted)):
        return 'say the unit: from_epoch(col("t"), "ms")'
    if (kind.is_timestamp(source) or kind.is_date32(source)) and is_numeric(wanted):
        return 'say the unit: .dt.epoch("us"), or .dt.epoch("d") for a date'
    if kind.is_decimal(source):
        return 'go through .cast("float64")'
    return f"from {type_name(source)} one can cast to {', '.join(_targets(source)) or 'nothing else'}"


def _targets(source: pa.DataType) -> list[str]:
    names = ("bool", "int64", "float64", "string", "binary", "date", "timestamp")
    return [name for name in names if can_cast(source, parse_type(name))]
