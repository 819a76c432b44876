"""The functions that are aggregated: the nine of SPRINGALD's figure 15, and one that a user might write.

Each has its obvious twin in NumPy, made from what is known of a window: how many rows, their sum, their sum
of squares, the least and the greatest value and how many rows have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import penstock as ps
from penstock.operators.aggregates import Aggregate

Floats = npt.NDArray[np.float64]
Part = tuple[float, float, float]


class Known(NamedTuple):
    """What is known of each window; the extremes are only there where they are asked for."""

    n: Floats
    total: Floats
    squares: Floats
    least: Floats
    n_least: Floats
    most: Floats
    n_most: Floats


def lift(row: Any) -> Part:
    """Return a row as three numbers: least, greatest, how many."""
    return row.value, row.value, 1.0


def combine(one: Part, other: Part) -> Part:
    """Return the three numbers of two parts."""
    return min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]


def lower(part: Part) -> float:
    """Return the range of the values, per row."""
    return (part[1] - part[0]) / part[2]


FUNCTIONS: dict[str, Aggregate] = {
    "sum": ps.sum("value"),
    "count": ps.count(),
    "max": ps.max("value"),
    "min": ps.min("value"),
    "mean": ps.mean("value"),
    "max_count": ps.max_count("value"),
    "min_count": ps.min_count("value"),
    "sample std": ps.std("value"),
    "population std": ps.std("value", population=True),
    "fold": ps.fold(lift, combine, (math.inf, -math.inf, 0.0), lower, columns="value"),
}
NINE = tuple(FUNCTIONS)[:9]
NEEDS_EXTREMES = {"max", "min", "max_count", "min_count", "fold"}

TWINS: dict[str, Callable[[Known], list[Floats]]] = {
    "sum": lambda of: [of.total],
    "count": lambda of: [of.n],
    "max": lambda of: [of.most],
    "min": lambda of: [of.least],
    "mean": lambda of: [of.total / of.n],
    "max_count": lambda of: [of.most, of.n_most],
    "min_count": lambda of: [of.least, of.n_least],
    "sample std": lambda of: [np.sqrt(_distances(of) / (of.n - 1))],
    "population std": lambda of: [np.sqrt(_distances(of) / of.n)],
    "fold": lambda of: [(of.most - of.least) / of.n],
}


def _distances(of: Known) -> Floats:
    """Return the sum of squared distances from the mean."""
    return of.squares - of.total * of.total / of.n
