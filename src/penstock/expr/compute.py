"""Arrow's compute functions, loaded on demand: `from penstock.expr import compute as pc`.

`pyarrow.compute` defines all of its three hundred functions when it is imported. Functions without options
are called by name instead, and so are two whose options we leave alone; any other loads the whole module. In
a small run of the in-process engine that saves about 40 ms of 290 ms CPU time (the program is in
`tests/test_imports.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WITHOUT_OPTIONS = ("dictionary_encode", "take")


def __getattr__(name: str) -> Any:
    """Return the function of that name, as `pyarrow.compute` has it."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    library, kernel = import_module("pyarrow._compute"), name.rstrip("_")
    is_plain = name in _WITHOUT_OPTIONS
    if kernel in library.list_functions():
        is_plain |= not library.get_function(kernel)._doc.options_class
    if is_plain:
        globals()[name] = lambda *arguments: library.call_function(kernel, arguments)
    else:
        globals()[name] = getattr(import_module("pyarrow.compute"), name)
    return globals()[name]
