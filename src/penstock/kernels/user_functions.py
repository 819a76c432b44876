"""Users' functions in compiled loops: known by what they say, compiled where Numba can, else plain Python.

Two functions are the same when their code, constants, defaults, captured values and the globals they name
are: a lambda made anew for every graph is compiled once per process. Numba takes captured values and globals
as they are when it compiles, so they are read once, when the function is first looked at. A function is
stable when all of that has a text form: then its machine code is kept on disk too.

Loops that users' functions are part of are generated from text (`GeneratedFunction`), since Numba knows
tuples of fixed length only, and run as plain Python where Numba refuses them (`CheckedFunction`).
"""

from __future__ import annotations

import builtins
import re
from collections import namedtuple
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np

from penstock.kernels.inline import Function
from penstock.kernels.loops import Loop, hash_code

STABLE_MODULES = frozenset({"math", "cmath", "numpy"})
"""Modules whose functions mean the same in the next process."""

CONSTANTS = (bool, int, float, complex, str, bytes, NoneType)


class Identity:
    """An object without a text form: equal to itself only. Holding it keeps its id from being reused."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


class FunctionSource(Loop):
    """A user's function; equal to another that says the same.

    strict  Python may raise where its machine code would give NaN or an infinity
    """

    def __init__(self, function: Callable[..., Any], *, strict: bool = False) -> None:
        source: Any = function
        cells = tuple(CellType(cell.cell_contents) for cell in source.__closure__ or ())
        frozen = FunctionType(
            source.__code__, source.__globals__, source.__name__, source.__defaults__, cells or None
        )
        frozen.__kwdefaults__, frozen.__doc__ = source.__kwdefaults__, source.__doc__
        super().__init__(frozen, None)
        self.strict = strict
        self._description = describe_function(function)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSource) and self._description == other._description

    def __hash__(self) -> int:
        return hash(self._description)

    @property
    def is_stable(self) -> bool:
        """Return whether its machine code can be kept for the next process."""
        return Path(self._source.__code__.co_filename).is_file() and _is_stable(self._description)

    def _digest(self) -> str:
        return hash_code(repr(self._description).encode())


def describe_function(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return all that a function says, as something to compare and to hash."""
    source: Any = function
    captured = tuple(_describe_value(cell.cell_contents) for cell in source.__closure__ or ())
    defaults = tuple(_describe_value(value) for value in source.__defaults__ or ())
    keywords = sorted((source.__kwdefaults__ or {}).items())
    named = tuple((name, _describe_value(value)) for name, value in keywords)
    return _describe_code(source.__code__, source.__globals__), captured, defaults, named


def _describe_code(code: CodeType, space: dict[str, Any]) -> tuple[Any, ...]:
    consts = tuple(
        _describe_code(const, space) if isinstance(const, CodeType) else _describe_value(const)
        for const in code.co_consts
    )
    names = tuple((name, _describe_value(space[name]) if name in space else None) for name in code.co_names)
    shape = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, consts, names, code.co_varnames, code.co_freevars, code.co_cellvars, shape


def _describe_value(value: Any) -> Any:
    """Return the text form of a value if it has one: 1, 1.0 and True differ, and so do the two zeros."""
    if type(value) in CONSTANTS:
        return type(value).__name__, repr(value)
    if type(value) is tuple:
        return ("tuple", *(_describe_value(part) for part in value))
    if isinstance(value, ModuleType) and value.__name__ in STABLE_MODULES:
        return "module", value.__name__
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and getattr(builtins, name, None) is value:
        return "builtin", name
    return Identity(value)


def _is_stable(description: Any) -> bool:
    if isinstance(description, tuple):
        return all(_is_stable(part) for part in description)
    return not isinstance(description, Identity)


class CheckedFunction(Loop):
    """A loop that stays plain where Numba cannot compile it."""

    refusal: str | None = None
    """Why it is not compiled, once that has been tried."""

    @classmethod
    def of(cls, inner: Loop, rule: Loop) -> CheckedFunction:
        """Return the same loop, checked; it is kept on disk where the rule that it calls is."""
        return cls(inner._source, inner.signature, cached=rule._cached)

    def version(self, compiled: bool, *, or_loaded: bool = False) -> Function:
        """Return the loop at one of its two speeds, if it has both."""
        return super().version(compiled and self.compiles, or_loaded=or_loaded)

    @property
    def compiles(self) -> bool:
        """Return whether there is machine code; asking builds it."""
        if self.refusal is None:
            try:
                return self.compiled is not None  # kept once it is built
            except Exception as cause:  # Numba's errors have no common ground below this
                self.refusal = explain_refusal(cause)
        return False

    @cached_property
    def compiled(self) -> Function:
        """Return the loop as machine code, from the disk where that works."""
        from numba.core.errors import NumbaError

        try:
            return super().compiled
        except NumbaError:
            raise
        except Exception:  # no place to keep it, or what was kept cannot be read
            if not self._cached:
                raise
            self._cached = False
            return super().compiled


class GeneratedFunction(CheckedFunction):
    """A loop that is written by a program: `text` defines the function `name`."""

    def __init__(
        self, text: str, name: str, space: dict[str, Any], signature: str | None, *, cached: bool = False
    ) -> None:
        space = {**space, "np": np, "namedtuple": namedtuple, "__name__": __name__}
        # Why: Numba keeps machine code by the file that a function is said to be from, so that is this one.
        exec(compile(text, __file__, "exec"), space)  # noqa: S102  # our own text, with numbers put in
        super().__init__(space[name], signature, cached=cached)
        self._text = text

    def _digest(self) -> str:
        inner = [f"{name} {loop._digest()}" for name, loop in sorted(self._globals(Loop).items())]
        return hash_code("\0".join([self._text, *inner]).encode())


@cache
def build_row_loop(function: str, takes: str, gives: str) -> GeneratedFunction:
    """Return the loop (columns..., results...) that calls a function of one row for every row.

    The text comes checked and rewritten (`stages/functions/rewrite.py`): it takes numbers and gives a tuple
    of numbers. Loops are kept by text and types, in which all constants are written out, so that the replicas
    of a step, a second run, and the next batch of a worker process do not compile again.

    function  its text: `def row_function(_0, _1): return (...)`
    takes     a type code per column, I, F or B; they are all of one length
    gives     a type code per result
    """
    columns = [f"column_{place}" for place in range(len(takes))]
    results = [f"result_{place}" for place in range(len(gives))]
    text = f"""
def make_rows({", ".join([*columns, *results])}):
    for i in range({results[0]}.shape[0]):
        {"".join(f"{name}[i], " for name in results)} = row({", ".join(f"{name}[i]" for name in columns)})
"""
    compiled = GeneratedFunction(function, "row_function", {}, None)
    signature = " ".join([*(f"{code}r" for code in takes), *gives])
    return GeneratedFunction(text, "make_rows", {"row": compiled}, signature)


def explain_refusal(cause: Exception) -> str:
    """Return Numba's reason in one line, without colours and without the name of the pass that failed."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in str(cause).splitlines()]
    reasons = [line for line in lines if line and not line.startswith("Failed in")]
    return reasons[0] if reasons else type(cause).__name__
