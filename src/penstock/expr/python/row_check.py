"""Checks that rows have exactly the types of a schema, generated as one function per schema.

A value passes if it is its own plain value (`values.py`) and its Python type alone shows that. Checking
column by column would cost several calls for every row, so the checks are written into one function as text.
It is on the row path of the in-process engine (`python -m bench runtime`, tuple at a time).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from penstock.expr.python.lower import compile_function
from penstock.expr.values import integer_range

RowCheck = Callable[[Any], Any]
"""From a row of a user to a new dict of plain values, or to what `otherwise` returns for it."""

_CHECKS = {
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
    """Return whether values of a type can be checked by their Python type."""
    return type_ in _CHECKS


@cache
def exact_type_check(type_: pa.DataType) -> Callable[[object], bool]:
    """Return a function that says whether a value, not None, has exactly a type; never for other types."""
    check = _CHECKS.get(type_, "False").format("value")
    return compile_function("check", f"check = lambda value: {check}")


def compile_row_check(
    schema: pa.Schema, otherwise: RowCheck, first: str = "pass", namespace: Mapping[str, object] | None = None
) -> RowCheck:
    """Return a function from a dict with exactly the columns of a schema to a new one; None is null.

    otherwise  is called with everything else
    first      statements to run before, which may set `row`
    namespace  the names that these use
    """
    columns = tuple((field.name, _CHECKS.get(field.type)) for field in schema)
    names = {"otherwise": otherwise, **(namespace or {})}
    check: RowCheck = _compile_maker(columns, first, tuple(names))(*names.values())
    return check


@cache
def _compile_maker(
    columns: tuple[tuple[str, str | None], ...], first: str, names: tuple[str, ...]
) -> Callable[..., RowCheck]:
    """Return a function that binds the names, for columns with a name and a check each."""
    reads = [f"v{at} = row[{name!r}]" for at, (name, _) in enumerate(columns)]
    pairs = [f"{name!r}: v{at}" for at, (name, _) in enumerate(columns)]
    checks = [
        f"(v{at} is None)" if check is None else f"(v{at} is None or {check.format(f'v{at}')})"
        for at, (_, check) in enumerate(columns)
    ]
    text = f"""
def make({", ".join(names)}):
    def check(row):
        {first}
        if type(row) is dict and len(row) == {len(columns)}:
            try:
                {"; ".join(reads) or "pass"}
            except KeyError:
                return otherwise(row)
            if {" and ".join(checks) or "True"}:
                return {{{", ".join(pairs)}}}
        return otherwise(row)
    return check
"""
    return compile_function("make", text)
