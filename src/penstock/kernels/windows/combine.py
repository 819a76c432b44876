"""Windows from the slices of rings: which are ready, and two ways to combine their slices.

*Ready windows* are listed ring by ring, with the slices of each. Windows that touch no ring are never listed,
however long a time without rows is. A period is cut at `offsets` (`timing/slices.py`), so slice and time are
found from each other by arithmetic and a short search.

*Sweeps*, where many windows are emitted at once. Suffix results run back from a pivoting point, one running
result runs on from it, and a window is the one of its first slice put together with the other: at most two
merges per slice and one per window, whatever the windows' length (van Herk; Gil and Werman; the two stacks of
Tangwongsan et al.). Order is kept, so the rule need not commute.

*Trees*, where they are few. The batched pane aggregation tree, B-PAT (SPRINGALD, IV-B and V-B), over the ring
of each key. A ring of m = 2^j cells is the row of m leaves. The internal nodes stand in an array beside the
cells, at the same base: with leaves 0 … m-1 the parent of node i is (i >> 1) | m, and node m + x is
nodes[base + x]. Leaves without rows are neutral. Only levels up to the greatest power of two in a window are
kept, since a query never uses more. A window whose slices wrap around the ring is a range like any other.

Invariant: of a ring [FIRST, END) the nodes are right for blocks inside [FIRST, CLEAN) that do not touch the
late range. An update mends both, so leaves that earlier windows have used may change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop
from penstock.kernels.windows.accumulate import merge, merge_numbers
from penstock.kernels.windows.slice_loop import BASE, CLEAN, END, FIRST, LATE_FROM, LATE_TO, MASK

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]


SWEPT, ADVANCE, LACKING, LATE = range(4)
"""What putting windows together will take: slices that the windows of a ring cover, slices since their
first window's end, slices that trees lack, and slices that came late to them."""


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
    effort          int64[4]  added to
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
            effort[ADVANCE] += past - hi[begin] + 1
            effort[LACKING] += max(past - max(rings[r, CLEAN], first), 0)
            effort[LATE] += max(rings[r, LATE_TO] - rings[r, LATE_FROM], 0)
    return n


@loop()
def copy_cell(into: Cells, i: int, other: Cells, j: int) -> None:
    """into[i] = other[j]."""
    for part in range(into.shape[1]):
        into[i, part] = other[j, part]


@loop("N2 N2 I2 I I I N2 N2")
def sweep_windows(
    cells: Cells, neutral: Cells, rings: Ints, ends: Ints, lo: Ints, hi: Ints, scratch: Cells, out: Cells
) -> None:
    """Combine the slices of every ring into its windows.

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
        start = pivot = done = lo[window] if window < ends[r] else 0
        while window < ends[r]:
            first = lo[window]
            past = hi[window]
            if first >= pivot:
                start = first
                pivot = done = past
                copy_cell(scratch, running, neutral, 0)
                for id_ in range(past - 1, first - 1, -1):
                    copy_cell(scratch, id_ - start, cells, base + (id_ & mask))
                    if id_ + 1 < past:
                        merge(scratch, id_ - start, scratch, id_ + 1 - start)
            for id_ in range(done, past):
                merge(scratch, running, cells, base + (id_ & mask))
            done = max(done, past)
            copy_cell(out, window, scratch, first - start)
            merge(out, window, scratch, running)
            window += 1


@loop("N I2 I I I n N N")
def sweep_numbers(
    cells: Cells, rings: Ints, ends: Ints, lo: Ints, hi: Ints, neutral: float, scratch: Cells, out: Cells
) -> None:
    """Do what `sweep_windows` does, for cells of one number, which stays in a machine register."""
    window = 0
    for r in range(rings.shape[0]):
        base = rings[r, BASE]
        mask = rings[r, MASK]
        start = pivot = done = lo[window] if window < ends[r] else 0
        running = neutral
        while window < ends[r]:
            first = lo[window]
            past = hi[window]
            if first >= pivot:
                start = first
                pivot = past
                running = neutral
                for id_ in range(past - 1, first - 1, -1):
                    running = merge_numbers(cells[base + (id_ & mask)], running)
                    scratch[id_ - start] = running
                running = neutral
                done = past
            for id_ in range(done, past):
                running = merge_numbers(running, cells[base + (id_ & mask)])
            done = max(done, past)
            # A window without slices, as gaps leave them, has nothing behind the pivoting point.
            out[window] = merge_numbers(scratch[first - start], running) if first < pivot else running
            window += 1


@loop()
def rebuild_nodes(cells: Cells, nodes: Cells, base: int, m: int, levels: int, first: int, past: int) -> None:
    """Compute the nodes above slices [first, past) again, level by level (Figs. 9 and 10)."""
    if first >= past:
        return
    below = 0  # where the level below begins among the nodes
    for level in range(1, levels + 1):
        if m >> level == 0:
            return
        here = m - (m >> (level - 1))
        for block in range(first >> level, ((past - 1) >> level) + 1):
            at = block & ((m >> level) - 1)
            if level == 1:
                copy_cell(nodes, base + at, cells, base + 2 * at)
                merge(nodes, base + at, cells, base + 2 * at + 1)
            else:
                copy_cell(nodes, base + here + at, nodes, base + below + 2 * at)
                merge(nodes, base + here + at, nodes, base + below + 2 * at + 1)
        below = here


@loop("N2 N2 I2 I i")
def update_trees(cells: Cells, nodes: Cells, rings: Ints, past: Ints, levels: int) -> None:
    """Make every tree right up to slice past[r], where it is not: what is new and what came late.

    cells, nodes  [c, w]
    rings         int64[r, 8]  read only: several registers share one note of what is clean
    past          int64[r]     at most END
    """
    for r in range(rings.shape[0]):
        base = rings[r, BASE]
        m = rings[r, MASK] + 1
        fresh = max(rings[r, CLEAN], rings[r, FIRST])
        rebuild_nodes(
            cells, nodes, base, m, levels, max(rings[r, LATE_FROM], rings[r, FIRST]), rings[r, LATE_TO]
        )
        rebuild_nodes(cells, nodes, base, m, levels, fresh, past[r])


@loop("N2 N2 N2 I2 I I I i N2")
def query_windows(
    cells: Cells,
    nodes: Cells,
    neutral: Cells,
    rings: Ints,
    ends: Ints,
    lo: Ints,
    hi: Ints,
    levels: int,
    out: Cells,
) -> None:
    """Put together the windows of every ring from as few nodes as there are (Fig. 11).

    From the left, each step takes the greatest block that begins here: its length divides the position,
    is at most the slices left (the figure rounds up, which would take too many), and has a level.
    Arguments as in `sweep_windows`; all slices lie below what `update` was given.
    """
    window = 0
    for r in range(rings.shape[0]):
        base = rings[r, BASE]
        m = rings[r, MASK] + 1
        while window < ends[r]:
            copy_cell(out, window, neutral, 0)
            id_ = lo[window]
            while id_ < hi[window]:
                node = id_ & (m - 1)
                at = node
                length = 1
                level = 0
                # Climb while the node is a left child and its parent still lies inside the window.
                while (
                    level < levels and 2 * length <= hi[window] - id_ and at & length == 0 and 2 * length <= m
                ):
                    node = (node >> 1) | m
                    length *= 2
                    level += 1
                if level == 0:
                    merge(out, window, cells, base + node)
                else:
                    merge(out, window, nodes, base + node - m)
                id_ += length
            window += 1
