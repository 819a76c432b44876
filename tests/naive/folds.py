"""A user's fold slice by slice, row after row, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.naive.slices import slice_of


def fold_rows(
    rows: Iterable[tuple[int, int, float]],
    pair: tuple[int, int],
    open_from: int,
    *,
    lift: Callable[[float], Any],
    combine: Callable[[Any, Any], Any],
    zero: Any,
) -> dict[tuple[int, int], tuple[int, Any]]:
    """(rows, part) by (slot, start of slice) of rows (slot, time, value) that are not before `open_from`."""
    result: dict[tuple[int, int], tuple[int, Any]] = {}
    for slot, time, value in rows:
        if time >= open_from:
            place = slot, slice_of(time, [pair])[0]
            n, part = result.get(place, (0, zero))
            result[place] = n + 1, combine(part, lift(value))
    return result
