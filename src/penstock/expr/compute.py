"""Arrow's compute functions, loaded on demand: `from penstock.expr import compute as pc`.

`pyarrow.compute` defines all of its three hundred functions when it is imported. The functions below, which
most programs need and which need no options, are called by name instead; any other loads the whole module. In
a small run of the in-process engine that saves about 40 ms of 290 ms CPU time (the program is in
`tests/test_imports.py`).
"""

from __future__ import annotations

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
    """Return the function of that name, as `pyarrow.compute` has it."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in BY_NAME:
        try:  # where `pyarrow.compute` has it from
            call = import_module("pyarrow._compute").call_function
        except ImportError:  # a pyarrow that keeps it elsewhere
            call = import_module("pyarrow.compute").call_function
        kernel = name.rstrip("_")
        globals()[name] = lambda *arguments: call(kernel, arguments)
    else:
        globals()[name] = getattr(import_module("pyarrow.compute"), name)
    return globals()[name]
