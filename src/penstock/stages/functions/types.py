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


class Type(StrEnum):
    """FLOAT, BOOL; WHOLE is int64; a SMALL whole number is written in the text; EITHER is FLOAT or SMALL."""

    FLOAT = "a float"
    BOOL = "a bool"
    WHOLE = "a whole number"
    SMALL = "a whole number in the text"
    EITHER = "a float or a whole number"


FLOATING = (Type.FLOAT, Type.EITHER)
INTEGRAL = (Type.WHOLE, Type.SMALL)


class Stays(Exception):
    """Why a function stays in Python."""


def of_constant(value: object) -> Type:
    """The type of a value that is written in the text, or that a name stands for."""
    if isinstance(value, bool):
        return Type.BOOL
    if isinstance(value, float):
        return Type.FLOAT
    if isinstance(value, int) and abs(value) <= EXACT:
        return Type.SMALL
    raise Stays(f"it uses {value!r:.40}, which is not a float, a bool or a small whole number")


def of_either(left: Type, right: Type) -> Type:
    """The type of a value that comes from one of two branches."""
    if left == right:
        return left
    pair = {left, right}
    if pair <= {Type.FLOAT, Type.SMALL, Type.EITHER}:
        return Type.EITHER
    if pair == {Type.WHOLE, Type.SMALL}:
        return Type.WHOLE
    raise Stays(f"one value is {left} on one way and {right} on another")


def of_operation(operator: ast.operator, left: Type, right: Type) -> Type:
    """The type of `left operator right`."""
    pair = {left, right}
    if Type.BOOL in pair:
        raise Stays("it computes with bools")
    if isinstance(operator, ast.Add | ast.Sub | ast.Mult):
        return Type.FLOAT if Type.FLOAT in pair else _whole(pair)
    if isinstance(operator, ast.Div):
        if Type.FLOAT in pair:
            return Type.FLOAT
        raise Stays("it divides whole numbers, which Python rounds better; write float(...) around one")
    if (
        isinstance(operator, ast.FloorDiv | ast.Mod | ast.BitAnd | ast.BitOr | ast.BitXor)
        and Type.FLOAT not in pair
    ):
        return _whole(pair)
    raise Stays(f"{type(operator).__name__.lower()} is not the same outside Python")


def _whole(pair: set[Type]) -> Type:
    if Type.EITHER in pair:
        raise Stays("it computes with what may be a whole number; write 0.0 for 0")
    if Type.WHOLE not in pair:
        raise Stays("it computes with whole numbers of the text alone")
    return Type.WHOLE


def of_comparison(left: Type, right: Type) -> Type:
    """The type of a comparison."""
    pair = {left, right}
    if pair == {Type.BOOL} or pair <= {Type.FLOAT, Type.SMALL, Type.EITHER} or pair <= set(INTEGRAL):
        return Type.BOOL
    raise Stays(f"it compares {left} with {right}")


def of_sign(operator: ast.unaryop, operand: Type) -> Type:
    """The type of `-x`, `+x` and `not x`."""
    if isinstance(operator, ast.Not) and operand == Type.BOOL:
        return Type.BOOL
    # -0 is 0 for a whole number and -0.0 for a float, so what may be either stays in Python.
    if isinstance(operator, ast.USub | ast.UAdd) and operand in (Type.FLOAT, *INTEGRAL):
        return operand
    raise Stays(f"{type(operator).__name__.lower()} of {operand} is not the same outside Python")


def fits(found: Type, letter: str) -> bool:
    """Whether a value may go into a column of F floats, I int64 or B bools without a further check."""
    if letter == "F":
        return found != Type.BOOL
    return found == Type.BOOL if letter == "B" else found in INTEGRAL
