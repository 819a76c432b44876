"""What registers keep, computed from all the values at once. Imports nothing of ours."""

from __future__ import annotations

import math


def wide_sum(values: list[int]) -> tuple[int, int]:
    """The sums of the upper and of the lower 32 bits."""
    return sum(value >> 32 for value in values), sum(value & 0xFFFFFFFF for value in values)


def count_greatest(values: list[int]) -> tuple[int, int]:
    """The greatest value and how many are equal to it."""
    return max(values), values.count(max(values))


def moments(values: list[float]) -> tuple[float, float, float]:
    """(n, mean, sum of squared distances from the mean), in two passes."""
    mean = math.fsum(values) / len(values)
    return float(len(values)), mean, math.fsum((value - mean) ** 2 for value in values)


def float_order(value: float) -> tuple[bool, float]:
    """A sort key for floats: NaN after all numbers; the two zeros are equal."""
    return (True, 0.0) if math.isnan(value) else (False, value)
