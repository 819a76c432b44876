"""Whether a fold can be compiled: its parts are floats, and it reads numbers by name.

Numba has the last word when a stage first runs it; these rules are what can be known before, without Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dis import get_instructions
from keyword import iskeyword
from types import FunctionType, ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.types as kind

from penstock.operators.aggregates import Fold
from penstock.operators.stream import Stream

_RAISING = frozenset(
    [
        *("acos", "acosh", "asin", "asinh", "atanh", "cos", "cosh", "sin", "sinh", "tan"),
        *("exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "pow", "sqrt", "ldexp"),
        *("fmod", "remainder", "gamma", "lgamma", "comb", "perm", "factorial"),
    ]
)
"""Functions of `math` that raise on some numbers."""


def why_python(fold: Fold, up: Stream) -> str | None:
    """Return why a fold runs in Python over kept rows; None when an accumulator holds it."""
    parts = fold.zero if isinstance(fold.zero, tuple) else (fold.zero,)
    if not fold.commutative:
        return "the order of rows matters"
    if not parts or not all(type(part) is float for part in parts):
        return "its zero is not of floats; with 0.0 in it, it could be compiled"
    if not fold.columns:
        return "it does not say which columns it reads; with columns=... it could be compiled"
    wrong = [name for name in fold.columns if not _is_number(up.schema.field(name).type)]
    if wrong:
        return f"column {wrong[0]} is not of numbers"
    unreachable = [name for name in fold.columns if not _is_attribute(name)]
    if unreachable:
        return f"column {unreachable[0]} cannot be read as row.{unreachable[0]}"
    if not all(is_pure(call) for call in (fold.lift, fold.combine)):
        return "lift or combine has a state of its own"
    if fold.lower is None and (isinstance(fold.zero, tuple) or not kind.is_float64(fold.type(up))):
        return "its parts are not results"
    return None


def is_pure(call: Callable[..., Any]) -> bool:
    """Return whether a function has no state: what it captures and its defaults are constants."""
    if not isinstance(call, FunctionType):
        return False
    try:
        captured = [cell.cell_contents for cell in call.__closure__ or ()]
    except ValueError:  # a name that has no value yet
        return False
    defaults = [*(call.__defaults__ or ()), *(call.__kwdefaults__ or {}).values()]
    return all(_is_constant(value) for value in (*captured, *defaults))


def may_raise(call: Callable[..., Any]) -> bool:
    """Return whether Python raises on some numbers for which machine code returns NaN or an infinity.

    Powers and most functions of `math` do: math.sqrt(-1.0), math.log(0.0), 1e200 ** 2.
    """
    if not isinstance(call, FunctionType):
        return True
    powers = any(step.argrepr in ("**", "**=") for step in get_instructions(call))
    return powers or not _RAISING.isdisjoint(call.__code__.co_names)


def _is_constant(value: object) -> bool:
    if type(value) is tuple:
        return all(_is_constant(item) for item in value)
    return value is None or type(value) in (bool, int, float, str) or isinstance(value, ModuleType)


def _is_attribute(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_")


def _is_number(type_: pa.DataType) -> bool:
    return bool(kind.is_integer(type_) or kind.is_floating(type_))
