"""How users' functions are called: with what, checked before a run, and on whose copy.

Every run, and every replica in it, works on its own copies of callable objects; a plain function is
shared, because it has no state that a copy would separate.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

from penstock.caller import defined_at, name_of
from penstock.errors import FunctionError
from penstock.expr.failure import reason_of

Held = TypeVar("Held")


def need_call(fn: Callable[..., Any], *arguments: str) -> None:
    """Raise if a function surely cannot be called with so many values, or gives a co-routine.

    What cannot be looked into (builtins, C functions) is believed.
    """
    call = f"fn({', '.join(arguments)})"
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise FunctionError(
            f"{name_of(fn)} is async, and rows do not wait for it",
            where=defined_at(fn),
            hint=f"write a plain function, def {call}; ps.Operator has a loop that may wait",
        )
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as problem:
        raise FunctionError(
            f"{name_of(fn)}{signature} cannot be called as {call}",
            where=defined_at(fn),
            detail=str(problem),
            hint=f"let it take {' and '.join(arguments)}",
        ) from None


def own_copy(held: Held) -> Held:
    """A callable object or operator of this replica's own; plain functions and classes as they are."""
    if isinstance(held, FunctionType | BuiltinFunctionType | type):
        return held
    try:
        return copy.deepcopy(held)
    except Exception as cause:
        raise FunctionError(
            f"{name_of(held)} cannot be copied, and every replica works on a copy of its own",
            where=defined_at(held),
            detail=reason_of(cause),
            hint="make what it holds on its first call, or give it a __deepcopy__",
        ) from cause
