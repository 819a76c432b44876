"""The B-PATs of all slots and registers: which leaves are loaded, what must be computed again (IV-B, V-B).

All trees move together: their leaves hold the same slices. A slot whose trees were left behind, because it
had no rows for a while, is built anew from the ring; the others load the slices that are new, or that
changed since they were loaded, and update the nodes above them. So a slice that earlier windows used may
still take rows: the ring has the truth, a leaf is a copy of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.kernels.cuda.launch import Launch
from penstock.kernels.cuda.panes import fill
from penstock.kernels.cuda.ring import Ring
from penstock.kernels.cuda.sorting import power_of_two
from penstock.kernels.cuda.tree import load_leaves, tree_kernels
from penstock.kernels.rules import Rule

Array = npt.NDArray[Any]


class Forest:
    """Trees over `n_leaves` consecutive slices of every slot, for windows of up to `longest` slices."""

    def __init__(self, rules: Sequence[Rule], launch: Launch, n_leaves: int, longest: int) -> None:
        self._rules, self._launch, self._m = tuple(rules), launch, n_leaves
        self._kernels = [tree_kernels(rule) for rule in rules]
        self._neutral = [cuda.to_device(rule.blank(1)[0]) for rule in rules]
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
                    kernels.init_level[grid](trees, self._n_nodes, self._fresh, below, above, n_above)
            below, above = above, above + n_above

    def compute(self, which: Array, lo: Array, hi: Array, stream: Any) -> list[Any]:
        """The cells of windows of slices lo .. hi: a device array [slots * windows, width] per register."""
        n = len(which) * len(lo)
        slots, first, last = (cuda.to_device(each, stream=stream) for each in (which, lo, hi))
        grid, found = (*self._launch.over(n), stream), []
        for rule, kernels, trees, neutral in zip(
            self._rules, self._kernels, self._trees, self._neutral, strict=True
        ):
            results = cuda.device_array((n, rule.width), dtype=rule.dtype, stream=stream)
            fill[grid](results, neutral)
            shape = (self._n_nodes, slots, self._leaves, self._m)
            kernels.compute[grid](trees, *shape, first, last, results)
            found.append(results)
        return found

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
