"""The kernels of the pane stage: place rows, reduce by key, add to the ring (V-A, Fig. 7).

    place_rows    (slot, slice, position) of each row, packed into one number, to be sorted
    lift_sorted   the state of each row, in sorted order
    reduce_step   log2(n) times: then the last row of each (slot, slice) holds the state of them all
    add_to_ring   those last rows into the ring of pending slices
    clear_slices  slices that no open window needs, back to neutral

The reduction doubles its reach in every step, so its time does not depend on how rows spread over keys
and slices: one key with all the rows is as fast as any other batch.

ring     number[slots, size, width]  slice i of a slot is at i mod size; what holds no slice is neutral
touched  int8[size]                  1 where the ring holds a slice with rows, of any slot
latest   int64[slots]                the latest slice of a slot that ever had rows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba import cuda

from penstock.kernels.cuda.sorting import NOWHERE


@dataclass(frozen=True, slots=True)
class PaneKernels:
    """Compiled for one operation. Launch as kernel[grid, block, stream](...)."""

    lift_sorted: Any
    reduce_step: Any
    add_to_ring: Any
    merge_states: Any


def _place_rows(
    slots: Any,
    times: Any,
    n: Any,
    n_padded: Any,
    slicing: Any,
    open_from: Any,
    place: Any,
    packed: Any,
    skipped: Any,
) -> None:
    """Pack row i as ((slot - first_slot) * n_slices + slice - first_slice) << bits | i.

    slicing  int64[3]  every, the first slice's length in a slide (0: one slice a slide), 1 if hopping
    place    int64[4]  first_slot, first_slice, n_slices, bits: the host keeps all codes below 2^62
    skipped  int64[1]  counts rows before slice open_from or in a hopping gap; they sort to the end
    """
    every = slicing[0]
    rest = slicing[1]
    for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
        packed[i] = NOWHERE
        if i < n:
            slide = times[i] // every
            piece = slide
            if rest > 0:
                piece = 2 * slide
                if times[i] - slide * every >= rest:
                    piece += 1
            if piece < open_from or (slicing[2] == 1 and piece != 2 * slide):
                cuda.atomic.add(skipped, 0, 1)
            else:
                packed[i] = (((slots[i] - place[0]) * place[2] + piece - place[1]) << place[3]) | i


def _clear_slices(ring: Any, touched: Any, neutral: Any, start: Any, n_slices: Any) -> None:
    """Make slices start .. start + n_slices neutral in all slots."""
    size = ring.shape[1]
    width = ring.shape[2]
    for i in range(cuda.grid(1), ring.shape[0] * n_slices, cuda.gridsize(1)):
        at = (start + i % n_slices) % size
        touched[at] = 0
        for r in range(width):
            ring[i // n_slices, at, r] = neutral[r]


def _fill(states: Any, neutral: Any) -> None:
    """Make every state neutral. states number[n, width]."""
    for i in range(cuda.grid(1), states.shape[0], cuda.gridsize(1)):
        for r in range(neutral.shape[0]):
            states[i, r] = neutral[r]


place_rows = cuda.jit(_place_rows)
clear_slices = cuda.jit(_clear_slices)
fill = cuda.jit(_fill)


def pane_kernels(lift: Any, combine: Any) -> PaneKernels:
    """The kernels around lift(values, valid, neutral, out) and combine(a, b, out), device functions."""

    def lift_sorted(
        packed: Any, n_padded: Any, bits: Any, values: Any, valid: Any, neutral: Any, out: Any
    ) -> None:
        """out[i] is the state of the row that was sorted to place i."""
        for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
            if packed[i] != NOWHERE:
                row = packed[i] & ((1 << bits) - 1)
                lift(values[row], valid[row], neutral, out[i])

    def reduce_step(packed: Any, n_padded: Any, bits: Any, reach: Any, states: Any, out: Any) -> None:
        """out[i] covers up to 2 * reach rows of the same key that end at i, given states that cover reach."""
        for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
            if packed[i] != NOWHERE:
                if i >= reach and packed[i - reach] >> bits == packed[i] >> bits:
                    combine(states[i - reach], states[i], out[i])
                else:
                    for r in range(out.shape[1]):
                        out[i, r] = states[i, r]

    def add_to_ring(
        packed: Any, n_padded: Any, place: Any, states: Any, ring: Any, touched: Any, latest: Any
    ) -> None:
        """Combine the last row of each key with the pending state of its slot and slice.

        Slices that the ring does not hold yet are neutral there, so Fig. 7's second branch, which writes
        them and the missing ones before them, is the first branch. Keys are distinct: no two threads
        meet in a state. Only `latest` needs an atomic, since a slot has several slices.
        """
        bits = place[3]
        for i in range(cuda.grid(1), n_padded, cuda.gridsize(1)):
            if packed[i] != NOWHERE:
                code = packed[i] >> bits
                if i == n_padded - 1 or packed[i + 1] >> bits != code:
                    slot = place[0] + code // place[2]
                    piece = place[1] + code % place[2]
                    at = piece % ring.shape[1]
                    combine(ring[slot, at], states[i], ring[slot, at])
                    touched[at] = 1
                    cuda.atomic.max(latest, slot, piece)

    def merge_states(slots: Any, pieces: Any, states: Any, ring: Any, touched: Any, latest: Any) -> None:
        """Combine states that were put aside, each (slot, slice) once, with those in the ring."""
        for i in range(cuda.grid(1), slots.shape[0], cuda.gridsize(1)):
            at = pieces[i] % ring.shape[1]
            combine(ring[slots[i], at], states[i], ring[slots[i], at])
            touched[at] = 1
            cuda.atomic.max(latest, slots[i], pieces[i])

    return PaneKernels(
        cuda.jit(lift_sorted), cuda.jit(reduce_step), cuda.jit(add_to_ring), cuda.jit(merge_states)
    )
