"""Arithmetic and the hash.

Integers keep the wider operand's type and fail the row when they overflow. `/` is true division and float64;
`//` and `%` round towards minus infinity, as in Python; a zero divisor fails the row, whatever the type.
`+ - *` of float32 stay float32; all else on floats is float64.

The hash equals Spark's `xxhash64`: XXH64 over little-endian bytes, seed 42. The hash so far is the seed of
the next value; a null leaves it unchanged. int8 to int32, bool and date are hashed as four bytes, int64 and
timestamp as eight, floats by their IEEE bits (-0.0 as 0.0, one NaN only), text and binary by their bytes.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import Expr, InputHandling, is_int32, method_text
from penstock.expr.nodes.forms import BinaryOperator, FunctionCall, MethodCall, UnaryOperator, to_expr
from penstock.expr.program import FLOAT64, INT64, Instruction, Requirement, Signature, common_type, is_numeric

SEED = 42


def _hint(wrong: Instruction) -> str:
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


_NUMBER = Requirement(is_numeric, "a number", _hint)


class Arithmetic(BinaryOperator, requirement=Requirement(is_numeric, "numbers", _hint)):
    """Two numbers, which meet on the wider type, and an operator between them."""

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Convert both operands, and the result, to the wider operand's type, or to the one of the node."""
        self.requirement.check(self, operands)
        met = self.widen(common_type(self, operands, "cast one of them"))
        return Signature((met, met), met)


class Add(Arithmetic, operator="+", precedence=5):
    """Left plus right."""


class Subtract(Arithmetic, operator="-", precedence=5):
    """Left minus right; of two timestamps the microseconds between them, as int64."""

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Numbers as in every arithmetic; two timestamps give int64."""
        if not any(kind.is_timestamp(item.type) for item in operands):
            return Arithmetic.signature(self, operands)
        moment = common_type(self, operands, 'take a duration away with - "10 s" or - timedelta(seconds=10)')
        return Signature((moment, moment), INT64)


class Multiply(Arithmetic, operator="*", precedence=6):
    """Left times right."""


class Divide(Arithmetic, operator="/", precedence=6, operand_type=FLOAT64):
    """Left divided by right, as float64; a zero divisor fails the row."""


class FloorDivide(Arithmetic, operator="//", precedence=6, widens_floats=True):
    """The whole quotient, towards minus infinity; a zero divisor fails the row."""


class Modulo(Arithmetic, operator="%", precedence=6, widens_floats=True):
    """What `//` leaves over, with the sign of the divisor; a zero divisor fails the row."""


class Power(Arithmetic, operator="**", precedence=8, groups="right", operand_type=FLOAT64):
    """Left to the power of right, as float64 and by IEEE 754: never fails, may be NaN or infinite."""


class Negate(UnaryOperator, operator="-", requirement=_NUMBER):
    """The value with the other sign; the least integer has no such value and fails the row."""


class NumberFunction(MethodCall, requirement=_NUMBER):
    """A function of one number that keeps its type, written as a method."""


class Absolute(NumberFunction, method="abs"):
    """The value without its sign; the least integer has none and fails the row."""


class Floor(NumberFunction, method="floor"):
    """The greatest whole number that is not greater."""


class Ceil(NumberFunction, method="ceil"):
    """The least whole number that is not less."""


class Sqrt(NumberFunction, method="sqrt", operand_type=FLOAT64):
    """The square root as float64; NaN for a negative number, as IEEE 754 has it."""


class Round(NumberFunction, method="round", widens_floats=True):
    """To the nearest number of `digits` decimals, halves to even: rint(x * 10**digits) / 10**digits.

    Floats become float64, because few float32 have short decimals.
    """

    digits: int

    def __post_init__(self) -> None:
        if not is_int32(self.digits) or not 0 <= self.digits <= 15:
            raise SchemaError(
                f"round to {self.digits!r} digits is not defined", hint="give 0 to 15 digits: .round(2)"
            )

    def arguments(self, *texts: str) -> str:
        """Return the digits, unless there are none."""
        return f"{self.digits or ''}"


def _hashable(type: pa.DataType) -> bool:
    return not (kind.is_nested(type) or kind.is_decimal(type))


class Hash(FunctionCall, function="hash", input_handling=InputHandling.NULLS):
    """The 64-bit hash of all values together; never null."""

    requirement = Requirement(
        _hashable, "simple values", "hash the fields one by one, or a decimal as float64"
    )

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Require values that are not nested; the result is int64."""
        self.requirement.check(self, operands)
        types = tuple(INT64 if kind.is_null(item.type) else item.type for item in operands)
        return Signature(types, INT64)


def hash(*expressions: object) -> Expr:
    """Return a 64-bit hash of the values, the same on every engine and as Spark's xxhash64.

    >>> from penstock.expr import col
    >>> hash(col("user"), col("page"))
    hash(col("user"), col("page"))
    """
    if not expressions:
        raise SchemaError("hash has nothing to hash", hint='hash(col("a"), col("b"))')
    return Hash(tuple(to_expr(value) for value in expressions))
