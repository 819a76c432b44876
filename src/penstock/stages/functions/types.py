"""The types of what a row function computes, and the rules under which compiling it changes no answer.

Python's numbers and the machine's differ: whole numbers do not wrap, powers and many functions of `math`
raise where the machine gives infinity or NaN, `and` gives an operand. What is allowed here gives the same
bits, or raises in both; the rest stays in Python. Whole numbers of columns are allowed where the user accepts
that they wrap at 64 bits.
"""

from __future__ import annotations

import ast
from enum import StrEnum

EXACT = 2**53
"""Whole numbers up to this are floats without loss."""


class ValueType(StrEnum):
    """FLOAT, BOOL; WHOLE is int64; a SMALL whole number is written in the text; EITHER is FLOAT or SMALL."""

    FLOAT = "a float"
    BOOL = "a bool"
    WHOLE = "a whole number"
    SMALL = "a whole number in the text"
    EITHER = "a float or a whole number"


FLOATING = (ValueType.FLOAT, ValueType.EITHER)
INTEGRAL = (ValueType.WHOLE, ValueType.SMALL)


class NotCompilable(Exception):
    """Says why a function stays in Python."""


def type_of_constant(value: object) -> ValueType:
    """Returns the type of a value that is written in the text, or that a name stands for."""
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, float):
        return ValueType.FLOAT
    if isinstance(value, int) and abs(value) <= EXACT:
        return ValueType.SMALL
    raise NotCompilable(f"it uses {value!r:.40}, which is not a float, a bool or a small whole number")


def type_of_branches(left: ValueType, right: ValueType) -> ValueType:
    """Returns the type of a value that comes from one of two branches."""
    if left == right:
        return left
    pair = {left, right}
    if pair <= {ValueType.FLOAT, ValueType.SMALL, ValueType.EITHER}:
        return ValueType.EITHER
    if pair == {ValueType.WHOLE, ValueType.SMALL}:
        return ValueType.WHOLE
    raise NotCompilable(f"one value is {left} on one way and {right} on another")


def type_of_operation(operator: ast.operator, left: ValueType, right: ValueType) -> ValueType:
    """Returns the type of `left operator right`."""
    pair = {left, right}
    if ValueType.BOOL in pair:
        raise NotCompilable("it computes with bools")
    if isinstance(operator, ast.Add | ast.Sub | ast.Mult):
        return ValueType.FLOAT if ValueType.FLOAT in pair else _type_of_integers(pair)
    if isinstance(operator, ast.Div):
        if ValueType.FLOAT in pair:
            return ValueType.FLOAT
        raise NotCompilable(
            "it divides whole numbers, which Python rounds better; write float(...) around one"
        )
    if (
        isinstance(operator, ast.FloorDiv | ast.Mod | ast.BitAnd | ast.BitOr | ast.BitXor)
        and ValueType.FLOAT not in pair
    ):
        return _type_of_integers(pair)
    raise NotCompilable(f"{type(operator).__name__.lower()} is not the same outside Python")


def _type_of_integers(pair: set[ValueType]) -> ValueType:
    if ValueType.EITHER in pair:
        raise NotCompilable("it computes with what may be a whole number; write 0.0 for 0")
    if ValueType.WHOLE not in pair:
        raise NotCompilable("it computes with whole numbers of the text alone")
    return ValueType.WHOLE


def type_of_comparison(left: ValueType, right: ValueType) -> ValueType:
    """Returns the type of a comparison."""
    pair = {left, right}
    if (
        pair == {ValueType.BOOL}
        or pair <= {ValueType.FLOAT, ValueType.SMALL, ValueType.EITHER}
        or pair <= set(INTEGRAL)
    ):
        return ValueType.BOOL
    raise NotCompilable(f"it compares {left} with {right}")


def type_of_unary(operator: ast.unaryop, operand: ValueType) -> ValueType:
    """Returns the type of `-x`, `+x` and `not x`."""
    if isinstance(operator, ast.Not) and operand == ValueType.BOOL:
        return ValueType.BOOL
    # -0 is 0 for a whole number and -0.0 for a float, so what may be either stays in Python.
    if isinstance(operator, ast.USub | ast.UAdd) and operand in (ValueType.FLOAT, *INTEGRAL):
        return operand
    raise NotCompilable(f"{type(operator).__name__.lower()} of {operand} is not the same outside Python")


def fits_column(value_type: ValueType, letter: str) -> bool:
    """Returns whether a value may go into a column of F floats, I int64 or B bools unchecked."""
    if letter == "F":
        return value_type != ValueType.BOOL
    return value_type == ValueType.BOOL if letter == "B" else value_type in INTEGRAL
