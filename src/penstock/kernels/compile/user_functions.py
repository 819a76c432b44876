"""Functions that users wrote, as loops that other loops call, known by what they say and not by who they are.

Two functions are the same when their code, constants, defaults, captured values and the globals they name
are: a lambda made anew for every graph is compiled once per process. Numba takes captured values and globals
as they are when it compiles, so they are taken once, when the function is first looked at.

A function lasts when everything it says can be told in words: then its machine code is kept on disk too.
"""

from __future__ import annotations

import builtins
import copy
import re
import types
from collections import namedtuple
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from penstock.kernels.compile.loops import Function, Loop

STABLE_MODULES = frozenset({"math", "cmath", "numpy"})
"""Modules whose functions mean the same in the next process."""

CONSTANTS = (bool, int, float, complex, str, bytes, types.NoneType)


class Identity:
    """Something that only is what it is: equal to itself. Holding it keeps its place from being reused."""

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self._thing is other._thing

    def __hash__(self) -> int:
        return id(self._thing)


class FunctionSource(Loop):
    """A user's function; equal to another that says the same.

    strict  Python may raise where its machine code would give NaN or an infinity
    """

    def __init__(self, function: Callable[..., Any], *, strict: bool = False) -> None:
        super().__init__(function, None)
        self.strict = strict
        self._said = describe_function(function)
        source: Any = function
        self._cells = tuple(types.CellType(each.cell_contents) for each in source.__closure__ or ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSource) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @property
    def is_stable(self) -> bool:
        """Whether its machine code can be kept for the next process."""
        return Path(self._source.__code__.co_filename).is_file() and _is_stable(self._said)

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


def describe_function(function: Callable[..., Any]) -> tuple[Any, ...]:
    """All that a function says, as something to compare and to hash."""
    source: Any = function
    captured = tuple(_describe_value(cell.cell_contents) for cell in source.__closure__ or ())
    defaults = tuple(_describe_value(each) for each in source.__defaults__ or ())
    named = tuple(
        (name, _describe_value(each)) for name, each in sorted((source.__kwdefaults__ or {}).items())
    )
    return _describe_code(source.__code__, source.__globals__), captured, defaults, named


def _describe_code(code: types.CodeType, space: dict[str, Any]) -> tuple[Any, ...]:
    consts = tuple(
        _describe_code(each, space) if isinstance(each, types.CodeType) else _describe_value(each)
        for each in code.co_consts
    )
    names = tuple((name, _describe_value(space[name]) if name in space else None) for name in code.co_names)
    shape = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, consts, names, code.co_varnames, code.co_freevars, code.co_cellvars, shape


def _describe_value(value: Any) -> Any:
    """A value in words where it has some: 1, 1.0 and True differ, and so do the two zeros."""
    if type(value) in CONSTANTS:
        return type(value).__name__, repr(value)
    if type(value) is tuple:
        return ("tuple", *(_describe_value(each) for each in value))
    if isinstance(value, types.ModuleType) and value.__name__ in STABLE_MODULES:
        return "module", value.__name__
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and getattr(builtins, name, None) is value:
        return "builtin", name
    return Identity(value)


def _is_stable(said: Any) -> bool:
    if isinstance(said, tuple):
        return all(_is_stable(each) for each in said)
    return not isinstance(said, Identity)


# Loops that users' functions are part of: compiled where Numba can, plain Python where it cannot.

_BUILD: Callable[[Loop], Function] = vars(Loop)["compiled"].func
"""What `Loop.compiled` does, for those who do more."""


class CheckedFunction(Loop):
    """A loop that stays plain where Numba cannot compile it."""

    refusal: str | None = None
    """Why it is not compiled, once that has been tried."""

    @classmethod
    def of(cls, inner: Loop, *, cached: bool = False) -> CheckedFunction:
        """The same loop, careful; `cached` where all that it calls lasts until the next process."""
        return cls(inner._source, inner._signature, rules=inner._rules, cached=cached)

    def version(self, compiled: bool) -> Function:
        """The loop at one of its two speeds, if it has both."""
        return self.compiled if compiled and self.compiles else self.plain

    @property
    def compiles(self) -> bool:
        """Whether there is machine code; this makes it."""
        if self.refusal is None:
            try:
                return self.compiled is not None  # kept once it is made
            except Exception as cause:  # Numba's errors have no common ground below this
                self.refusal = _reason(cause)
        return False

    @cached_property
    def compiled(self) -> Function:
        """The loop as machine code, from the disk where that works."""
        return self._built()

    def _built(self) -> Function:
        from numba.core.errors import NumbaError

        try:
            return _BUILD(self)
        except NumbaError:
            raise
        except Exception:  # no place to keep it, or what was kept cannot be read
            if not self._cached:
                raise
            self._cached = False
            return _BUILD(self)


class GeneratedFunction(CheckedFunction):
    """A loop that is written by a program: `text` defines the function `name`."""

    def __init__(
        self, text: str, name: str, space: dict[str, Any], signature: str | None, *, cached: bool = False
    ) -> None:
        space = {"np": np, "namedtuple": namedtuple, "__name__": __name__, **space}
        exec(compile(text, "<fold>", "exec"), space)  # noqa: S102  # our own text, with numbers put in
        super().__init__(space[name], signature, cached=cached)
        self._text = text

    def _built(self) -> Function:
        """Numba keeps machine code by the file that a function is said to be from, so that is this one."""
        code: Any = self._source.__code__.replace(co_filename=__file__)
        twin = copy.copy(self)
        twin._source = FunctionType(code, self._source.__globals__, self.__name__)
        return CheckedFunction._built(twin)

    def _digest(self) -> str:
        inner = [f"{name} {each._digest()}" for name, each in sorted(self._inner().items())]
        import hashlib  # for what is compiled only

        return hashlib.sha256("\0".join([self._text, *inner]).encode()).hexdigest()[:12]


def _reason(cause: Exception) -> str:
    """Numba's reason in one line: its first names only the pass that failed, and colours come between."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in str(cause).splitlines()]
    told = [line for line in lines if line and not line.startswith("Failed in nopython")]
    return told[0] if told else type(cause).__name__
