"""The window that a function of `apply` is called for, when it asks: `fn(rows, window)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ThisWindow:
    """One window of one key.

    start, end  its bounds, as values of the time column
    index       the number of a count window; None for other kinds
    label       its name where a stream has several windows; None otherwise
    key         the values of the key columns; () without a key
    """

    start: object
    end: object
    index: int | None
    label: str | None
    key: tuple[object, ...]


def asks_for_window(fn: Callable[..., Any]) -> bool:
    """Whether a function takes the window beside the rows: its second parameter is needed, or named so.

    >>> asks_for_window(lambda rows, window: None), asks_for_window(lambda rows, top=3: None)
    (True, False)
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.default is inspect.Parameter.empty or second.name == "window"
