"""Arrow's functions, each made when it is first asked for: `from penstock.expr import compute as pc`.

`pyarrow.compute` writes all of its three hundred functions when it is imported, and takes longer for that
than a small run takes from its first line to its last. The functions below, which most programs need and
which need no options, are called by name; any other is taken from there, and is then loaded with the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

BY_NAME = frozenset(
    [
        "abs",
        "add",
        "and_",
        "and_kleene",
        "and_not",
        "ceil",
        "dictionary_encode",
        "equal",
        "floor",
        "greater",
        "greater_equal",
        "if_else",
        "invert",
        "is_nan",
        "less",
        "less_equal",
        "multiply",
        "negate",
        "not_equal",
        "or_",
        "or_kleene",
        "power",
        "sqrt",
        "subtract",
        "take",
    ]
)


def __getattr__(name: str) -> Any:
    """The function of that name, as `pyarrow.compute` has it."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _by_name(name.rstrip("_")) if name in BY_NAME else getattr(_whole(), name)
    globals()[name] = found
    return found


def _by_name(name: str) -> Callable[..., Any]:
    """The function without options; `pyarrow.compute` takes `call_function` from the same place."""
    try:
        call = import_module("pyarrow._compute").call_function
    except ImportError:  # a pyarrow that keeps it elsewhere
        call = _whole().call_function
    return lambda *arguments: call(name, arguments)


def _whole() -> Any:
    return import_module("pyarrow.compute")
