"""Many windows of a ring at once, in two sweeps over its slices and no tree.

Suffix results run back from a turning point, one running result runs on from it, and a window is the one of
its first slice put together with the other: at most two merges per slice and one per window, whatever the
windows' length (van Herk; Gil and Werman; the two stacks of Tangwongsan et al.). Order is kept, so the
rule need not commute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.cells import BASE, MASK
from penstock.kernels.loops import loop
from penstock.kernels.rules import merge

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]


@loop()
def copy(into: Cells, i: int, other: Cells, j: int) -> None:
    """into[i] = other[j]."""
    for part in range(into.shape[1]):
        into[i, part] = other[j, part]


@loop()
def sweep(
    cells: Cells, neutral: Cells, rings: Ints, ends: Ints, lo: Ints, hi: Ints, scratch: Cells, out: Cells
) -> None:
    """Put together the windows of every ring.

    cells    [c, w]       the slices' results
    neutral  [1, w]
    rings    int64[r, 8]
    ends     int64[r]     one past each ring's last window
    lo, hi   int64[n]     the slices [lo, hi) of each window, never falling within a ring
    scratch  [s, w]       s at least the longest hi - lo, and one more
    out      [n, w]       written
    """
    running = scratch.shape[0] - 1
    window = 0
    for r in range(rings.shape[0]):
        base = rings[r, BASE]
        mask = rings[r, MASK]
        start = turn = done = lo[window] if window < ends[r] else 0
        while window < ends[r]:
            first = lo[window]
            past = hi[window]
            if first >= turn:
                start = first
                turn = done = past
                copy(scratch, running, neutral, 0)
                for id_ in range(past - 1, first - 1, -1):
                    copy(scratch, id_ - start, cells, base + (id_ & mask))
                    if id_ + 1 < past:
                        merge(scratch, id_ - start, scratch, id_ + 1 - start)
            for id_ in range(done, past):
                merge(scratch, running, cells, base + (id_ & mask))
            done = max(done, past)
            copy(out, window, scratch, first - start)
            merge(out, window, scratch, running)
            window += 1


@loop()
def sweep_numbers(
    cells: Cells, rings: Ints, ends: Ints, lo: Ints, hi: Ints, neutral: float, scratch: Cells, out: Cells
) -> None:
    """As `sweep` for cells of one number, in flat arrays: what runs stays in a register of the machine."""
    window = 0
    for r in range(rings.shape[0]):
        base = rings[r, BASE]
        mask = rings[r, MASK]
        start = turn = done = lo[window] if window < ends[r] else 0
        running = neutral
        while window < ends[r]:
            first = lo[window]
            past = hi[window]
            if first >= turn:
                start = first
                turn = past
                running = neutral
                for id_ in range(past - 1, first - 1, -1):
                    running = merge(cells[base + (id_ & mask)], running)
                    scratch[id_ - start] = running
                running = neutral
                done = past
            for id_ in range(done, past):
                running = merge(running, cells[base + (id_ & mask)])
            done = max(done, past)
            # A window without slices, as gaps leave them, has nothing behind the turning point.
            out[window] = merge(scratch[first - start], running) if first < turn else running
            window += 1


@loop("I2 I2 I I I I2 I2")
def subtract(cells: Ints, rings: Ints, ends: Ints, lo: Ints, hi: Ints, scratch: Ints, out: Ints) -> None:
    """As `sweep` for exact sums: a window is what has run up to its end less what had up to its start.

    scratch needs one row more than the slices from a ring's first `lo` to its last `hi`.
    """
    window = 0
    for r in range(rings.shape[0]):
        if window == ends[r]:
            continue
        start, base, mask = lo[window], rings[r, BASE], rings[r, MASK]
        for part in range(cells.shape[1]):
            running = 0
            scratch[0, part] = 0
            for id_ in range(start, hi[ends[r] - 1]):
                running += cells[base + (id_ & mask), part]
                scratch[id_ + 1 - start, part] = running
            for i in range(window, ends[r]):
                out[i, part] = scratch[hi[i] - start, part] - scratch[lo[i] - start, part]
        window = ends[r]
