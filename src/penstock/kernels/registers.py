"""Rows into cells: one pass per register over (cell of the row, value of the row).

Nulls have been left out by the caller, so no loop asks for them. Cells are rows of the arrays that `rules`
describes. The cell numbers come from `cells`, which keeps them inside the arrays.

A float sum adds row by row: its error is below n × 1.2e-16 of the sum of magnitudes for n rows in one cell.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GREATEST_INT = 2**63 - 1
INFINITY_BITS = 0x7FF0000000000000
NAN_BITS = 0x7FF8000000000000


@loop("Ir I2")
def add_ones(cells: Ints, counts: Ints) -> None:
    """Count rows: counts int64[m, 1]."""
    for i in range(cells.shape[0]):
        counts[cells[i], 0] += 1


@loop("Ir Ir I2")
def add_wide(cells: Ints, values: Ints, sums: Ints) -> None:
    """Sum integers exactly: sums int64[m, 2] hold the upper and the lower 32 bits of the values apart.

    Neither part can overflow before 2^31 rows in one window.
    """
    for i in range(cells.shape[0]):
        sums[cells[i], 0] += values[i] >> 32
        sums[cells[i], 1] += values[i] & 0xFFFFFFFF


@loop("Ir Fr F2")
def add_floats(cells: Ints, values: Floats, sums: Floats) -> None:
    """Sum floats: sums float64[m, 1]."""
    for i in range(cells.shape[0]):
        sums[cells[i], 0] += values[i]


@loop("Ir Ir i I2")
def add_greatest(cells: Ints, values: Ints, flip: int, greatest: Ints) -> None:
    """Keep the greatest value ^ flip: flip is 0 for the greatest value and -1 for the least."""
    for i in range(cells.shape[0]):
        value = values[i] ^ flip
        greatest[cells[i], 0] = max(greatest[cells[i], 0], value)


@loop("Ir Ir i I2")
def add_counted(cells: Ints, values: Ints, flip: int, counted: Ints) -> None:
    """Keep the greatest value ^ flip and how many rows have it: counted int64[m, 2]."""
    for i in range(cells.shape[0]):
        value = values[i] ^ flip
        cell = cells[i]
        if value > counted[cell, 0]:
            counted[cell, 0] = value
            counted[cell, 1] = 1
        elif value == counted[cell, 0]:
            counted[cell, 1] += 1


@loop("Ir Ir Ir Ir i I2")
def add_latest(cells: Ints, times: Ints, orders: Ints, values: Ints, flip: int, latest: Ints) -> None:
    """Keep (time ^ flip, order ^ flip, value) of the greatest: the last row, or with flip -1 the first."""
    for i in range(cells.shape[0]):
        cell = cells[i]
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


@loop("Ir Fr F2")
def add_moments(cells: Ints, values: Floats, moments: Floats) -> None:
    """Keep (n, mean, sum of squared distances), row by row as Welford does: moments float64[m, 3]."""
    for i in range(cells.shape[0]):
        cell = cells[i]
        n = moments[cell, 0] + 1.0
        apart = values[i] - moments[cell, 1]
        mean = moments[cell, 1] + apart / n
        moments[cell, 2] += apart * (values[i] - mean)
        moments[cell, 1] = mean
        moments[cell, 0] = n


@loop("Ir I")
def order_floats(bits: Ints, ordered: Ints) -> None:
    """Integers in the order of floats, given as their bits: NaN greatest, -0.0 the same as 0.0."""
    for i in range(bits.shape[0]):
        b = bits[i]
        size = b & GREATEST_INT
        value = -size if b < 0 else size  # so that -0.0 and 0.0 are both 0
        ordered[i] = NAN_BITS if size > INFINITY_BITS else value


def floats_of(ordered: Ints) -> Floats:
    """The floats back from integers in their order; the inverse of `order_floats`."""
    bits = np.where(ordered < 0, (-ordered) | np.int64(-(2**63)), ordered)
    return bits.view(np.float64)
