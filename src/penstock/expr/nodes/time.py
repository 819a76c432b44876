"""Dates and timestamps, always in UTC: a zone says how a time was written, not what its hour is.

The calendar is the proleptic Gregorian one over the whole range of the type, year 0 and negative years
included. All parts and counts are int64.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError, TimeError
from penstock.expr.node import operand_text
from penstock.expr.nodes.columns import to_expr
from penstock.expr.signature import INT64, Operand, Signature, require_type
from penstock.expr.surface import Expr, MethodCall
from penstock.frozen import dataclass
from penstock.timing.units import MICROS, micros, spell

UNITS = {"d": MICROS["d"], "s": MICROS["s"], "ms": MICROS["ms"], "us": MICROS["us"]}
DATE_PARTS = ("year", "month", "day", "weekday")
CLOCK_PARTS = ("hour", "minute", "second")
_HINT = 'make a time with .cast("timestamp") from text, or with from_epoch(col("t"), "ms") from a number'


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TimePart(MethodCall):
    """One part of a date or timestamp: year, month, day, weekday (Monday is 0), hour, minute, second."""

    part: str

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a date, or a timestamp for parts of the clock; the result is int64."""
        test, wanted = (
            (_is_time, "a date or timestamp") if self.part in DATE_PARTS else (_is_moment, "a timestamp")
        )
        require_type(self, operands[0], test, wanted, _HINT)
        return Signature((operands[0].type,), INT64)

    def _call_text(self, *arguments: str) -> str:
        return f"dt.{self.part}()"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Epoch(MethodCall):
    """Whole units since 1970, rounded towards minus infinity; of a date only days."""

    unit: str

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a timestamp, or a date with unit "d"; the result is int64."""
        hint = f'use .dt.epoch("d"), or .cast("timestamp").dt.epoch("{self.unit}")'
        if kind.is_date32(operands[0].type) and self.unit != "d":
            raise SchemaError(f"{self} needs a timestamp, and {self.child} is a date", hint=hint)
        require_type(self, operands[0], _is_time, "a date or timestamp", _HINT)
        return Signature((operands[0].type,), INT64)

    def _call_text(self, *arguments: str) -> str:
        return f'dt.epoch("{self.unit}")'


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FromEpoch(Expr):
    """The timestamp, without zone, that many units after 1970; out of range fails the row."""

    child: Expr
    unit: str

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require an integer; the result is timestamp[us]."""
        require_type(self, operands[0], kind.is_signed_integer, "whole numbers", 'cast it: .cast("int64")')
        return Signature((INT64,), pa.timestamp("us"))

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `from_epoch(col("t"), "ms")`."""
        return f'from_epoch({parts[0]}, "{self.unit}")'


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Truncate(MethodCall):
    """The timestamp rounded down to a multiple of a duration since 1970."""

    micros: int

    def __post_init__(self) -> None:
        _check_length(self.micros)

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a timestamp, and keep its type."""
        require_type(self, operands[0], _is_moment, "a timestamp", _HINT)
        return Signature((operands[0].type,), operands[0].type)

    def _call_text(self, *arguments: str) -> str:
        return f'dt.truncate("{spell(self.micros)}")'


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shift(Expr):
    """The timestamp, a duration later (or earlier); out of range fails the row."""

    child: Expr
    micros: int
    precedence: ClassVar[int] = 5

    def __post_init__(self) -> None:
        _check_length(self.micros)

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a timestamp, and keep its type."""
        hint = "join text with concat(a, b)" if kind.is_string(operands[0].type) else _HINT
        require_type(self, operands[0], _is_moment, "a timestamp", hint)
        return Signature((operands[0].type,), operands[0].type)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `col("t") + "10 s"`."""
        sign = "-" if self.micros < 0 else "+"
        return f'{operand_text(self.child, parts[0], self.precedence)} {sign} "{spell(abs(self.micros))}"'


@dataclass(frozen=True, slots=True)
class Times:
    """The functions of dates and timestamps: what `.dt` offers."""

    of: Expr

    def year(self) -> Expr:
        """Return the year."""
        return TimePart(self.of, "year")

    def month(self) -> Expr:
        """Return the month, 1 to 12."""
        return TimePart(self.of, "month")

    def day(self) -> Expr:
        """Return the day of the month, 1 to 31."""
        return TimePart(self.of, "day")

    def weekday(self) -> Expr:
        """Return the day of the week, Monday is 0."""
        return TimePart(self.of, "weekday")

    def hour(self) -> Expr:
        """Return the hour, 0 to 23."""
        return TimePart(self.of, "hour")

    def minute(self) -> Expr:
        """Return the minute, 0 to 59."""
        return TimePart(self.of, "minute")

    def second(self) -> Expr:
        """Return the second, 0 to 59."""
        return TimePart(self.of, "second")

    def epoch(self, unit: str) -> Expr:
        """Whole units ("d", "s", "ms", "us") since 1970, rounded down."""
        return Epoch(self.of, unit)

    def truncate(self, duration: str | timedelta) -> Expr:
        """Rounded down to a multiple of the duration since 1970."""
        length = micros(duration, subject="truncate to")
        if length <= 0:
            raise TimeError(
                f"truncate to {duration!r} is not a positive duration", hint='.dt.truncate("10 s")'
            )
        return Truncate(self.of, length)


def from_epoch(count: object, unit: str) -> Expr:
    """Return the timestamp that many units ("d", "s", "ms", "us") after 1970.

    >>> from penstock.expr import col
    >>> from_epoch(col("t"), "ms")
    from_epoch(col("t"), "ms")
    """
    return FromEpoch(to_expr(count), unit)


def shift_micros(duration: str | timedelta) -> int:
    """Return the duration added by + or -; text that is none was probably meant to be joined."""
    try:
        return micros(duration)
    except TimeError as problem:
        problem.hint = f"to join text use concat(a, {duration!r}); {problem.hint}"
        raise


def _check_unit(unit: str) -> None:
    if unit not in UNITS:
        raise TimeError(f"{unit!r} is not a unit of time here", hint='use "d", "s", "ms" or "us"')


def _check_length(length: int) -> None:
    if abs(length) >= 1 << 63:
        raise TimeError(f"{spell(abs(length))} is longer than all of time", hint='use one such as "10 s"')


def _is_time(type: pa.DataType) -> bool:
    return bool(kind.is_date32(type) or kind.is_timestamp(type))


def _is_moment(type: pa.DataType) -> bool:
    return bool(kind.is_timestamp(type))
