"""Reduce by key the obvious way: one bucket per key. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import reduce
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def reduce_by_key(
    pairs: Iterable[tuple[Key, Value]], combine: Callable[[Value, Value], Value]
) -> dict[Key, Value]:
    """The combination of all values of each key."""
    buckets: dict[Key, list[Value]] = {}
    for key, value in pairs:
        buckets.setdefault(key, []).append(value)
    return {key: reduce(combine, values) for key, values in buckets.items()}
