"""Whether a function could tell that it runs in a copy of the program.

What it changes outside itself would change in the copy only, and what others change later it would not see.
So a function is moved to another process without being asked only if it uses nothing that could change:
what it captures, its defaults and the names it reads are constants, modules, classes, or functions for which
the same holds. Functions of other modules are believed.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator
from dis import get_instructions
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

_CONSTANT = (bool, int, float, complex, str, bytes, re.Pattern, Enum, ModuleType, type, BuiltinFunctionType)
_SETS_GLOBAL = ("STORE_GLOBAL", "DELETE_GLOBAL")
_SETS_CAPTURED = ("STORE_DEREF", "DELETE_DEREF")


def find_shared_state(call: Callable[..., Any]) -> str | None:
    """Why a copy of the program could differ for this function; None when it could not."""
    if not isinstance(call, FunctionType):
        return "it is an object, which may have a state of its own"
    return _shares(call, set())


def _shares(call: FunctionType, seen: set[CodeType]) -> str | None:
    if call.__code__ in seen:
        return None
    seen.add(call.__code__)
    changed = next(_sets(call.__code__), None)
    if changed is not None:
        return f"it sets {changed}, which the rest of the program can see"
    if call.__dict__:
        return "it has attributes, which it may change"
    for name, value in _uses(call):
        if isinstance(value, FunctionType):
            inner = _shares(value, seen) if value.__module__ == call.__module__ else None
            if inner is not None:
                return f"it calls {name}, and {inner}"
        elif not _is_constant(value):
            return f"it uses {name}, a {type(value).__name__} that may change"
    return None


def _sets(code: CodeType, inner: tuple[str, ...] = ()) -> Iterator[str]:
    """Names outside a function that it sets; `inner` are those of functions around it that are its own."""
    for each in get_instructions(code):
        outside = each.argval in code.co_freevars and each.argval not in inner
        if each.opname in _SETS_GLOBAL or (each.opname in _SETS_CAPTURED and outside):
            yield str(each.argval)
    own = (*inner, *code.co_cellvars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _sets(constant, own)


def _uses(call: FunctionType) -> Iterator[tuple[str, object]]:
    """What a function gets from outside, by name; a name that has no value fails when it is called."""
    for name, cell in zip(call.__code__.co_freevars, call.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it has no value yet, so it will be set
            yield name, cell
    for place, value in enumerate(call.__defaults__ or ()):
        yield f"default {place + 1}", value
    yield from (call.__kwdefaults__ or {}).items()
    for name in _globals_of(call.__code__):
        if name in call.__globals__:
            yield name, call.__globals__[name]
        elif hasattr(builtins, name):
            yield name, None


def _globals_of(code: CodeType) -> Iterator[str]:
    for each in get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(_is_constant(each) for each in value)
    return value is None or isinstance(value, _CONSTANT)
