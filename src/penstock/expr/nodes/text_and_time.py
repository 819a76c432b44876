"""Text, dates and timestamps.

Text is read by code points. `lower` and `upper` change the letters A to Z only, because the Unicode tables of
the engines differ; patterns are literal text, because their regular expressions do. `strip` takes ASCII white
space.

Times are always in UTC: a zone says how a time was written, not what its hour is. The calendar is the
proleptic Gregorian one over the whole range of the type, year 0 and negative years included. All parts and
counts are int64.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError, TimeError
from penstock.expr.node import Expr, is_int32, method_text, operand_text
from penstock.expr.nodes.forms import FunctionCall, MethodCall, quote, to_expr
from penstock.expr.program import BOOL, INT64, STRING, Instruction, Requirement, Signature
from penstock.frozen import Frozen
from penstock.timing.units import MICROS, micros, spell

WHITE_SPACE = " \t\n\r\x0b\x0c"
UNITS = {"d": MICROS["d"], "s": MICROS["s"], "ms": MICROS["ms"], "us": MICROS["us"]}
DAY = UNITS["d"]
CLOCK_PARTS = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}
"""The length of each part of the clock in microseconds, and after how many of them it is 0 again."""
_TEXT = Requirement(kind.is_string, "text", 'make text of it with .cast("string")')
_TIME_HINT = 'make a time with .cast("timestamp") from text, or with from_epoch(col("t"), "ms") from a number'


class StringFunction(MethodCall, accessor="str.", requirement=_TEXT, operand_type=STRING):
    """A function of one text, written in `.str`."""


class Lower(StringFunction, method="lower"):
    """A to Z become a to z."""


class Upper(StringFunction, method="upper"):
    """The letters a to z become A to Z."""


class Length(StringFunction, method="length", result_type=INT64):
    """The number of code points."""


class PatternFunction(StringFunction):
    """A function of one text and a literal pattern."""

    pattern: str
    may_be_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise SchemaError(
                f"{self.method} needs plain text, not {self.pattern!r}", hint=f'.str.{self.method}("abc")'
            )
        if not self.pattern and not self.may_be_empty:
            raise SchemaError(f"{self.method} cannot look for empty text", hint=f'.str.{self.method}(",", …)')


class Contains(PatternFunction, method="contains", result_type=BOOL):
    """Whether the pattern occurs."""


class StartsWith(PatternFunction, method="starts_with", result_type=BOOL):
    """Whether the text begins with the pattern."""


class EndsWith(PatternFunction, method="ends_with", result_type=BOOL):
    """Whether the text ends with the pattern."""


class Split(PatternFunction, method="split", result_type=pa.list_(STRING), may_be_empty=False):
    """The list of texts between the separators."""


class Replace(PatternFunction, method="replace", may_be_empty=False):
    """Every occurrence of the pattern, from left to right, replaced."""

    replacement: str

    def __post_init__(self) -> None:
        PatternFunction.__post_init__(self)
        if not isinstance(self.replacement, str):
            raise SchemaError(
                f"replace needs plain text, not {self.replacement!r}", hint='.str.replace("a", "b")'
            )


class Strip(StringFunction, method="strip"):
    """The text without the given characters at both ends."""

    characters: str

    def __post_init__(self) -> None:
        if not isinstance(self.characters, str) or not self.characters:
            raise SchemaError(f"strip needs characters, not {self.characters!r}", hint='.str.strip(" \\t")')

    def arguments(self, *texts: str) -> str:
        """Return the characters, unless they are white space."""
        return "" if self.characters == WHITE_SPACE else quote(self.characters)


class Slice(StringFunction, method="slice"):
    """`length` code points (or all) from `start`, which counts from the end when negative."""

    start: int
    length: int | None

    def __post_init__(self) -> None:
        count = 0 if self.length is None else self.length
        if not (is_int32(self.start) and is_int32(count)):
            raise SchemaError(
                f"slice needs plain whole numbers, not {self.start!r}, {self.length!r}",
                hint=".str.slice(0, 3)",
            )
        if count < 0:
            raise SchemaError(
                f"slice cannot take {self.length} characters", hint=".str.slice(-3) takes the last three"
            )


class Concat(FunctionCall, function="concat", requirement=_TEXT, operand_type=STRING):
    """All texts, one after the other; null if one is null."""


def concat(*expressions: object) -> Expr:
    """Join texts into one; null if one of them is null.

    >>> from penstock.expr import col
    >>> concat(col("first"), " ", col("last"))
    concat(col("first"), " ", col("last"))
    """
    if not expressions:
        raise SchemaError("concat has nothing to join", hint='concat(col("a"), "-", col("b"))')
    return Concat(tuple(to_expr(value) for value in expressions))


class Strings(Frozen):
    """The functions of text: what `.str` offers."""

    of: Expr

    def lower(self) -> Expr:
        """Return the text with A to Z as a to z; other letters stay."""
        return Lower(self.of)

    def upper(self) -> Expr:
        """Return the text with a to z as A to Z; other letters stay."""
        return Upper(self.of)

    def length(self) -> Expr:
        """Return the number of code points."""
        return Length(self.of)

    def contains(self, pattern: str) -> Expr:
        """Return whether the literal text occurs."""
        return Contains(self.of, pattern)

    def starts_with(self, pattern: str) -> Expr:
        """Return whether it begins with the literal text."""
        return StartsWith(self.of, pattern)

    def ends_with(self, pattern: str) -> Expr:
        """Return whether it ends with the literal text."""
        return EndsWith(self.of, pattern)

    def slice(self, start: int, length: int | None = None) -> Expr:
        """Return `length` code points from `start`, which counts from the end when negative."""
        return Slice(self.of, start, length)

    def strip(self, characters: str = WHITE_SPACE) -> Expr:
        """Return the text without these characters at both ends."""
        return Strip(self.of, characters)

    def replace(self, pattern: str, replacement: str) -> Expr:
        """Return the text with every occurrence of the literal text replaced."""
        return Replace(self.of, pattern, replacement)

    def split(self, separator: str) -> Expr:
        """Return the list of texts between the separators."""
        return Split(self.of, separator)


_TIME = Requirement(
    lambda type: kind.is_date32(type) or kind.is_timestamp(type), "a date or timestamp", _TIME_HINT
)
_MOMENT = Requirement(kind.is_timestamp, "a timestamp", _TIME_HINT)


class TimePart(MethodCall):
    """One part of a date or timestamp: year, month, day, weekday (Monday is 0), hour, minute, second."""

    part: str

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Require a date, or a timestamp for parts of the clock; the result is int64."""
        (_MOMENT if self.part in CLOCK_PARTS else _TIME).check(self, operands)
        return Signature((operands[0].type,), INT64)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `col("t").dt.year()`."""
        return method_text(self.child, parts[0], f"dt.{self.part}()")


class Epoch(MethodCall, accessor="dt.", method="epoch"):
    """Whole units since 1970, rounded towards minus infinity; of a date only days."""

    unit: str

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Require a timestamp, or a date with unit "d"; the result is int64."""
        hint = f'use .dt.epoch("d"), or .cast("timestamp").dt.epoch("{self.unit}")'
        if kind.is_date32(operands[0].type) and self.unit != "d":
            raise SchemaError(f"{self} needs a timestamp, and {self.child} is a date", hint=hint)
        _TIME.check(self, operands)
        return Signature((operands[0].type,), INT64)


