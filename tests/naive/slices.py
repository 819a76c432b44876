"""Slices the slow, obvious way: walk along the microseconds. Imports nothing of ours."""

from __future__ import annotations


def is_cut(time: int, windows: list[tuple[int, int]]) -> bool:
    """Whether some window (size, every) starts or ends at `time`."""
    return any(time % every == 0 or (time - size) % every == 0 for size, every in windows)


def slice_of(time: int, windows: list[tuple[int, int]]) -> tuple[int, int]:
    """[start, end) of the slice that holds `time`."""
    start = time
    while not is_cut(start, windows):
        start -= 1
    end = time + 1
    while not is_cut(end, windows):
        end += 1
    return start, end


def cuts_between(low: int, high: int, windows: list[tuple[int, int]]) -> int:
    """How many cuts there are in (low, high]."""
    return sum(is_cut(time, windows) for time in range(low + 1, high + 1))


def count_missed(time: int, size: int, every: int, watermark: int, lateness: int) -> int:
    """How many windows that hold `time` have left at the watermark."""
    starts = [start for start in range(time - size + 1, time + 1) if start % every == 0]
    return sum(watermark >= start + size + lateness for start in starts)
