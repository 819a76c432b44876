"""The kernels of the B-PAT: load leaves, init and update a level, compute windows (V-B, Figs. 9 to 11).

A tree is a flat array: first the leaves, a power of two of them, then level 1, level 2 and so on; the
parent of node i is (i >> 1) | leaves. Leaf `i mod m` holds slice i, where m <= leaves; leaves from m on
are neutral for ever. Levels above log2(slices per window) are never read, so they are not kept.

trees  number[slots * nodes, width]  the tree of a slot from row slot * nodes on
which  int64[n]     the slots whose trees are meant: all of them at once, one thread per (slot, node)
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import cuda

from penstock.frozen import dataclass
from penstock.kernels.cuda.registers import device_merge
from penstock.kernels.rules import Rule


@dataclass(frozen=True, slots=True)
class TreeKernels:
    """Compiled for one rule. Launch as kernel[grid, block, stream](...)."""

    init_level: Any
    update_level: Any
    compute: Any


def _load_leaves(
    ring: Any,
    size: Any,
    low: Any,
    high: Any,
    neutral: Any,
    trees: Any,
    nodes: Any,
    which: Any,
    m: Any,
    start: Any,
    n: Any,
) -> None:
    """Copy slices start .. start + n from the ring to their leaves; outside low .. high there are none."""
    for i in range(cuda.grid(1), which.shape[0] * n, cuda.gridsize(1)):
        slot = which[i // n]
        piece = start + i % n
        held = low <= piece <= high
        for part in range(neutral.shape[0]):
            cell = ring[slot * size + piece % size, part] if held else neutral[part]
            trees[slot * nodes + piece % m, part] = cell


load_leaves = cuda.jit(_load_leaves)


@cache
def tree_kernels(rule: Rule) -> TreeKernels:
    """The three kernels around a rule: made once per process, and compiled when first launched."""
    merge = device_merge(rule)

    def init_level(trees: Any, nodes: Any, which: Any, below: Any, above: Any, n_above: Any) -> None:
        """Fill a level of n_above nodes, starting at node `above`, from the level that starts at `below`."""
        for i in range(cuda.grid(1), which.shape[0] * n_above, cuda.gridsize(1)):
            tree = which[i // n_above] * nodes
            node = i % n_above
            left = tree + below + 2 * node
            for part in range(trees.shape[1]):
                trees[tree + above + node, part] = trees[left, part]
            merge(trees, tree + above + node, trees, left + 1)

    def update_level(
        trees: Any, nodes: Any, which: Any, below: Any, above: Any, n_above: Any, offset: Any, n_update: Any
    ) -> None:
        """The same for n_update <= n_above nodes from `offset` on, round the end of the level if need be."""
        for i in range(cuda.grid(1), which.shape[0] * n_update, cuda.gridsize(1)):
            tree = which[i // n_update] * nodes
            node = (offset + i % n_update) % n_above
            left = tree + below + 2 * node
            for part in range(trees.shape[1]):
                trees[tree + above + node, part] = trees[left, part]
            merge(trees, tree + above + node, trees, left + 1)

    def compute(
        trees: Any, nodes: Any, which: Any, leaves: Any, m: Any, lo: Any, hi: Any, results: Any
    ) -> None:
        """Window w of a slot is the slices lo[w] .. hi[w]; from leaf lo[w] mod m on, round the end at m.

        results  number[slots * windows, width], neutral on entry; windows of one slot side by side

        Each turn takes the largest node that starts at `at` and holds no more slices than are left: its
        size divides `at`, and is the largest power of two at most the slices left (the paper's
        nextPowerOf2 would take too many). A node that reaches over m holds neutral leaves there.
        """
        n_windows = lo.shape[0]
        for i in range(cuda.grid(1), which.shape[0] * n_windows, cuda.gridsize(1)):
            tree = which[i // n_windows] * nodes
            at = lo[i % n_windows] % m
            left = hi[i % n_windows] - lo[i % n_windows]
            while left > 0:
                taken = 1
                node = at
                while at % (2 * taken) == 0 and 2 * taken <= left:
                    node = (node >> 1) | leaves
                    taken *= 2
                merge(results, i, trees, tree + node)
                left -= min(taken, m - at)
                at += taken
                if at >= m:
                    at = 0

    return TreeKernels(cuda.jit(init_level), cuda.jit(update_level), cuda.jit(compute))
