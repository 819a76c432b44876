"""The kernels of the pane stage: place rows, sort them, reduce by key, add to the ring (V-A, Fig. 7).

    place_rows    (slot, slice, position) of each row, packed into one number, to be sorted
    sort_packed   a bitonic network over int64, the paper's `sort_by_key`
    lift_sorted   the cell of each row, in sorted order
    reduce_step   log2(n) times: then the last row of each (slot, slice) holds the cell of them all
    add_to_ring   those last rows into the ring of pending slices
    clear_slices  slices that no open window needs, back to neutral

Sorting numbers sorts rows, and equal keys keep the order of arrival. One launch per step of the network,
log2(n)^2 / 2 of them, each reading and writing n numbers: more work than a radix sort, but no scratch
memory, no atomics and nothing that depends on the data. The reduction doubles its reach in every step, so
its time does not depend on how rows spread over keys and slices: one key with all the rows is as fast as
any other batch.

    ring     number[slots * size, width]  slice i of a slot is at slot * size + i mod size; others are neutral
    touched  int8[size]                   1 where the ring holds a slice with rows, of any slot
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from penstock.frozen import dataclass
from penstock.kernels.cuda.accumulators import LIFTS, as_device, device_merge
from penstock.kernels.cuda.device import Launch
from penstock.kernels.windows.accumulate import Rule
from penstock.kernels.windows.combine import slice_of

NOWHERE = np.iinfo(np.int64).max
"""Sorts after every row: padding, and rows that belong to no open window."""


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


def _exchange(packed: Any, n: Any, span: Any, gap: Any) -> None:
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


exchange = cuda.jit(_exchange)


_slice_of = slice_of.build_with(as_device)


@dataclass(frozen=True, slots=True)
class PaneKernels:
    """Compiled for one rule. Launch as kernel[grid, block, stream](...)."""

    reduce_step: Any
    add_to_ring: Any
    merge_states: Any


def _place_rows(
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


def _touch(packed: Any, n_padded: Any, place: Any, touched: Any) -> None:
    """Note which slices get rows; threads that meet write the same."""
    for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
        if packed[i] != NOWHERE:
            touched[(place[1] + (packed[i] >> place[3]) % place[2]) % touched.shape[0]] = 1


def _touch_slices(slices: Any, touched: Any) -> None:
    """Note slices that are known by number, as `_touch` does."""
    for i in range(cuda.grid(1), slices.shape[0], cuda.gridsize(1)):
        touched[slices[i] % touched.shape[0]] = 1


def _untouch(touched: Any, start: Any, n_slices: Any) -> None:
    """Slices start .. start + n_slices have no rows any more."""
    for i in range(cuda.grid(1), n_slices, cuda.gridsize(1)):
        touched[(start + i) % touched.shape[0]] = 0


def _clear_slices(ring: Any, size: Any, neutral: Any, start: Any, n_slices: Any) -> None:
    """Make slices start .. start + n_slices neutral in all slots."""
    n_slots = ring.shape[0] // size
    for i in range(cuda.grid(1), n_slots * n_slices, cuda.gridsize(1)):
        at = i // n_slices * size + (start + i % n_slices) % size
        for part in range(neutral.shape[0]):
            ring[at, part] = neutral[part]


def _fill(cells: Any, neutral: Any) -> None:
    """Make every cell neutral. cells number[n, width]."""
    for i in range(cuda.grid(1), cells.shape[0], cuda.gridsize(1)):
        for part in range(neutral.shape[0]):
            cells[i, part] = neutral[part]


place_rows = cuda.jit(_place_rows)
touch = cuda.jit(_touch)
touch_slices = cuda.jit(_touch_slices)
untouch = cuda.jit(_untouch)
clear_slices = cuda.jit(_clear_slices)
fill = cuda.jit(_fill)


@cache
def lift_kernel(name: str) -> Any:
    """Return the kernel of a lift: made once per process, and compiled once for each type of cells."""
    lift, of_nulls = as_device(LIFTS[name]), name == "null"

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

        valid  bool[masks, n]; with a mask of -1 no row is null
        """
        for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
            if packed[i] != NOWHERE:
                row = packed[i] & ((1 << bits) - 1)
                is_null = mask >= 0 and not valid[mask, row]
                if is_null == of_nulls:
                    lift(times, order, values, column, row, flip, out, i)
                else:
                    for part in range(neutral.shape[0]):
                        out[i, part] = neutral[part]

    return cuda.jit(lift_sorted)


@cache
def pane_kernels(rule: Rule) -> PaneKernels:
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

    return PaneKernels(cuda.jit(reduce_step), cuda.jit(add_to_ring), cuda.jit(merge_states))
