"""Rows whose values are plainly of their types, told in one look: a function is written for each schema.

A value is plainly of a type when it is its own plain value (`values.py`) and a glance shows it. Asking column
by column would cost several calls for every row, so the questions are put into one function as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from penstock.expr.python.lower import compile_function
from penstock.expr.values import integer_range

RowCheck = Callable[[Any], Any]
"""From what somebody gave to a new dict of plain values, or to what `otherwise` makes of it."""

_TYPES = {
    pa.bool_(): "type({0}) is bool",
    pa.float64(): "type({0}) is float",
    pa.string(): "type({0}) is str and {0}.isascii()",
    pa.binary(): "type({0}) is bytes",
    **{
        type_: f"type({{0}}) is int and {low} <= {{0}} <= {high}"
        for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
        for low, high in [integer_range(type_)]
    },
}


def has_exact_check(type_: pa.DataType) -> bool:
    """Whether values of a type can be told at a glance."""
    return type_ in _TYPES


@cache
def exact_type_check(type_: pa.DataType) -> Callable[[object], bool]:
    """Whether a value is plainly of a type; None is not, and nothing is where that takes a closer look."""
    question = _TYPES.get(type_, "False").format("value")
    asked: Callable[[object], bool] = compile_function("asked", f"asked = lambda value: {question}")
    return asked


def compile_row_check(
    schema: pa.Schema, otherwise: RowCheck, first: str = "pass", space: Mapping[str, object] | None = None
) -> RowCheck:
    """A function that gives a new dict for a dict with exactly the columns of a schema, null being None.

    otherwise  is asked about everything that is not plainly such a row
    first      what is done before: statements that may set `given`
    space      the names that these use
    """
    columns = tuple((field.name, _TYPES.get(field.type)) for field in schema)
    names = {"otherwise": otherwise, **(space or {})}
    made: RowCheck = _maker(columns, first, tuple(names))(*names.values())
    return made


@cache
def _maker(
    columns: tuple[tuple[str, str | None], ...], first: str, names: tuple[str, ...]
) -> Callable[..., RowCheck]:
    """Makes the function for these columns: name, and the question whether a value is plainly right."""
    reads = [f"v{at} = given[{name!r}]" for at, (name, _) in enumerate(columns)]
    asked = [_question(f"v{at}", question) for at, (_, question) in enumerate(columns)]
    pairs = [f"{name!r}: v{at}" for at, (name, _) in enumerate(columns)]
    text = f"""
def make({", ".join(names)}):
    def look(given):
        {first}
        if type(given) is dict and len(given) == {len(columns)}:
            try:
                {"; ".join(reads) or "pass"}
            except KeyError:
                return otherwise(given)
            if {" and ".join(asked) or "True"}:
                return {{{", ".join(pairs)}}}
        return otherwise(given)
    return look
"""
    return compile_function("make", text)


def _question(value: str, question: str | None) -> str:
    is_right = "" if question is None else f" or {question.format(value)}"
    return f"({value} is None{is_right})"
