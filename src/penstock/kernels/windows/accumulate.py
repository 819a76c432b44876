"""Accumulators: how rows become cells, and how two cells become one. Each is written once.

*Rules.* A cell is one row of an array (int64 or float64, `width` wide). `merge(into, i, other, j)` puts
into[i] (earlier) and other[j] (later) together in into[i]. Every rule is associative and `neutral` changes
nothing, which is all that stacks and trees need; the laws are tested for each. Least values are
kept as the greatest complement (~v), floats as integers of the same order (`encode_floats`), so one rule
serves min and max of both types, and one serves first and last.

*Rows into cells.* One pass per accumulator over the runs of a batch (`slice_loop.find_runs`). A run (start,
stop, cell) is rows one after the other that go to one cell: they are added up without a look at their
cells, which vectorises, and the cell is changed once. Where the cell is -1 each row has its own. Nulls have
been left out by the caller, so no loop asks for them.

    runs    int64[k, 3]
    cells   int64[n]     read where a run has no cell of its own; `slice_loop` keeps them inside the arrays
    values  [n]

The error of a float sum is below n x 1.2e-16 of the sum of magnitudes for n rows in one cell.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.frozen import Frozen
from penstock.kernels.loops import Loop, loop
from penstock.kernels.user_functions import CheckedFunction

INT64_MIN = -(2**63)
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[Any]


@loop()
def merge(into: Cells, i: int, other: Cells, j: int) -> None:
    """Stand for a rule in loops over cells: `build_rule_loop` puts that in the place of this name."""
    raise AssertionError("a loop over cells runs under a rule")


@loop()
def merge_numbers(earlier: float, later: float) -> float:
    """Stand for a rule on two numbers, as `merge` does for one on cells."""
    raise AssertionError("a loop over numbers runs under a rule")


@loop()
def merge_add(into: Cells, i: int, other: Cells, j: int) -> None:
    """Merge counts, or sums."""
    for part in range(into.shape[1]):
        into[i, part] += other[j, part]


@loop()
def merge_max(into: Cells, i: int, other: Cells, j: int) -> None:
    """Keep the greatest integer."""
    into[i, 0] = max(into[i, 0], other[j, 0])


@loop()
def merge_max_count(into: Cells, i: int, other: Cells, j: int) -> None:
    """Keep the greatest integer, and the number of rows that have it."""
    if other[j, 0] > into[i, 0]:
        into[i, 0] = other[j, 0]
        into[i, 1] = other[j, 1]
    elif other[j, 0] == into[i, 0]:
        into[i, 1] += other[j, 1]


@loop()
def merge_latest(into: Cells, i: int, other: Cells, j: int) -> None:
    """Keep (time, order, value) of the greatest (time, order); of equal ones the greater value."""
    for part in range(3):
        if other[j, part] != into[i, part]:
            if other[j, part] > into[i, part]:
                for rest in range(3):
                    into[i, rest] = other[j, rest]
            return


@loop()
def merge_moments(into: Cells, i: int, other: Cells, j: int) -> None:
    """Merge (n, mean, sum of squared distances from the mean): Chan, Golub and LeVeque's update."""
    more = other[j, 0]
    if more == 0.0:
        return
    if into[i, 0] == 0.0:  # Why: the square of a great mean, times no rows, would be NaN
        for part in range(3):
            into[i, part] = other[j, part]
        return
    n = into[i, 0] + more
    apart = other[j, 1] - into[i, 1]
    into[i, 2] += other[j, 2] + apart * apart * (into[i, 0] * more / n)
    into[i, 1] += apart * (more / n)
    into[i, 0] = n


@loop()
def add_numbers(earlier: float, later: float) -> float:
    """Do what `merge_add` does, for two numbers."""
    return earlier + later


@loop()
def max_numbers(earlier: float, later: float) -> float:
    """Do what `merge_max` does, for two numbers."""
    return max(earlier, later)


class Rule(Frozen):
    """A way to combine cells.

    merge_numbers  the rule on two numbers, for cells of one number
    """

    name: str
    floats: bool
    neutral: tuple[float, ...]
    merge: Loop
    merge_numbers: Loop | None = None

    @property
    def dtype(self) -> type[np.int64] | type[np.float64]:
        """Return the type of the cells."""
        return np.float64 if self.floats else np.int64

    @property
    def width(self) -> int:
        """Return the number of numbers a cell has."""
        return len(self.neutral)

    def neutral_cells(self, n: int) -> Cells:
        """Return `n` neutral cells."""
        return np.full((n, len(self.neutral)), self.neutral, np.float64 if self.floats else np.int64)


