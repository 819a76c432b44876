"""When two plain values are the same, and which comes first.

Assumes plain values of one column's type (see `expr.values`), so only equal kinds are ever compared.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any


def sort_key(value: object) -> tuple[Any, ...]:
    """What to sort values by: null first, NaN greatest, lists and structs part by part.

    -0.0 equals 0.0 and stands before it, so that no order is left to chance.
    """
    match value:
        case None:
            return (0,)
        case float() if math.isnan(value):
            return (2,)
        case float():
            return (1, value, math.copysign(1.0, value))
        case list():
            return (1, [sort_key(part) for part in value])
        case dict():
            return (1, [sort_key(part) for part in value.values()])
    return (1, value)


def same(value: object) -> Hashable:
    """A form that is equal for equal values: NaN equals NaN, -0.0 equals 0.0, null equals null."""
    match value:
        case float() if math.isnan(value):
            return ("NaN",)
        case list():
            return tuple(same(part) for part in value)
        case dict():
            return tuple(same(part) for part in value.values())
        case Hashable():
            return value
    raise AssertionError(f"{value!r} is not a plain value")


def clean(value: object) -> object:
    """The value that stands for all that equal it: -0.0 becomes 0.0."""
    match value:
        case float():
            return value + 0.0
        case list():
            return [clean(part) for part in value]
        case dict():
            return {name: clean(part) for name, part in value.items()}
    return value


def key_of(values: Mapping[str, object], names: Iterable[str]) -> tuple[Hashable, ...]:
    """The key of a row, to group and look up by."""
    return tuple(same(values[name]) for name in names)


def key_columns(values: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """The key columns as results show them."""
    return {name: clean(values[name]) for name in names}
