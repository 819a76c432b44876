"""Which windows are ready to be emitted, ring by ring, and the slices of each.

Windows that touch no ring are never listed, however long a time without rows is. A period is cut at
`offsets` (`timing/slices.py`), so slice and time are found from each other by arithmetic and a short search.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile.loops import loop
from penstock.kernels.windows.slice_loop import BASE, CLEAN, END, FIRST, LATE_FROM, LATE_TO, MASK

Ints = npt.NDArray[np.int64]

SWEPT, ADVANCE, LACKING, LATE, WIDEST = range(5)
"""What putting windows together will take: slices that the windows of a ring cover, slices since their
first window's end, slices that trees lack, slices that came late to them, and the most of one ring."""


@loop()
def slice_start(id_: int, period: int, offsets: Ints) -> int:
    """Return the first time of a slice."""
    n: int = offsets.shape[0]
    rounds = id_ // n
    start: int = rounds * period + offsets[id_ - rounds * n]
    return start


@loop()
def slice_of(time: int, period: int, offsets: Ints) -> int:
    """Return the slice that holds a time."""
    rounds = time // period
    within = time - rounds * period
    n: int = offsets.shape[0]
    index = n - 1
    while offsets[index] > within:
        index -= 1
    return rounds * n + index


@loop("I2 i i i i i Ir I I")
def count_ready(
    rings: Ints,
    size: int,
    every: int,
    after: int,
    upto: int,
    period: int,
    offsets: Ints,
    firsts: Ints,
    counts: Ints,
) -> int:
    """Count the windows with after < end <= upto over each ring, and find the first; return the total."""
    total = 0
    for r in range(rings.shape[0]):
        held_from = max(slice_start(rings[r, FIRST], period, offsets), after)
        held_to = slice_start(rings[r, END], period, offsets)
        firsts[r] = (held_from - size) // every * every + every
        last = min((held_to - 1) // every * every, (upto - size) // every * every)
        counts[r] = max((last - firsts[r]) // every + 1, 0)
        total += counts[r]
    return total


@loop("I2 i i i Ir I I i I I I I I")
def list_ready(
    rings: Ints,
    size: int,
    every: int,
    period: int,
    offsets: Ints,
    firsts: Ints,
    counts: Ints,
    most: int,
    starts: Ints,
    lo: Ints,
    hi: Ints,
    ends: Ints,
    effort: Ints,
) -> int:
    """List at most `most` windows of each ring, and take them off what is to be listed; how many they are.

    firsts, counts  int64[r]  what `count_ready` found, moved on by what is listed here
    starts, lo, hi  int64[n]  written: the start and the slices [lo, hi) that the ring has of each window
    ends            int64[r]  written: one past each ring's last window
    effort          int64[5]  added to
    """
    n: int = 0
    for r in range(rings.shape[0]):
        begin = n
        first, end = rings[r, FIRST], rings[r, END]
        for _ in range(min(counts[r], most)):
            starts[n] = firsts[r]
            lo[n] = max(slice_of(firsts[r], period, offsets), first)
            hi[n] = min(slice_of(firsts[r] + size, period, offsets), end)
            firsts[r] += every
            counts[r] -= 1
            n += 1
        ends[r] = n
        if n > begin:
            past = hi[n - 1]
            effort[SWEPT] += past - lo[begin]
            effort[WIDEST] = max(effort[WIDEST], past - lo[begin])
            effort[ADVANCE] += past - hi[begin] + 1
            effort[LACKING] += max(past - max(rings[r, CLEAN], first), 0)
            effort[LATE] += max(rings[r, LATE_TO] - rings[r, LATE_FROM], 0)
    return n


@loop("I2 I2 I2 I")
def clear_ints(cells: Ints, neutral: Ints, rings: Ints, past: Ints) -> None:
    """Make the cells of slices [FIRST, past[r]) of every ring neutral."""
    for r in range(rings.shape[0]):
        for id_ in range(rings[r, FIRST], past[r]):
            for part in range(cells.shape[1]):
                cells[rings[r, BASE] + (id_ & rings[r, MASK]), part] = neutral[0, part]


@loop("F2 F2 I2 I")
def clear_floats(
    cells: npt.NDArray[np.float64], neutral: npt.NDArray[np.float64], rings: Ints, past: Ints
) -> None:
    """Do what `clear_ints` does, for cells of floats."""
    for r in range(rings.shape[0]):
        for id_ in range(rings[r, FIRST], past[r]):
            for part in range(cells.shape[1]):
                cells[rings[r, BASE] + (id_ & rings[r, MASK]), part] = neutral[0, part]
