"""Functions that users wrote, as loops that other loops call, known by what they say and not by who they are.

Two functions are the same when their code, constants, defaults, captured values and the globals they name
are: a lambda made anew for every graph is compiled once per process. Numba takes captured values and globals
as they are when it compiles, so they are taken once, when the function is first looked at.

A function lasts when everything it says can be told in words: then its machine code is kept on disk too.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.kernels.loops import Loop

LASTING = frozenset({"math", "cmath", "numpy"})
"""Modules whose functions mean the same in the next process."""

CONSTANTS = (bool, int, float, complex, str, bytes, types.NoneType)


class Same:
    """Something that only is what it is: equal to itself. Holding it keeps its place from being reused."""

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._thing is other._thing

    def __hash__(self) -> int:
        return id(self._thing)


class Written(Loop):
    """A user's function; equal to another that says the same.

    strictly  Python may raise where its machine code would give NaN or an infinity
    """

    def __init__(self, function: Callable[..., Any], *, strictly: bool = False) -> None:
        super().__init__(function, None)
        self.strictly = strictly
        self._said = said(function)
        source: Any = function
        self._cells = tuple(types.CellType(each.cell_contents) for each in source.__closure__ or ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Written) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @property
    def lasting(self) -> bool:
        """Whether its machine code can be kept for the next process."""
        return Path(self._source.__code__.co_filename).is_file() and _is_lasting(self._said)

    def _copy(self, instead: dict[str, Any]) -> Any:
        source: Any = self._source
        space = {**source.__globals__, **instead}
        copy = types.FunctionType(
            source.__code__, space, self.__name__, source.__defaults__, self._cells or None
        )
        copy.__kwdefaults__, copy.__doc__ = source.__kwdefaults__, source.__doc__
        return copy

    def _digest(self) -> str:
        import hashlib  # for what is compiled only

        return hashlib.sha256(repr(self._said).encode()).hexdigest()[:12]


def said(function: Callable[..., Any]) -> tuple[Any, ...]:
    """All that a function says, as something to compare and to hash."""
    source: Any = function
    captured = tuple(_value(cell.cell_contents) for cell in source.__closure__ or ())
    defaults = tuple(_value(each) for each in source.__defaults__ or ())
    named = tuple((name, _value(each)) for name, each in sorted((source.__kwdefaults__ or {}).items()))
    return _code(source.__code__, source.__globals__), captured, defaults, named


def _code(code: types.CodeType, space: dict[str, Any]) -> tuple[Any, ...]:
    consts = tuple(
        _code(each, space) if isinstance(each, types.CodeType) else _value(each) for each in code.co_consts
    )
    names = tuple((name, _value(space[name]) if name in space else None) for name in code.co_names)
    shape = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, consts, names, code.co_varnames, code.co_freevars, code.co_cellvars, shape


def _value(value: Any) -> Any:
    """A value in words where it has some: 1, 1.0 and True differ, and so do the two zeros."""
    if type(value) in CONSTANTS:
        return type(value).__name__, repr(value)
    if type(value) is tuple:
        return ("tuple", *(_value(each) for each in value))
    if isinstance(value, types.ModuleType) and value.__name__ in LASTING:
        return "module", value.__name__
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and getattr(builtins, name, None) is value:
        return "builtin", name
    return Same(value)


def _is_lasting(said: Any) -> bool:
    if isinstance(said, tuple):
        return all(_is_lasting(each) for each in said)
    return not isinstance(said, Same)
