"""The memory of cells: one array per accumulator, in blocks of 2^j cells, with a free list per size.

Invariant: cells of free blocks, and cells of a ring outside the slices it holds, are neutral. So taking a
block costs nothing and a missing slice reads as one without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop
from penstock.kernels.windows.accumulate import Rule, build_rule_loop
from penstock.kernels.windows.slice_loop import BASE, FIRST, MASK, MIN_RING_CELLS

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]


@loop("N2 N2 I2 I")
def clear_cells(cells: Cells, neutral: Cells, rings: Ints, past: Ints) -> None:
    """Make the cells of slices [FIRST, past[r]) of every ring neutral."""
    for r in range(rings.shape[0]):
        for id_ in range(rings[r, FIRST], past[r]):
            for part in range(cells.shape[1]):
                cells[rings[r, BASE] + (id_ & rings[r, MASK]), part] = neutral[0, part]


class FreeBlocks:
    """A stack of block positions, as the loops read it: its height first."""

    def __init__(self) -> None:
        self.stack = np.zeros(16, np.int64)

    def push(self, bases: Ints) -> None:
        """Put blocks back."""
        height = int(self.stack[0])
        if height + len(bases) >= len(self.stack):
            room = np.zeros(2 * (height + len(bases)) + 16, np.int64)
            room[: height + 1] = self.stack[: height + 1]
            self.stack = room
        self.stack[height + 1 : height + 1 + len(bases)] = bases
        self.stack[0] = height + len(bases)

    def pop(self, n: int) -> Ints:
        """Take up to `n` blocks."""
        height = int(self.stack[0])
        n = min(n, height)
        self.stack[0] = height - n
        return self.stack[height - n + 1 : height + 1].copy()


class Arena:
    """The cells of all accumulators, at the same positions in the array of each."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.cells: list[Cells] = [rule.neutral_cells(0) for rule in self.rules]
        self.nodes: list[Cells] | None = None
        self.is_neutral = [False] * len(self.rules)  # accumulators all of whose cells are known to be neutral
        self._free: dict[int, FreeBlocks] = {MIN_RING_CELLS: FreeBlocks()}
        self._top = 0

    @property
    def spare(self) -> Ints:
        """Return the free blocks of SMALLEST cells, for loops to take from."""
        return self._free[MIN_RING_CELLS].stack

    @property
    def n_cells(self) -> int:
        """Return the number of cells there is memory for."""
        return len(self.cells[0])

    @property
    def nbytes(self) -> int:
        """Return the memory of cells, tree nodes and free lists."""
        held = sum(cells.nbytes for cells in self.cells) + sum(
            blocks.stack.nbytes for blocks in self._free.values()
        )
        return held + sum(nodes.nbytes for nodes in self.nodes or ())

    def stock(self, n: int) -> None:
        """Have at least `n` spare blocks."""
        missing = n - int(self.spare[0])
        if missing > 0:
            self._free[MIN_RING_CELLS].push(self._fresh(missing, MIN_RING_CELLS))

    def take(self, sizes: Ints) -> Ints:
        """Return a block for each of the sizes, which are powers of two."""
        bases = np.empty(len(sizes), np.int64)
        for size in sorted(set(sizes.tolist())):
            which = np.flatnonzero(sizes == size)
            old = self._free[size].pop(len(which)) if size in self._free else np.empty(0, np.int64)
            bases[which[: len(old)]] = old
            bases[which[len(old) :]] = self._fresh(len(which) - len(old), size)
        return bases

    def give(self, bases: Ints, sizes: Ints) -> None:
        """Take blocks back, all of whose cells are neutral."""
        for size in sorted(set(sizes.tolist())):
            self._free.setdefault(size, FreeBlocks()).push(bases[sizes == size])

    def move(self, old: Ints, new: Ints) -> None:
        """Move cells to neutral ones; what they leave behind is neutral."""
        for rule, cells in zip(self.rules, self.cells, strict=True):
            cells[new] = cells[old]
            cells[old] = rule.neutral

    def clear(self, rings: Ints, past: Ints, run: Callable[..., Any]) -> None:
        """Make the cells of slices [FIRST, past[r]) of every ring neutral; `run` runs a loop."""
        work = int((past - rings[:, FIRST]).sum())
        for rule, cells, blank in zip(self.rules, self.cells, self.is_neutral, strict=True):
            if not blank:
                run(build_rule_loop(clear_cells, rule), cells, rule.neutral_cells(1), rings, past, work=work)

    @property
    def is_mostly_free(self) -> bool:
        """Return whether so few cells are in blocks in use that moving these frees most of the memory."""
        n_free = sum(int(blocks.stack[0]) * _step(size) for size, blocks in self._free.items())
        return self._top > 8 * (self._top - n_free) + 8192

    def repack(self, old: Ints, sizes: Ints) -> tuple[Ints, list[Cells]]:
        """Give up all memory and take blocks anew: (where they are, the cells that were at `old`)."""
        old_cells = [cells[old] for cells in self.cells]
        self.cells, self.nodes = [rule.neutral_cells(0) for rule in self.rules], None
        self._free, self._top = {MIN_RING_CELLS: FreeBlocks()}, 0
        return self.take(sizes), old_cells

    def tree_nodes(self) -> list[Cells]:
        """Return the nodes of the trees, one array per accumulator, from when a tree is first asked for."""
        if self.nodes is None:
            self.nodes = [rule.neutral_cells(self.n_cells) for rule in self.rules]
        return self.nodes

    def _fresh(self, n: int, size: int) -> Ints:
        step = _step(size)
        start = self._top
        self._top += n * step
        if self._top > self.n_cells:
            more = max(self._top, 2 * self.n_cells, 64) - self.n_cells
            for arrays in (self.cells, self.nodes or []):
                for place, old in enumerate(arrays):
                    arrays[place] = np.concatenate([old, self.rules[place].neutral_cells(more)])
        return start + step * np.arange(n, dtype=np.int64)


def _step(size: int) -> int:
    """Return the distance from one block of a size to the next.

    Why: rings of equal power-of-two size would all have the same slice in the same few lines of the cache;
    a cache line between blocks spreads them.
    """
    return size + 8 if size >= 32 else size