COUNT = Rule("count", False, (0,), merge_add, merge_numbers=add_numbers)
WIDE_SUM = Rule("wide sum", False, (0, 0), merge_add)
FLOAT_SUM = Rule("float sum", True, (0.0,), merge_add, merge_numbers=add_numbers)
MAX = Rule("greatest", False, (INT64_MIN,), merge_max, merge_numbers=max_numbers)
MAX_COUNT = Rule("counted", False, (INT64_MIN, 0), merge_max_count)
LATEST = Rule("latest", False, (INT64_MIN, INT64_MIN, INT64_MIN), merge_latest)
MOMENTS = Rule("moments", True, (0.0, 0.0, 0.0), merge_moments)
RULES = (COUNT, WIDE_SUM, FLOAT_SUM, MAX, MAX_COUNT, LATEST, MOMENTS)


@cache
def build_rule_loop(loop: Loop, rule: Rule) -> Loop:
    """Return a loop over cells under a rule: n, N and N2 in its signature are of the rule's numbers.

    One under a user's own rule stays plain where Numba refuses it.
    """
    assert loop.signature is not None, "a loop over cells says its types"
    signature = loop.signature.translate(str.maketrans("nN", "fF" if rule.floats else "iI"))
    rules = {"merge": rule.merge, "merge_numbers": rule.merge_numbers or merge_numbers}
    ruled = loop.with_rules(signature, **rules)
    return CheckedFunction.of(ruled, rule.merge) if isinstance(rule.merge, CheckedFunction) else ruled


INT64_MAX = 2**63 - 1
INFINITY_BITS = 0x7FF0000000000000
NAN_BITS = 0x7FF8000000000000


@loop("I2 Ir I2")
def count_rows(runs: Ints, cells: Ints, counts: Ints) -> None:
    """Count rows: counts int64[m, 1]."""
    for r in range(runs.shape[0]):
        start, stop, cell = runs[r, 0], runs[r, 1], runs[r, 2]
        if cell >= 0:
            counts[cell, 0] += stop - start
            continue
        own = cells[start:stop]
        for i in range(own.shape[0]):
            counts[np.uint64(own[i]), 0] += 1


@loop("I2 Ir Ir I2")
def sum_ints(runs: Ints, cells: Ints, values: Ints, sums: Ints) -> None:
    """Sum integers exactly: sums int64[m, 2] hold the upper and the lower 32 bits of the values apart.

    Neither part can overflow before 2^31 rows in one window.
    """
    for r in range(runs.shape[0]):
        start, stop, cell = runs[r, 0], runs[r, 1], runs[r, 2]
        own, added = cells[start:stop], values[start:stop]
        if cell >= 0:
            upper = lower = np.int64(0)
            for i in range(added.shape[0]):
                upper += added[i] >> 32
                lower += added[i] & 0xFFFFFFFF
            sums[cell, 0] += upper
            sums[cell, 1] += lower
        else:
            for i in range(added.shape[0]):
                at = np.uint64(own[i])
                sums[at, 0] += added[i] >> 32
                sums[at, 1] += added[i] & 0xFFFFFFFF


@loop("I2 Ir Fr F2", reassociate=True)
def sum_floats(runs: Ints, cells: Ints, values: Floats, sums: Floats) -> None:
    """Sum floats: sums float64[m, 1]."""
    for r in range(runs.shape[0]):
        start, stop, cell = runs[r, 0], runs[r, 1], runs[r, 2]
        own, added = cells[start:stop], values[start:stop]
        if cell >= 0:
            total = 0.0
            for i in range(added.shape[0]):
                total += added[i]
            sums[cell, 0] += total
        else:
            for i in range(added.shape[0]):
                sums[np.uint64(own[i]), 0] += added[i]


@loop("I2 Ir Ir i I2")
def keep_max(runs: Ints, cells: Ints, values: Ints, flip: int, greatest: Ints) -> None:
    """Keep the greatest value ^ flip: flip is 0 for the greatest value and -1 for the least."""
    for r in range(runs.shape[0]):
        start, stop, cell = runs[r, 0], runs[r, 1], runs[r, 2]
        own, added = cells[start:stop], values[start:stop]
        if cell >= 0:
            most = greatest[cell, 0]
            for i in range(added.shape[0]):
                most = max(most, added[i] ^ flip)
            greatest[cell, 0] = most
        else:
            for i in range(added.shape[0]):
                at = np.uint64(own[i])
                greatest[at, 0] = max(greatest[at, 0], added[i] ^ flip)


