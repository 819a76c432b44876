"""An aggregation tree the obvious way: lists of lists, and windows that fold their leaves one by one.

Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

Combine = Callable[[int, int], int]


def levels(leaves: Sequence[int], combine: Combine) -> list[list[int]]:
    """The leaves, then each level above them, up to the root. As many leaves as a power of two."""
    result = [list(leaves)]
    while len(result[-1]) > 1:
        below = result[-1]
        result.append([combine(below[i], below[i + 1]) for i in range(0, len(below), 2)])
    return result


def windows(
    leaves: Sequence[int], offset: int, n: int, step: int, n_windows: int, combine: Combine
) -> list[int]:
    """Each window is n leaves in a circle; the next starts `step` leaves further on."""
    result = []
    for window in range(n_windows):
        members = [leaves[(offset + window * step + i) % len(leaves)] for i in range(n)]
        result.append(reduce(combine, members))
    return result
