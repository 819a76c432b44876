"""The slices of all slots in device memory: the ring of pending ones (IV-A, V-A), and trees over them (V-B).

One ring per slot and accumulator, all of one size and over the same slices, because a watermark acts on all
of them. The ring grows to max(2 x size, needed) (the paper's text says minimum), halves when less than a
quarter is in use, and never holds more than `limit` slices a slot: what lies further ahead waits on the
host until the ring gets there, so one row from the far future costs no room for the slices before it.

Growing, halving and parking are one thing: read the ring back, keep the cells with rows, put those in range
into a new ring. That stops the host, and happens seldom.

A B-PAT is a flat array (`kernels.py`). Leaves without a slice are neutral for ever. Levels above log2(slices
per window) are never read, so they are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.frozen import Frozen
from penstock.kernels.cuda import kernels
from penstock.kernels.cuda.device import Launch
from penstock.kernels.windows.accumulate import Rule, add_parts, build_rule_loop

Array = npt.NDArray[Any]
COMPILE_FROM = 10_000
"""With more cells than this, merging them is compiled."""


class SliceStates(Frozen):
    """The cells of some slots and slices, one array of cells per accumulator. All arrays of equal length."""

    slots: Array
    slices: Array
    cells: tuple[Array, ...]

    @staticmethod
    def none(rules: Sequence[Rule]) -> SliceStates:
        """Return no cells."""
        empty = np.empty(0, np.int64)
        return SliceStates(empty, empty, tuple(rule.neutral_cells(0) for rule in rules))

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return sum(int(array.nbytes) for array in (self.slots, self.slices, *self.cells))

    def where(self, chosen: Any) -> SliceStates:
        """Return those where a mask is true, at some positions, or in a slice."""
        return SliceStates(
            self.slots[chosen], self.slices[chosen], tuple(array[chosen] for array in self.cells)
        )

    def split(self, slice_id: int) -> tuple[SliceStates, SliceStates]:
        """Return those before a slice, and the others; where they are in order of slices."""
        at = int(np.searchsorted(self.slices, slice_id))
        return self.where(slice(0, at)), self.where(slice(at, None))


def merge_states(a: SliceStates, b: SliceStates, rules: Sequence[Rule]) -> SliceStates:
    """Return both together in order of slices; what both have is merged."""
    slots, slices = np.concatenate([a.slots, b.slots]), np.concatenate([a.slices, b.slices])
    order = np.lexsort((slots, slices))
    slots, slices = slots[order], slices[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (slots[1:] != slots[:-1]) | (slices[1:] != slices[:-1])
    cells = [np.concatenate(pair)[order] for pair in zip(a.cells, b.cells, strict=True)]
    again = np.flatnonzero(~new)
    if len(again):
        home = np.flatnonzero(new)[np.cumsum(new)[again] - 1]
        for rule, array in zip(rules, cells, strict=True):
            merge = build_rule_loop(add_parts, rule).version(len(again) > COMPILE_FROM)
            merge(home, array[again], array, np.zeros(1, np.int64))
    return SliceStates(slots, slices, tuple(cells)).where(new)


LEAST_SIZE = 8


class Ring:
    """Slices low .. high of `n_slots` slots. Empty when high < low. The first rule counts rows."""

    def __init__(self, rules: Sequence[Rule], launch: Launch, limit: int) -> None:
        self.rules, self._launch, self.limit = tuple(rules), launch, limit
        self.neutral = [cuda.to_device(rule.neutral_cells(1)[0]) for rule in rules]
        self._last_use: Any = None
        self._untouched = cuda.to_device(np.zeros(1, np.int8))
        self.low, self.high = 0, -1
        self.parked = SliceStates.none(rules)
        self._allocate(n_slots=1, size=LEAST_SIZE)

    @property
    def nbytes(self) -> int:
        """Return the memory in use, on the device and for what is parked."""
        return sum(int(cells.nbytes) for cells in self.cells) + self.parked.nbytes

    @contextmanager
    def use(self, stream: Any) -> Iterator[None]:
        """Let a stream use the ring, on the device: no two at once, and the host never waits.

        It is a chain of events: each user waits for the event that the last one recorded.
        """
        if self._last_use is not None:
            self._last_use.wait(stream)
        yield
        self._last_use = cuda.event()
        self._last_use.record(stream)

    def reach(self, low: int) -> int:
        """Return the slice before which all must lie that are admitted together with slice `low`."""
        return min(low, self.low if self.high >= self.low else low) + self.limit

    def admit(self, low: int, high: int, n_slots: int) -> None:
        """Make room for slices low .. high, high within reach, of slots below n_slots.

        What the ring holds and would no longer reach is parked.
        """
        end = self.reach(low)
        if self.high >= self.low:
            low, high = min(low, self.low), max(high, min(self.high, end - 1))
        needed = high + 1 - low
        if n_slots > self.n_slots or needed > self.size or self.high >= end:
            size = min(max(2 * self.size, needed), self.limit) if needed > self.size else self.size
            slots = max(2 * self.n_slots, n_slots) if n_slots > self.n_slots else self.n_slots
            self._rebuild(low, high, slots, size)
        self.low, self.high = low, high

    def park(self, states: SliceStates) -> None:
        """Keep cells on the host."""
        if len(states):
            self.parked = merge_states(self.parked, states, self.rules)

    def unpark(self) -> int | None:
        """Take back the parked cells that are within reach; return the first slice, or None."""
        if len(self.parked) == 0:
            return None
        first = int(self.parked.slices[0])
        near, self.parked = self.parked.split(self.reach(first))
        if len(near) == 0:
            return None
        self.admit(first, int(near.slices[-1]), int(near.slots.max()) + 1)
        self._merge(near)
        return first

    def clear_below(self, slice_id: int, stream: Any) -> None:
        """Forget the slices before `slice_id`, also parked ones."""
        n = min(slice_id, self.high + 1) - self.low
        if n > 0:
            grid = (*self._launch.over(n * self.n_slots), stream)
            with self.use(stream):
                for cells, neutral in zip(self.cells, self.neutral, strict=True):
                    kernels.clear_slices[grid](cells, self.size, neutral, self.low, n)
                kernels.clear_slices[grid](self.touched, self.size, self._untouched, self.low, n)
        self.low = max(self.low, slice_id)
        _, self.parked = self.parked.split(slice_id)

    def start_at(self, touched: Array) -> None:
        """Begin at the first slice with rows: those before it are neutral already, and need no room."""
        self.low = int(touched[0]) if len(touched) else self.high + 1

    def shrink(self) -> None:
        """Halve the ring when less than a quarter of it is in use."""
        if self.size > LEAST_SIZE and 4 * (self.high - self.low + 1) < self.size:
            self._rebuild(self.low, self.high, self.n_slots, max(LEAST_SIZE, self.size // 2))

    def touched_slices(self, stream: Any) -> Array:
        """Return the slices with rows of any slot, least first. Waits for the device."""
        with self.use(stream):
            flags = self.touched.copy_to_host(stream=stream)
        stream.synchronize()
        return np.sort(self._slices_at(np.flatnonzero(flags)))

    def states(self) -> SliceStates:
        """Return all cells with rows, read back. Waits for the device."""
        cuda.synchronize()
        cells = [array.copy_to_host() for array in self.cells]
        filled = np.flatnonzero(cells[0][:, 0] > 0)
        slots, places = np.divmod(filled, self.size)
        return SliceStates(slots, self._slices_at(places), tuple(array[filled] for array in cells))

    def _slices_at(self, places: Array) -> Array:
        return np.asarray(self.low + (places - self.low) % self.size)

    def _allocate(self, n_slots: int, size: int) -> None:
        self.n_slots, self.size = n_slots, size
        self.cells = [
            cuda.device_array((n_slots * size, rule.width), dtype=rule.dtype) for rule in self.rules
        ]
        for cells, neutral in zip(self.cells, self.neutral, strict=True):
            kernels.fill[self._launch.over(n_slots * size)](cells, neutral)
        self.touched = cuda.to_device(np.zeros((size, 1), np.int8))
        cuda.synchronize()

    def _rebuild(self, low: int, high: int, n_slots: int, size: int) -> None:
        """Make a new ring over low .. high, with the cells of the old one; park those beyond it."""
        states = self.states()
        self._allocate(n_slots, size)
        self.low, self.high = low, high
        inside = states.slices <= high
        self._merge(states.where(inside))
        self.park(states.where(~inside))

    def _merge(self, states: SliceStates) -> None:
        if len(states) == 0:
            return
        cuda.synchronize()  # Invariant: no stream adds to the ring meanwhile
        grid = self._launch.over(len(states))
        slots, slices = cuda.to_device(states.slots), cuda.to_device(states.slices)
        for rule, cells, more in zip(self.rules, self.cells, states.cells, strict=True):
            added = cuda.to_device(np.ascontiguousarray(more))
            kernels.rule_kernels(rule).merge_states[grid](slots, slices, added, cells, self.size)
        flags: Array = self.touched.copy_to_host()
        flags[states.slices % self.size] = 1
        self.touched.copy_to_device(flags)
        cuda.synchronize()


class Forest:
    """Trees over `n_leaves` consecutive slices of every slot, for windows of up to `longest` slices (IV-B,
    V-B).

    All trees move together: their leaves hold the same slices. A slot whose trees were left behind, because
    it had no rows for a while, is built anew from the ring; the others load the slices that are new, or
    that changed since they were loaded, and update the nodes above them. Invariant: the ring has the truth,
    a leaf is a copy of it.
    """

    def __init__(self, ring: Ring, launch: Launch, n_leaves: int, longest: int) -> None:
        self._ring, self._launch, self._m = ring, launch, n_leaves
        self._kernels = [kernels.rule_kernels(rule) for rule in ring.rules]
        self._leaves = kernels.power_of_two(n_leaves)
        self._top = longest.bit_length() - 1  # nodes of more slices than a window are not kept
        self._n_nodes = sum(self._leaves >> level for level in range(self._top + 1))
        self._loaded_to = 0
        self._grow(0)

    @property
    def nbytes(self) -> int:
        """Return the device memory in use."""
        return sum(int(trees.nbytes) for trees in self._trees)

    def load(self, which: Array, start: int, changed: int, stream: Any) -> None:
        """Put the slices from `start` on into the leaves of some slots; none before `changed` has changed.

        Only this part reads the ring, so whoever holds the ring's turn may give it back after it. Invariant:
        `start` never goes back.
        """
        self._end = start + self._m
        if self._ring.n_slots > len(self._built):
            self._grow(self._ring.n_slots)
        if self._loaded_to <= start:
            self._built[:] = False
        is_built = self._built[which]
        parts = [(which[is_built], max(start, min(changed, self._loaded_to))), (which[~is_built], start)]
        self._parts = [
            (cuda.to_device(slots, stream=stream), first)
            for slots, first in parts
            if len(slots) and first < self._end
        ]
        ring = self._ring
        for slots, first in self._parts:
            n = self._end - first
            grid = (*self._launch.over(len(slots) * n), stream)
            for cells, neutral, trees in zip(ring.cells, ring.neutral, self._trees, strict=True):
                held = (cells, ring.size, ring.low, ring.high, neutral)
                kernels.load_leaves[grid](*held, trees, self._n_nodes, slots, self._m, first, n)
        self._built[:] = False
        self._built[which] = True
        self._loaded_to = self._end

    def update(self, stream: Any) -> None:
        """Compute again the nodes above what `load` has put into the leaves, level by level."""
        for slots, first in self._parts:
            at, n = first % self._m, self._end - first
            if at + n > self._m:
                n += self._leaves - self._m  # round the end: the neutral leaves lie on the way
            below, above = 0, self._leaves
            for level in range(1, self._top + 1):
                n_above = self._leaves >> level
                n_update = min(n_above, ((at + n - 1) >> level) - (at >> level) + 1)
                grid = (*self._launch.over(len(slots) * n_update), stream)
                span = (below, above, n_above, at >> level, n_update)
                for own, trees in zip(self._kernels, self._trees, strict=True):
                    own.update_level[grid](trees, self._n_nodes, slots, *span)
                below, above = above, above + n_above

    def compute(self, which: Array, lo: Array, hi: Array, stream: Any) -> list[Any]:
        """Return the cells of windows lo .. hi: a device array [slots * windows, width] per accumulator."""
        n = len(which) * len(lo)
        slots, first, last = (cuda.to_device(array, stream=stream) for array in (which, lo, hi))
        grid, windows = (*self._launch.over(n), stream), []
        for own, trees, neutral in zip(self._kernels, self._trees, self._ring.neutral, strict=True):
            results = cuda.device_array((n, trees.shape[1]), dtype=trees.dtype, stream=stream)
            kernels.fill[grid](results, neutral)
            shape = (self._n_nodes, slots, self._leaves, self._m)
            own.compute[grid](trees, *shape, first, last, results)
            windows.append(results)
        return windows

    def _grow(self, n_slots: int) -> None:
        """Make trees for more slots, all to be built anew, every leaf neutral."""
        n = max(1, n_slots) * self._n_nodes
        self._trees = [cuda.device_array((n, rule.width), dtype=rule.dtype) for rule in self._ring.rules]
        for trees, neutral in zip(self._trees, self._ring.neutral, strict=True):
            kernels.fill[self._launch.over(n)](trees, neutral)
        self._built = np.zeros(n_slots, dtype=np.bool_)
        cuda.synchronize()
