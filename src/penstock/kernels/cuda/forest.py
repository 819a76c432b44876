"""The B-PATs of all slots: which leaves are loaded, and what must be computed again (IV-B, V-B).

All trees move together: their leaves hold the same slices. A slot whose tree was left behind, because it
had no rows for a while, is built anew from the ring; the others load the slices that are new, or that
changed since they were loaded, and update the nodes above them. So a slice that earlier windows used may
still take rows: the ring has the truth, a leaf is a copy of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.kernels.cuda.launch import Launch
from penstock.kernels.cuda.operation import Operation
from penstock.kernels.cuda.panes import fill
from penstock.kernels.cuda.ring import Ring
from penstock.kernels.cuda.slicing import Slicing
from penstock.kernels.cuda.sorting import power_of_two
from penstock.kernels.cuda.tree import TreeKernels, load_leaves

Array = npt.NDArray[Any]


class Forest:
    """Trees wide enough for `n_windows` consecutive windows of every slot."""

    def __init__(
        self, operation: Operation, kernels: TreeKernels, launch: Launch, slicing: Slicing, n_windows: int
    ) -> None:
        self._operation, self._kernels, self._launch, self._slicing = operation, kernels, launch, slicing
        self._m = slicing.leaves(n_windows)
        self._leaves = power_of_two(self._m)
        self._top = slicing.per_window.bit_length() - 1  # nodes of more slices than a window are not kept
        self._n_nodes = sum(self._leaves >> level for level in range(self._top + 1))
        self._loaded_to = 0
        self._grow(0)

    @property
    def nbytes(self) -> int:
        """Device memory in use."""
        return int(self._trees.nbytes)

    def load(self, ring: Ring, which: Array, start: int, end: int, changed: int, stream: Any) -> None:
        """Put slices start .. end of some slots into their leaves; those before `changed` are as they were.

        Only this part reads the ring, so whoever holds the ring's turn may give it back after it.
        """
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
        kernels = self._kernels
        at = self._from % self._m
        n = self._to - self._from
        if at + n > self._m:
            n += self._leaves - self._m  # round the end: the neutral leaves lie on the way
        below, above = 0, self._leaves
        for level in range(1, self._top + 1):
            n_above = self._leaves >> level
            n_update = min(n_above, ((at + n - 1) >> level) - (at >> level) + 1)
            if len(self._standing) and n > 0:
                grid, block = self._launch.over(len(self._standing) * n_update)
                kernels.update_level[grid, block, stream](
                    self._trees, self._standing, below, above, n_above, at >> level, n_update
                )
            if len(self._fresh):
                grid, block = self._launch.over(len(self._fresh) * n_above)
                kernels.init_level[grid, block, stream](self._trees, self._fresh, below, above, n_above)
            below, above = above, above + n_above

    def compute(self, which: Array, start: int, n_windows: int, stream: Any) -> Any:
        """The states of windows from slice `start` on, as a device array number[slots * windows, width]."""
        operation, slicing = self._operation, self._slicing
        results = cuda.to_device(np.tile(operation.neutral(), (len(which) * n_windows, 1)), stream=stream)
        slots = cuda.to_device(which, stream=stream)
        grid, block = self._launch.over(len(which) * n_windows)
        self._kernels.compute[grid, block, stream](
            self._trees, slots, self._leaves, self._m, start % self._m,
            slicing.per_window, slicing.per_slide, n_windows, results,
        )  # fmt: skip
        return results

    def _load(self, ring: Ring, which: Any, start: int, end: int, stream: Any) -> None:
        n = end - start
        if len(which) and n > 0:
            grid, block = self._launch.over(len(which) * n)
            load_leaves[grid, block, stream](
                ring.device, ring.low, ring.high, ring.neutral, self._trees, which, self._m, start, n
            )

    def _grow(self, n_slots: int) -> None:
        """Trees for more slots, all to be built anew, every leaf neutral."""
        shape = (max(1, n_slots), self._n_nodes, self._operation.width)
        self._trees = cuda.device_array(shape, dtype=self._operation.dtype)
        flat = self._trees.reshape(shape[0] * shape[1], shape[2])
        fill[self._launch.over(shape[0] * shape[1])](flat, cuda.to_device(self._operation.neutral()))
        self._built = np.zeros(n_slots, dtype=np.bool_)
        cuda.synchronize()
