"""The batched pane aggregation tree, B-PAT (SPRINGALD, IV-B and V-B), over the ring of each key.

A ring of m = 2^j cells is the row of m leaves. The internal nodes stand in an array beside the cells, at the
same base: with leaves 0 … m-1 the parent of node i is (i >> 1) | m, and node m + x is nodes[base + x]. Leaves
without rows are neutral. Only levels up to the greatest power of two in a window are kept, since a query
never uses more. A window whose slices wrap around the ring is a range like any other.

Of a ring [FIRST, END) the nodes are right for blocks inside [FIRST, CLEAN) that do not touch the late range;
an update mends both, so leaves that earlier windows have used may change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.cells import BASE, CLEAN, FIRST, LATE_FROM, LATE_TO, MASK
from penstock.kernels.loops import loop
from penstock.kernels.rules import merge
from penstock.kernels.stacks import copy

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]


@loop()
def mend(cells: Cells, nodes: Cells, base: int, m: int, levels: int, first: int, past: int) -> None:
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
                copy(nodes, base + at, cells, base + 2 * at)
                merge(nodes, base + at, cells, base + 2 * at + 1)
            else:
                copy(nodes, base + here + at, nodes, base + below + 2 * at)
                merge(nodes, base + here + at, nodes, base + below + 2 * at + 1)
        below = here


@loop()
def update(cells: Cells, nodes: Cells, rings: Ints, past: Ints, levels: int) -> None:
    """Make every tree right up to slice past[r], where it is not: what is new and what came late.

    cells, nodes  [c, w]
    rings         int64[r, 8]  read only: several registers share one note of what is clean
    past          int64[r]     at most END
    """
    for r in range(rings.shape[0]):
        base = rings[r, BASE]
        m = rings[r, MASK] + 1
        fresh = max(rings[r, CLEAN], rings[r, FIRST])
        mend(cells, nodes, base, m, levels, max(rings[r, LATE_FROM], rings[r, FIRST]), rings[r, LATE_TO])
        mend(cells, nodes, base, m, levels, fresh, past[r])


@loop()
def query(
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
    Arguments as in `stacks.sweep`; all slices lie below what `update` was given.
    """
    window = 0
    for r in range(rings.shape[0]):
        base = rings[r, BASE]
        m = rings[r, MASK] + 1
        while window < ends[r]:
            copy(out, window, neutral, 0)
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
