"""Arithmetic. Integers keep the wider operand's type and fail the row when they overflow.

`/` is true division and float64; `//` and `%` round towards minus infinity, as in Python; a zero divisor
fails the row, whatever the type. `+ - *` of float32 stay float32; all else on floats is float64.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import is_int32, method_text, operand_text
from penstock.expr.signature import FLOAT64, INT64, Operand, Signature, common_type, is_numeric, require_type
from penstock.expr.surface import Expr, MethodCall
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Arithmetic(Expr):
    """Two operands and an operator between them."""

    left: Expr
    right: Expr
    operator: ClassVar[str]

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Convert both operands, and the result, to the wider operand's type."""
        met = self._meet(operands)
        return Signature((met, met), met)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, with parentheses where Python needs them: `(a + b) * 2`."""
        left, right = _as_operands(self, self.left, self.right, parts)
        return f"{left} {self.operator} {right}"

    def _meet(self, operands: tuple[Operand, ...]) -> pa.DataType:
        for item in operands:
            require_type(self, item, is_numeric, "numbers", _hint(item))
        return common_type(self, operands, "cast one of them")


class Add(Arithmetic):
    """Left plus right."""

    operator = "+"
    precedence = 5


class Subtract(Arithmetic):
    """Left minus right; of two timestamps the microseconds between them, as int64."""

    operator = "-"
    precedence = 5

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Numbers as in every arithmetic; two timestamps give int64."""
        if not any(kind.is_timestamp(item.type) for item in operands):
            return Arithmetic.signature(self, operands)
        moment = common_type(self, operands, 'take a duration away with - "10 s" or - timedelta(seconds=10)')
        return Signature((moment, moment), INT64)


class Multiply(Arithmetic):
    """Left times right."""

    operator = "*"
    precedence = 6


class Divide(Arithmetic):
    """Left divided by right, as float64; a zero divisor fails the row."""

    operator = "/"
    precedence = 6

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require numbers, and make everything float64."""
        self._meet(operands)
        return Signature((FLOAT64, FLOAT64), FLOAT64)


class FloorDivide(Arithmetic):
    """The whole quotient, towards minus infinity; a zero divisor fails the row."""

    operator = "//"
    precedence = 6

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Integers keep the wider type; floats are float64."""
        return _floats_as_float64(self._meet(operands), 2)


class Modulo(Arithmetic):
    """What `//` leaves over, with the sign of the divisor; a zero divisor fails the row."""

    operator = "%"
    precedence = 6

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Integers keep the wider type; floats are float64."""
        return _floats_as_float64(self._meet(operands), 2)


class Power(Arithmetic):
    """Left to the power of right, as float64 and by IEEE 754: never fails, may be NaN or infinite."""

    operator = "**"
    precedence = 8

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require numbers, and make everything float64."""
        self._meet(operands)
        return Signature((FLOAT64, FLOAT64), FLOAT64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Negate(Expr):
    """The value with the other sign; the least integer has no such value and fails the row."""

    child: Expr
    precedence: ClassVar[int] = 7

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a number, and keep its type."""
        require_type(self, operands[0], is_numeric, "a number", _hint(operands[0]))
        return Signature((operands[0].type,), operands[0].type)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `-col("a")`."""
        return f"-{operand_text(self.child, self.child.standalone_text(parts[0]), self.precedence)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NumberFunction(MethodCall):
    """A function of one number, written as a method."""

    name: ClassVar[str]

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a number, and keep its type."""
        require_type(self, operands[0], is_numeric, "a number", _hint(operands[0]))
        return Signature((operands[0].type,), operands[0].type)

    def _call_text(self, *arguments: str) -> str:
        return f"{self.name}()"


class Absolute(NumberFunction):
    """The value without its sign; the least integer has none and fails the row."""

    name = "abs"


class Floor(NumberFunction):
    """The greatest whole number that is not greater."""

    name = "floor"


class Ceil(NumberFunction):
    """The least whole number that is not less."""

    name = "ceil"


class Sqrt(NumberFunction):
    """The square root as float64; NaN for a negative number, as IEEE 754 has it."""

    name = "sqrt"

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require numbers, and make everything float64."""
        NumberFunction.signature(self, operands)
        return Signature((FLOAT64,), FLOAT64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Round(MethodCall):
    """To the nearest number of `digits` decimals, halves to even: rint(x * 10**digits) / 10**digits."""

    digits: int

    def __post_init__(self) -> None:
        if not is_int32(self.digits) or not 0 <= self.digits <= 15:
            raise SchemaError(
                f"round to {self.digits!r} digits is not defined", hint="give 0 to 15 digits: .round(2)"
            )

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Keep integers; floats become float64, because few float32 have short decimals."""
        require_type(self, operands[0], is_numeric, "a number", _hint(operands[0]))
        return _floats_as_float64(operands[0].type, 1)

    def _call_text(self, *arguments: str) -> str:
        return f"round({self.digits or ''})"


def _floats_as_float64(met: pa.DataType, operands: int) -> Signature:
    type = FLOAT64 if kind.is_floating(met) else met
    return Signature((type,) * operands, type)


def _as_operands(node: Expr, left: Expr, right: Expr, parts: tuple[str, ...]) -> tuple[str, str]:
    """Return the text of both operands; operators group to the left, except that ** groups to the right."""
    to_the_right = isinstance(node, Power)
    return (
        operand_text(left, parts[0], node.precedence + to_the_right),
        operand_text(right, parts[1], node.precedence + (not to_the_right)),
    )


def _hint(wrong: Operand) -> str:
    if kind.is_string(wrong.type):
        return 'join text with concat(a, b); make a number of it with .cast("float64")'
    if kind.is_decimal(wrong.type):
        return f'decimals have no arithmetic yet; use {wrong.node}.cast("float64")'
    if kind.is_boolean(wrong.type):
        return f'count with {method_text(wrong.node, str(wrong.node), "cast")}("int64")'
    if kind.is_timestamp(wrong.type):
        return 'shift a time with + "10 s" or + timedelta(seconds=10); get a number with .dt.epoch("us")'
    if kind.is_date32(wrong.type):
        return 'get a number with .dt.epoch("d"), or shift it as .cast("timestamp") + "1 d"'
    return "use columns of numbers"
