"""How two partial results become one: the combine rule of every register, written once.

A partial result is one row of a cells array (int64 or float64, `width` wide). `merge(into, i, other, j)` puts
into[i] (earlier) and other[j] (later) together in into[i]. Every rule is associative and `neutral` changes
nothing, which is all that stacks, trees and prefixes need; the laws are tested for each.

Least values are kept as the greatest complement (~v), floats as integers of the same order (see registers),
so one rule serves min and max of both types, and one serves first and last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.frozen import dataclass
from penstock.kernels.loops import Loop, loop

LEAST = -(2**63)
Cells = npt.NDArray[Any]
Merge = Callable[[Cells, int, Cells, int], None]


@loop()
def merge(into: Cells, i: int, other: Cells, j: int) -> None:
    """Stand in loops for the rule of a register: `Loop.under` puts that in the place of this name."""
    raise AssertionError("a loop over cells runs under a rule")


@loop()
def merge_add(into: Cells, i: int, other: Cells, j: int) -> None:
    """Counts and sums."""
    for part in range(into.shape[1]):
        into[i, part] += other[j, part]


@loop()
def merge_greatest(into: Cells, i: int, other: Cells, j: int) -> None:
    """The greatest integer."""
    into[i, 0] = max(into[i, 0], other[j, 0])


@loop()
def merge_counted(into: Cells, i: int, other: Cells, j: int) -> None:
    """(the greatest integer, how many rows have it)."""
    if other[j, 0] > into[i, 0]:
        into[i, 0] = other[j, 0]
        into[i, 1] = other[j, 1]
    elif other[j, 0] == into[i, 0]:
        into[i, 1] += other[j, 1]


@loop()
def merge_latest(into: Cells, i: int, other: Cells, j: int) -> None:
    """(time, order, value) of the greatest (time, order); of equal ones the greater value, for one answer."""
    for part in range(3):
        if other[j, part] != into[i, part]:
            if other[j, part] > into[i, part]:
                for rest in range(3):
                    into[i, rest] = other[j, rest]
            return


@loop()
def merge_moments(into: Cells, i: int, other: Cells, j: int) -> None:
    """(n, mean, sum of squared distances from the mean), by Chan, Golub and LeVeque's pairwise update."""
    more = other[j, 0]
    if more == 0.0:
        return
    if into[i, 0] == 0.0:  # nothing yet: the square of a great mean, times no rows, would be NaN
        for part in range(3):
            into[i, part] = other[j, part]
        return
    n = into[i, 0] + more
    apart = other[j, 1] - into[i, 1]
    into[i, 2] += other[j, 2] + apart * apart * (into[i, 0] * more / n)
    into[i, 1] += apart * (more / n)
    into[i, 0] = n


@loop()
def join_add(earlier: float, later: float) -> float:
    """`merge_add` of two numbers."""
    return earlier + later


@loop()
def join_greatest(earlier: float, later: float) -> float:
    """`merge_greatest` of two numbers."""
    return max(earlier, later)


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to combine cells. `exact` means that subtracting what was added gives back what was there.

    join  the rule on two numbers, for cells of one number
    """

    name: str
    floats: bool
    neutral: tuple[float, ...]
    merge: Loop
    exact: bool = False
    join: Loop | None = None

    @property
    def dtype(self) -> type[np.int64] | type[np.float64]:
        """The type of the cells."""
        return np.float64 if self.floats else np.int64

    @property
    def width(self) -> int:
        """How many numbers a cell has."""
        return len(self.neutral)

    def blank(self, n: int) -> Cells:
        """`n` neutral cells."""
        cells = np.empty((n, self.width), self.dtype)
        cells[:] = self.neutral
        return cells


COUNT = Rule("count", False, (0,), merge_add, exact=True, join=join_add)
WIDE_SUM = Rule("wide sum", False, (0, 0), merge_add, exact=True)
FLOAT_SUM = Rule("float sum", True, (0.0,), merge_add, join=join_add)
GREATEST = Rule("greatest", False, (LEAST,), merge_greatest, join=join_greatest)
COUNTED = Rule("counted", False, (LEAST, 0), merge_counted)
LATEST = Rule("latest", False, (LEAST, LEAST, LEAST), merge_latest)
MOMENTS = Rule("moments", True, (0.0, 0.0, 0.0), merge_moments)
RULES = (COUNT, WIDE_SUM, FLOAT_SUM, GREATEST, COUNTED, LATEST, MOMENTS)