class FromEpoch(Expr):
    """The timestamp, without zone, that many units after 1970; out of range fails the row."""

    child: Expr
    unit: str
    requirement = Requirement(kind.is_signed_integer, "whole numbers", 'cast it: .cast("int64")')
    operand_type = INT64
    result_type = pa.timestamp("us")

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `from_epoch(col("t"), "ms")`."""
        return f'from_epoch({parts[0]}, "{self.unit}")'


class Truncate(MethodCall, accessor="dt.", method="truncate", requirement=_MOMENT):
    """The timestamp rounded down to a multiple of a duration since 1970."""

    micros: int

    def __post_init__(self) -> None:
        _check_length(self.micros)

    def arguments(self, *texts: str) -> str:
        """Return the duration in words."""
        return f'"{spell(self.micros)}"'


def _shift_hint(wrong: Instruction) -> str:
    return "join text with concat(a, b)" if kind.is_string(wrong.type) else _TIME_HINT


class Shift(Expr):
    """The timestamp, a duration later (or earlier); out of range fails the row."""

    child: Expr
    micros: int
    precedence = 5
    requirement = Requirement(kind.is_timestamp, "a timestamp", _shift_hint)

    def __post_init__(self) -> None:
        _check_length(self.micros)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `col("t") + "10 s"`."""
        sign = "-" if self.micros < 0 else "+"
        return f'{operand_text(self.child, parts[0], self.precedence)} {sign} "{spell(abs(self.micros))}"'


class Times(Frozen):
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
        """Return whole units ("d", "s", "ms", "us") since 1970, rounded down."""
        return Epoch(self.of, unit)

    def truncate(self, duration: str | timedelta) -> Expr:
        """Round down to a multiple of the duration since 1970."""
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
