"""Window arithmetic the slow, obvious way: try every window there could be. Imports nothing of ours."""

from __future__ import annotations


def starts(time: int, size: int, every: int) -> list[int]:
    """Starts of all windows [start, start + size) that hold `time`, earliest first.

    Windows start at multiples of `every`, so it is enough to count from far below `time` to above it.
    """
    number = -(abs(time) + size) // every - 2
    result = []
    while number * every <= time:
        start = number * every
        if start <= time < start + size:
            result.append(start)
        number += 1
    return result


def sessions(times: list[int], gap: int) -> list[tuple[int, int, int]]:
    """(first time, last time + gap, rows) of every session; sessions that touch are one."""
    result: list[tuple[int, int, int]] = []
    for time in sorted(times):
        if result and time <= result[-1][1]:
            first, end, rows = result[-1]
            result[-1] = (first, max(end, time + gap), rows + 1)
        else:
            result.append((time, time + gap, 1))
    return result
