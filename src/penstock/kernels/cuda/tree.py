"""The B-PATs of all slots, and their kernels: load leaves, update a level, compute windows (V-B).

A tree is a flat array: first the leaves, a power of two of them, then level 1, level 2 and so on; the
parent of node i is (i >> 1) | leaves. Leaf `i mod m` holds slice i, where m <= leaves; leaves from m on
are neutral for ever. Levels above log2(slices per window) are never read, so they are not kept.

trees  number[slots * nodes, width]  the tree of a slot from row slot * nodes on
which  int64[n]     the slots whose trees are meant: all of them at once, one thread per (slot, node)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.frozen import dataclass
from penstock.kernels.cuda.accumulators import device_merge
from penstock.kernels.cuda.device import Launch
from penstock.kernels.cuda.panes import fill, power_of_two
from penstock.kernels.cuda.ring import Ring
from penstock.kernels.windows.accumulate import Rule


@dataclass(frozen=True, slots=True)
class TreeKernels:
    """Compiled for one rule. Launch as kernel[grid, block, stream](...)."""

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
    """Return the kernels around a rule: made once per process, and compiled when first launched."""
    merge = device_merge(rule)

    def update_level(
        trees: Any, nodes: Any, which: Any, below: Any, above: Any, n_above: Any, offset: Any, n_update: Any
    ) -> None:
        """Compute n_update <= n_above nodes of a level from `offset` on, round its end if need be.

        The level starts at node `above`, the one below it at node `below`.
        """
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

        Each step takes the largest node that starts at `at` and holds no more slices than are left: its
        size divides `at`, and is the largest power of two at most the slices left (the paper's
        nextPowerOf2 would take too many). A node that reaches over m holds neutral leaves there.
        """
        n_windows = lo.shape[0]
        for i in range(cuda.grid(1), which.shape[0] * n_windows, cuda.gridsize(1)):
            tree = which[i // n_windows] * nodes
            at = lo[i % n_windows] % m
            left = hi[i % n_windows] - lo[i % n_windows]
            while left > 0:
                length = 1
                node = at
                while at % (2 * length) == 0 and 2 * length <= left:
                    node = (node >> 1) | leaves
                    length *= 2
                merge(results, i, trees, tree + node)
                left -= min(length, m - at)
                at += length
                if at >= m:
                    at = 0

    return TreeKernels(cuda.jit(update_level), cuda.jit(compute))


Array = npt.NDArray[Any]


class Forest:
    """Trees over `n_leaves` consecutive slices of every slot, for windows of up to `longest` slices (IV-B,
    V-B).

    All trees move together: their leaves hold the same slices. A slot whose trees were left behind, because
    it had no rows for a while, is built anew from the ring; the others load the slices that are new, or
    that changed since they were loaded, and update the nodes above them. Invariant: the ring has the truth,
    a leaf is a copy of it.
    """

    def __init__(self, rules: Sequence[Rule], launch: Launch, n_leaves: int, longest: int) -> None:
        self._rules, self._launch, self._m = tuple(rules), launch, n_leaves
        self._kernels = [tree_kernels(rule) for rule in rules]
        self._neutral = [cuda.to_device(rule.neutral_cells(1)[0]) for rule in rules]
        self._leaves = power_of_two(n_leaves)
        self._top = longest.bit_length() - 1  # nodes of more slices than a window are not kept
        self._n_nodes = sum(self._leaves >> level for level in range(self._top + 1))
        self._loaded_to = 0
        self._grow(0)

    @property
    def nbytes(self) -> int:
        """Device memory in use."""
        return sum(int(trees.nbytes) for trees in self._trees)

    def load(self, ring: Ring, which: Array, start: int, changed: int, stream: Any) -> None:
        """Put the slices from `start` on into the leaves of some slots; none before `changed` has changed.

        Only this part reads the ring, so whoever holds the ring's turn may give it back after it. Invariant:
        `start` never goes back.
        """
        end = start + self._m
        if ring.n_slots > len(self._built):
            self._grow(ring.n_slots)
        if self._loaded_to <= start:
            self._built[:] = False
        self._standing = cuda.to_device(which[self._built[which]], stream=stream)
        self._fresh = cuda.to_device(which[~self._built[which]], stream=stream)
        self._from, self._to = max(start, min(changed, self._loaded_to)), end
        self._load(ring, self._standing, self._from, end, stream)
        self._load(ring, self._fresh, start, end, stream)
        self._built[:] = False
        self._built[which] = True
        self._loaded_to = end

    def update(self, stream: Any) -> None:
        """Compute again the nodes above what `load` has put into the leaves, level by level."""
        at = self._from % self._m
        n = self._to - self._from
        if at + n > self._m:
            n += self._leaves - self._m  # round the end: the neutral leaves lie on the way
        below, above = 0, self._leaves
        for level in range(1, self._top + 1):
            n_above = self._leaves >> level
            n_update = min(n_above, ((at + n - 1) >> level) - (at >> level) + 1)
            if len(self._standing) and n > 0:
                grid = (*self._launch.over(len(self._standing) * n_update), stream)
                span = (below, above, n_above, at >> level, n_update)
                for kernels, trees in zip(self._kernels, self._trees, strict=True):
                    kernels.update_level[grid](trees, self._n_nodes, self._standing, *span)
            if len(self._fresh):
                grid = (*self._launch.over(len(self._fresh) * n_above), stream)
                for kernels, trees in zip(self._kernels, self._trees, strict=True):
                    kernels.update_level[grid](
                        trees, self._n_nodes, self._fresh, below, above, n_above, 0, n_above
                    )
            below, above = above, above + n_above

    def compute(self, which: Array, lo: Array, hi: Array, stream: Any) -> list[Any]:
        """Return the cells of windows lo .. hi: a device array [slots * windows, width] per accumulator."""
        n = len(which) * len(lo)
        slots, first, last = (cuda.to_device(array, stream=stream) for array in (which, lo, hi))
        grid, windows = (*self._launch.over(n), stream), []
        for rule, kernels, trees, neutral in zip(
            self._rules, self._kernels, self._trees, self._neutral, strict=True
        ):
            results = cuda.device_array((n, rule.width), dtype=rule.dtype, stream=stream)
            fill[grid](results, neutral)
            shape = (self._n_nodes, slots, self._leaves, self._m)
            kernels.compute[grid](trees, *shape, first, last, results)
            windows.append(results)
        return windows

    def _load(self, ring: Ring, which: Any, start: int, end: int, stream: Any) -> None:
        n = end - start
        if len(which) and n > 0:
            grid = (*self._launch.over(len(which) * n), stream)
            for cells, neutral, trees in zip(ring.cells, self._neutral, self._trees, strict=True):
                held = (cells, ring.size, ring.low, ring.high, neutral)
                load_leaves[grid](*held, trees, self._n_nodes, which, self._m, start, n)

    def _grow(self, n_slots: int) -> None:
        """Trees for more slots, all to be built anew, every leaf neutral."""
        n = max(1, n_slots) * self._n_nodes
        self._trees = [cuda.device_array((n, rule.width), dtype=rule.dtype) for rule in self._rules]
        for trees, neutral in zip(self._trees, self._neutral, strict=True):
            fill[self._launch.over(n)](trees, neutral)
        self._built = np.zeros(n_slots, dtype=np.bool_)
        cuda.synchronize()
