"""Purity: whether a function could tell that it runs in a copy of the program.

What it changes outside itself would change in the copy only, and it would not see what others change later.
So a function moves to another process unasked only if it uses nothing that could change: what it captures,
its defaults and the globals it reads are constants, modules, classes, or functions for which the same holds.
Functions of other modules are trusted.
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
    """Returns why the function would behave differently in a copy of the program; None if it would not."""
    if not isinstance(call, FunctionType):
        return "it is an object, which may have a state of its own"
    return _find_shared_state(call, set())


def _find_shared_state(call: FunctionType, seen: set[CodeType]) -> str | None:
    if call.__code__ in seen:
        return None
    seen.add(call.__code__)
    changed = next(_assigned_names(call.__code__), None)
    if changed is not None:
        return f"it sets {changed}, which the rest of the program can see"
    if call.__dict__:
        return "it has attributes, which it may change"
    for name, value in _outside_values(call):
        if isinstance(value, FunctionType):
            inner = _find_shared_state(value, seen) if value.__module__ == call.__module__ else None
            if inner is not None:
                return f"it calls {name}, and {inner}"
        elif not _is_constant(value):
            return f"it uses {name}, a {type(value).__name__} that may change"
    return None


def _assigned_names(code: CodeType, inner: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields names outside a function that it assigns; `inner` are variables of functions that enclose it."""
    for instruction in get_instructions(code):
        outside = instruction.argval in code.co_freevars and instruction.argval not in inner
        opname = instruction.opname
        if opname in _SETS_GLOBAL or (opname in _SETS_CAPTURED and outside):
            yield str(instruction.argval)
    own = (*inner, *code.co_cellvars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _assigned_names(constant, own)


def _outside_values(call: FunctionType) -> Iterator[tuple[str, object]]:
    """Yields what a function gets from outside, by name; a name without a value fails when it is called."""
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
    for instruction in get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_constant, value))
    return value is None or isinstance(value, _CONSTANT)
