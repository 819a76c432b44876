"""Text, by code points, and the lists of text that `split` makes.

`lower` and `upper` change the letters A to Z only, because the Unicode tables of the engines differ;
patterns are literal text, because their regular expressions do. `strip` takes ASCII white space.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import is_int32, is_nonempty_text
from penstock.expr.nodes.columns import quote, to_expr
from penstock.expr.signature import BOOL, INT64, STRING, Operand, Signature, require_type
from penstock.expr.surface import Expr, MethodCall
from penstock.frozen import dataclass

WHITE_SPACE = " \t\n\r\x0b\x0c"
_HINT = 'make text of it with .cast("string")'


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StringFunction(MethodCall):
    """A function of one text, written in `.str`."""

    name: ClassVar[str]
    result: ClassVar[pa.DataType] = STRING

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Text in, the function's type out."""
        require_type(self, operands[0], kind.is_string, "text", _HINT)
        return Signature((STRING,), self.result)

    def arguments(self) -> str:
        """Return what stands between the parentheses."""
        return ""

    def _call_text(self, *arguments: str) -> str:
        return f"str.{self.name}({self.arguments()})"


class Lower(StringFunction):
    """A to Z become a to z."""

    name = "lower"


class Upper(StringFunction):
    """The letters a to z become A to Z."""

    name = "upper"


class Length(StringFunction):
    """The number of code points."""

    name = "length"
    result = INT64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PatternFunction(StringFunction):
    """A function of one text and a literal pattern."""

    pattern: str
    may_be_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise SchemaError(
                f"{self.name} needs plain text, not {self.pattern!r}", hint=f'.str.{self.name}("abc")'
            )
        if not self.pattern and not self.may_be_empty:
            raise SchemaError(f"{self.name} cannot look for empty text", hint=f'.str.{self.name}(",", …)')

    def arguments(self) -> str:
        """Return the pattern."""
        return quote(self.pattern)


class Contains(PatternFunction):
    """Whether the pattern occurs."""

    name = "contains"
    result = BOOL


class StartsWith(PatternFunction):
    """Whether the text begins with the pattern."""

    name = "starts_with"
    result = BOOL


class EndsWith(PatternFunction):
    """Whether the text ends with the pattern."""

    name = "ends_with"
    result = BOOL


class Split(PatternFunction):
    """The list of texts between the separators."""

    name = "split"
    result = pa.list_(STRING)
    may_be_empty = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replace(PatternFunction):
    """Every occurrence of the pattern, from left to right, replaced."""

    replacement: str
    name: ClassVar[str] = "replace"
    may_be_empty: ClassVar[bool] = False

    def __post_init__(self) -> None:
        PatternFunction.__post_init__(self)
        if not isinstance(self.replacement, str):
            raise SchemaError(
                f"replace needs plain text, not {self.replacement!r}", hint='.str.replace("a", "b")'
            )

    def arguments(self) -> str:
        """Return the pattern and its replacement."""
        return f"{quote(self.pattern)}, {quote(self.replacement)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Strip(StringFunction):
    """The text without the given characters at both ends."""

    characters: str
    name: ClassVar[str] = "strip"

    def __post_init__(self) -> None:
        if not is_nonempty_text(self.characters):
            raise SchemaError(f"strip needs characters, not {self.characters!r}", hint='.str.strip(" \\t")')

    def arguments(self) -> str:
        """Return the characters, unless they are white space."""
        return "" if self.characters == WHITE_SPACE else quote(self.characters)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Slice(StringFunction):
    """`length` code points (or all) from `start`, which counts from the end when negative."""

    start: int
    length: int | None
    name: ClassVar[str] = "slice"

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

    def arguments(self) -> str:
        """Start and, if given, length."""
        return f"{self.start}" if self.length is None else f"{self.start}, {self.length}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Concat(Expr):
    """All texts, one after the other; null if one is null."""

    parts: tuple[Expr, ...]

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Text in, text out."""
        for item in operands:
            require_type(self, item, kind.is_string, "text", _HINT)
        return Signature((STRING,) * len(operands), STRING)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `concat(col("a"), "-", col("b"))`."""
        return f"concat({', '.join(parts)})"


def concat(*expressions: object) -> Expr:
    """Texts joined into one; null if one of them is null.

    >>> from penstock.expr import col
    >>> concat(col("first"), " ", col("last"))
    concat(col("first"), " ", col("last"))
    """
    if not expressions:
        raise SchemaError("concat has nothing to join", hint='concat(col("a"), "-", col("b"))')
    return Concat(tuple(to_expr(value) for value in expressions))


@dataclass(frozen=True, slots=True)
class Strings:
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
        """`length` code points from `start`, which counts from the end when negative."""
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