@loop("I2 Ir Ir i I2")
def count_max(runs: Ints, cells: Ints, values: Ints, flip: int, counted: Ints) -> None:
    """Keep the greatest value ^ flip and how many rows have it: counted int64[m, 2]."""
    for r in range(runs.shape[0]):
        start, stop, cell = runs[r, 0], runs[r, 1], runs[r, 2]
        own, added = cells[start:stop], values[start:stop]
        if cell >= 0:
            most = counted[cell, 0]
            for i in range(added.shape[0]):
                most = max(most, added[i] ^ flip)
            n_equal = counted[cell, 1] if most == counted[cell, 0] else 0
            for i in range(added.shape[0]):
                n_equal += np.int64(added[i] ^ flip == most)
            counted[cell, 0] = most
            counted[cell, 1] = n_equal
        else:
            for i in range(added.shape[0]):
                value = added[i] ^ flip
                at = np.uint64(own[i])
                if value > counted[at, 0]:
                    counted[at, 0] = value
                    counted[at, 1] = 1
                elif value == counted[at, 0]:
                    counted[at, 1] += 1


@loop("I2 Ir Ir Ir Ir i I2")
def keep_latest(
    runs: Ints, cells: Ints, times: Ints, orders: Ints, values: Ints, flip: int, latest: Ints
) -> None:
    """Keep (time ^ flip, order ^ flip, value) of the greatest: the last row, or with flip -1 the first."""
    for r in range(runs.shape[0]):
        for i in range(runs[r, 0], runs[r, 1]):
            cell = runs[r, 2] if runs[r, 2] >= 0 else cells[i]
            time = times[i] ^ flip
            if time < latest[cell, 0]:
                continue
            order = orders[i] ^ flip
            if time == latest[cell, 0]:
                if order < latest[cell, 1]:
                    continue
                if order == latest[cell, 1] and values[i] <= latest[cell, 2]:
                    continue
            latest[cell, 0] = time
            latest[cell, 1] = order
            latest[cell, 2] = values[i]


@loop()
def add_moment(moments: Floats, cell: int, value: float) -> None:
    """Add one value to (n, mean, sum of squared distances), as Welford does."""
    n = moments[cell, 0] + 1.0
    apart = value - moments[cell, 1]
    mean = moments[cell, 1] + apart / n
    moments[cell, 2] += apart * (value - mean)
    moments[cell, 1] = mean
    moments[cell, 0] = n


@loop("I2 Ir Fr F2 F2", reassociate=True)
def add_moments(runs: Ints, cells: Ints, values: Floats, part: Floats, moments: Floats) -> None:
    """Keep (n, mean, sum of squared distances): moments float64[m, 3].

    The rows of a run are gone through twice, for the mean and for the distances from it, in `part`
    float64[1, 3]. Where their sum leaves the floats they are added one by one, which needs no sum.
    """
    for r in range(runs.shape[0]):
        start, stop, cell = runs[r, 0], runs[r, 1], runs[r, 2]
        own, added = cells[start:stop], values[start:stop]
        if cell < 0:
            for i in range(added.shape[0]):
                add_moment(moments, np.uint64(own[i]), added[i])
            continue
        total = 0.0
        for i in range(added.shape[0]):
            total += added[i]
        mean = total / added.shape[0]
        if not np.isfinite(mean):
            for i in range(added.shape[0]):
                add_moment(moments, cell, added[i])
            continue
        squares = 0.0
        for i in range(added.shape[0]):
            squares += (added[i] - mean) * (added[i] - mean)
        part[0, 0], part[0, 1], part[0, 2] = added.shape[0], mean, squares
        merge_moments(moments, cell, part, 0)


@loop("Ir N2 N2 I")
def add_parts(cells: Ints, parts: Cells, state: Cells, at: Ints) -> None:
    """Merge each part into its cell; `at` is where it is, so that a failure can be reported.

    cells  int64[n]
    parts  [n, w]    as a fold lifts them from rows, or cells that are to be one with others
    state  [m, w]    updated
    at     int64[1]  written
    """
    for i in range(cells.shape[0]):
        at[0] = i
        merge(state, cells[i], parts, i)


def row_by_row(cells: Ints) -> tuple[Ints, Ints]:
    """Return (runs, cells) of rows that have each a cell of its own: one run over all."""
    return np.array([[0, len(cells), -1]], np.int64), cells


@loop("Ir I")
def encode_floats(bits: Ints, ordered: Ints) -> None:
    """Write integers in the order of floats, which come as bits: NaN greatest, -0.0 the same as 0.0."""
    for i in range(bits.shape[0]):
        b = bits[i]
        size = b & INT64_MAX
        value = -size if b < 0 else size  # so that -0.0 and 0.0 are both 0
        ordered[i] = NAN_BITS if size > INFINITY_BITS else value


def decode_floats(ordered: Ints) -> Floats:
    """Return the floats back from integers in their order; the inverse of `encode_floats`."""
    bits = np.where(ordered < 0, (-ordered) | np.int64(-(2**63)), ordered)
    return bits.view(np.float64)
