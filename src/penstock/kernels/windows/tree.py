"""Windows from the slices of rings: two sweeps where many are emitted at once, a tree where they are few.

*Sweeps.* Suffix results run back from a pivoting point, one running result runs on from it, and a window is
the one of its first slice put together with the other: at most two merges per slice and one per window,
whatever the windows' length (van Herk; Gil and Werman; the two stacks of Tangwongsan et al.). Order is
kept, so the rule need not commute.

*Trees.* The batched pane aggregation tree, B-PAT (SPRINGALD, IV-B and V-B), over the ring of each key. A
ring of m = 2^j cells is the row of m leaves. The internal nodes stand in an array beside the cells, at the
same base: with leaves 0 … m-1 the parent of node i is (i >> 1) | m, and node m + x is nodes[base + x].
Leaves without rows are neutral. Only levels up to the greatest power of two in a window are kept, since a
query never uses more. A window whose slices wrap around the ring is a range like any other.

Invariant: of a ring [FIRST, END) the nodes are right for blocks inside [FIRST, CLEAN) that do not touch the
late range. An update mends both, so leaves that earlier windows have used may change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile.loops import Loop, loop
from penstock.kernels.windows.accumulate import RULES, Rule, merge
from penstock.kernels.windows.slice_loop import BASE, CLEAN, FIRST, LATE_FROM, LATE_TO, MASK

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]


@loop()
def copy_cell(into: Cells, i: int, other: Cells, j: int) -> None:
    """into[i] = other[j]."""
    for part in range(into.shape[1]):
        into[i, part] = other[j, part]


@loop()
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


@loop()
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
                    running = merge(cells[base + (id_ & mask)], running)
                    scratch[id_ - start] = running
                running = neutral
                done = past
            for id_ in range(done, past):
                running = merge(running, cells[base + (id_ & mask)])
            done = max(done, past)
            # A window without slices, as gaps leave them, has nothing behind the pivoting point.
            out[window] = merge(scratch[first - start], running) if first < pivot else running
            window += 1


@loop("I2 I2 I I I I2 I2")
def subtract_prefixes(
    cells: Ints, rings: Ints, ends: Ints, lo: Ints, hi: Ints, scratch: Ints, out: Ints
) -> None:
    """Do what `sweep_windows` does, for exact sums: the prefix up to a window's end less that up to its
    start.

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


@loop()
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


@loop()
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


SWEEPS: dict[str, Loop] = {}
UPDATES: dict[str, Loop] = {}
QUERIES: dict[str, Loop] = {}
NUMBER_SWEEPS: dict[str, Loop] = {}
"""For rules of one number, on flat arrays."""


def define_loops(rule: Rule, *, cached: bool = True) -> None:
    """Make the loops for a rule, under its name.

    A user's own rule is not kept in the on-disk cache, since its code is not the package's.
    """
    x = "F2" if rule.floats else "I2"
    if rule.merge_numbers is not None:
        n, line = ("f", "F") if rule.floats else ("i", "I")
        signature = f"{line} I2 I I I {n} {line} {line}"
        NUMBER_SWEEPS[rule.name] = sweep_numbers.with_rules(
            signature, merge=rule.merge_numbers, cached=cached
        )
    SWEEPS[rule.name] = sweep_windows.with_rules(f"{x} {x} I2 I I I {x} {x}", merge=rule.merge, cached=cached)
    UPDATES[rule.name] = update_trees.with_rules(f"{x} {x} I2 I i", merge=rule.merge, cached=cached)
    QUERIES[rule.name] = query_windows.with_rules(
        f"{x} {x} {x} I2 I I I i {x}", merge=rule.merge, cached=cached
    )


for _rule in RULES:
    define_loops(_rule)
