"""Calls of a user's function in plain Python, with a new row object for every call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any


class NewRow:
    """A row with its columns as attributes and as items."""

    def __init__(self, values: dict[str, Any]) -> None:
        vars(self).update(values)

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]


def call_each(call: Callable[..., Any], rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return a copy of what the function returns for each row, or the exception that it raises."""
    results: list[Any] = []
    for values in rows:
        try:
            results.append(copy.copy(call(NewRow(values))))
        except Exception as cause:
            results.append(cause)
    return results
