"""The kernels of the pane stage (V-A, Fig. 7) and of the window stage (V-B, Figs. 9 to 11).

    place_rows    (slot, slice, position) of each row, packed into one number, to be sorted
    sort_packed   a bitonic network over int64, the paper's `sort_by_key`
    lift_sorted   the cell of each row, in sorted order
    reduce_step   log2(n) times: then the last row of each (slot, slice) holds the cell of them all
    add_to_ring   those last rows into the ring of pending slices
    touch         those slices have rows
    clear_slices  slices that no open window needs, back to neutral
    load_leaves   slices of the ring into the leaves of trees
    update_level  the nodes of one level from the level below
    compute       windows from nodes

Sorting numbers sorts rows, and equal keys keep the order of arrival. One launch per step of the network,
log2(n)^2 / 2 of them, each reading and writing n numbers: more work than a radix sort, but no scratch
memory, no atomics and nothing that depends on the data. The reduction doubles its reach in every step, so
its time does not depend on how rows spread over keys and slices: one key with all the rows is as fast as
any other batch.

    ring     number[slots * size, width]  slice i of a slot is at slot * size + i mod size; others are neutral
    touched  int8[size, 1]                1 where the ring holds a slice with rows, of any slot; it is cleared
                                          as a ring of one slot is
    trees    number[slots * nodes, width] the tree of a slot from row slot * nodes on: first the leaves, a
                                          power of two of them, then level 1, level 2 and so on; the parent of
                                          node i is (i >> 1) | leaves. Leaf i mod m holds slice i, m <= leaves
    which    int64[n]                     the slots whose trees are meant: one thread per (slot, node)

What is kept of the rows of a slice are accumulators, by the rules of `kernels/windows/accumulate.py`. A rule
has one source for the plain loops, for Numba and for CUDA, so that devices cannot disagree. What is written
here is how one row becomes a cell: the lift, which on the host is the first step of a loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, types

from penstock.frozen import Frozen
from penstock.kernels.cuda.device import Launch, is_simulated
from penstock.kernels.user_functions import explain_refusal
from penstock.kernels.windows.accumulate import Rule
from penstock.kernels.windows.combine import slice_of

Fn = Callable[..., Any]

NOWHERE = np.iinfo(np.int64).max
"""Sorts after every row: padding, and rows that belong to no open window."""


class CudaAccumulator(Frozen):
    """One accumulator.

    rule     the cells' type, width and neutral, and how two become one
    lift     a name in LIFTS
    column   which of the rows' columns it reads, of several the first for "part", or the nulls of which it
             counts for "null"; None where it is of rows
    flip     -1 where values, or times and order, are kept as complements; else 0
    """

    rule: Rule
    lift: str
    column: int | None = None
    flip: int = 0


LIFTS: dict[str, Fn] = {
    "row": lambda part, time, order, value, flip: 1,
    "null": lambda part, time, order, value, flip: 1,  # of nulls alone; all others leave them out
    "time": lambda part, time, order, value, flip: time,
    "float": lambda part, time, order, value, flip: value,
    "halves": lambda part, time, order, value, flip: value & 0xFFFFFFFF if part else value >> 32,
    "extreme": lambda part, time, order, value, flip: value ^ flip,
    "counted": lambda part, time, order, value, flip: 1 if part else value ^ flip,
    "placed": lambda part, time, order, value, flip: (
        value if part == 2 else (order ^ flip if part else time ^ flip)
    ),
    # value - value is NaN of what is not finite, as on the host
    "moments": lambda part, time, order, value, flip: (
        value - value if part == 2 else (value if part else 1.0)
    ),
    "part": lambda part, time, order, value, flip: value,  # of a column for each part
}
"""lift(part, time, order, value, flip) is one number of the cell of a row."""


def as_device(fn: Fn) -> Any:
    """Return a function that kernels can call; numba compiles it with them."""
    return cuda.jit(fn, device=True)


def as_kernel(fn: Fn) -> Any:
    """Return a kernel. Launch as kernel[grid, block, stream](...)."""
    return cuda.jit(fn)


_slice_of = slice_of.build_with(as_device)


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n, and at least 1."""
    return 1 << max(0, n - 1).bit_length()


def sort_packed(packed: Any, n: int, launch: Launch, stream: Any = 0) -> None:
    """Sort packed[:n] in place, least first; n is a power of two."""
    assert n == power_of_two(n), "a bitonic network sorts powers of two; lift_rows pads with NOWHERE"
    grid, block = launch.over(n)
    span = 2
    while span <= n:
        gap = span // 2
        while gap > 0:
            exchange[grid, block, stream](packed, n, span, gap)
            gap //= 2
        span *= 2


@as_kernel
def exchange(packed: Any, n: Any, span: Any, gap: Any) -> None:
    """Do one step: order each pair `gap` apart, upwards and downwards in turn every `span` places."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        other = i ^ gap
        if other > i:
            upwards = (i & span) == 0
            a = packed[i]
            b = packed[other]
            if (a > b) == upwards:
                packed[i] = b
                packed[other] = a


@as_kernel
def place_rows(
    slots: Any, times: Any, n: Any, n_padded: Any, period: Any, offsets: Any, place: Any, packed: Any
) -> None:
    """Pack row i as ((slot - first_slot) * n_slices + slice - first_slice) << bits | i.

    place  int64[4]  first_slot, first_slice, n_slices, bits: the host keeps all codes below 2^62
    """
    for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
        packed[i] = NOWHERE
        if i < n:
            piece = _slice_of(times[i], period, offsets)
            packed[i] = (((slots[i] - place[0]) * place[2] + piece - place[1]) << place[3]) | i


@as_kernel
def touch(packed: Any, n_padded: Any, place: Any, touched: Any) -> None:
    """Note which slices get rows; threads that meet write the same."""
    for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
        if packed[i] != NOWHERE:
            touched[(place[1] + (packed[i] >> place[3]) % place[2]) % touched.shape[0], 0] = 1


@as_kernel
def clear_slices(ring: Any, size: Any, neutral: Any, start: Any, n_slices: Any) -> None:
    """Make slices start .. start + n_slices neutral in all slots."""
    n_slots = ring.shape[0] // size
    for i in range(cuda.grid(1), n_slots * n_slices, cuda.gridsize(1)):
        at = i // n_slices * size + (start + i % n_slices) % size
        for part in range(neutral.shape[0]):
            ring[at, part] = neutral[part]


@as_kernel
def fill(cells: Any, neutral: Any) -> None:
    """Make every cell neutral. cells number[n, width]."""
    for i in range(cuda.grid(1), cells.shape[0], cuda.gridsize(1)):
        for part in range(neutral.shape[0]):
            cells[i, part] = neutral[part]


@as_kernel
def load_leaves(
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


@cache
def lift_kernel(name: str) -> Any:
    """Return the kernel of a lift: made once per process, and compiled once for each type of cells."""
    lift, of_nulls, step = as_device(LIFTS[name]), name == "null", 1 if name == "part" else 0

    def lift_sorted(
        packed: Any,
        n_padded: Any,
        bits: Any,
        times: Any,
        order: Any,
        values: Any,
        column: Any,
        valid: Any,
        mask: Any,
        flip: Any,
        neutral: Any,
        out: Any,
    ) -> None:
        """out[i] is the cell of the row that was sorted to place i; neutral where valid[mask] says null.

        times, order  int64[n]
        values        int64[columns, n] or float64[columns, n], as the cells are
        valid         bool[masks, n]; with a mask of -1 no row is null
        """
        for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
            if packed[i] != NOWHERE:
                row = packed[i] & ((1 << bits) - 1)
                is_null = mask >= 0 and not valid[mask, row]
                for part in range(neutral.shape[0]):
                    if is_null == of_nulls:
                        value = values[column + part * step, row]
                        out[i, part] = lift(part, times[row], order[row], value, flip)
                    else:
                        out[i, part] = neutral[part]

    return cuda.jit(lift_sorted)


@cache
def device_merge(rule: Rule) -> Any:
    """merge(into, i, other, j) as a device function."""
    return rule.merge.build_with(as_device)


def explain_rule_refusal(rule: Rule, capability: tuple[int, int] | None = None) -> str | None:
    """Return why numba cannot compile a rule, in one line; None when it can."""
    if is_simulated():  # it compiles nothing
        return None
    merge, at = device_merge(rule).py_func, types.int64
    cells = types.Array(types.float64 if rule.floats else types.int64, 2, "C")
    try:
        cuda.compile_ptx(merge, (cells, at, cells, at), device=True, cc=capability)
    except Exception as cause:  # numba's errors have no common ground below this
        return explain_refusal(cause)
    return None


class RuleKernels(Frozen):
    """Compiled for one rule."""

    reduce_step: Any
    add_to_ring: Any
    merge_states: Any
    update_level: Any
    compute: Any


@cache
def rule_kernels(rule: Rule) -> RuleKernels:
    """Return the kernels around a rule: made once per process, and compiled when first launched."""
    merge = device_merge(rule)

    def reduce_step(packed: Any, n_padded: Any, bits: Any, reach: Any, cells: Any, out: Any) -> None:
        """out[i] covers up to 2 * reach rows of the same key that end at i, given cells that cover reach."""
        for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
            if packed[i] != NOWHERE:
                before = i - reach
                same = before >= 0 and packed[before] >> bits == packed[i] >> bits
                source = before if same else i
                for part in range(out.shape[1]):
                    out[i, part] = cells[source, part]
                if same:
                    merge(out, i, cells, i)

    def add_to_ring(packed: Any, n_padded: Any, place: Any, cells: Any, ring: Any, size: Any) -> None:
        """Merge the last row of each key into the pending cell of its slot and slice.

        Slices that the ring does not hold yet are neutral there, so Fig. 7's second branch, which writes
        them and the missing ones before them, is the first branch. Keys are distinct: no two threads
        meet in a cell.
        """
        bits = place[3]
        for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
            if packed[i] != NOWHERE:
                code = packed[i] >> bits
                if i == n_padded - 1 or packed[i + 1] >> bits != code:
                    slot = place[0] + code // place[2]
                    piece = place[1] + code % place[2]
                    merge(ring, slot * size + piece % size, cells, i)

    def merge_states(slots: Any, pieces: Any, cells: Any, ring: Any, size: Any) -> None:
        """Merge cells that were put aside, each (slot, slice) once, into those of the ring."""
        for i in range(cuda.grid(1), slots.shape[0], cuda.gridsize(1)):
            merge(ring, slots[i] * size + pieces[i] % size, cells, i)

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

    return RuleKernels(*map(cuda.jit, (reduce_step, add_to_ring, merge_states, update_level, compute)))
