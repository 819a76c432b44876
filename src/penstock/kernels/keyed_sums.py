"""Count and sum per slot in one pass, for many rows of few slots that come nearly in order.

Rows are looked at in blocks. When the times of a block lie in one slice, the rows are summed per slot as
pairs (count, sum), which are put into the rings when the slice is over; other blocks go row by row. Arguments
are those of `cells.place`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.cells import (
    BASE,
    CLEAN,
    END,
    FIRST,
    FURTHEST,
    LEAST,
    MASK,
    slice_at,
    stretch,
    touch_late,
)
from penstock.kernels.loops import loop
from penstock.kernels.machine import add_pair
from penstock.kernels.sums import BLOCK

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@loop("Ir Ir Fr i I f Ir I2 I I I F I F")
def sum_keyed(
    slots: Ints,
    times: Ints,
    values: Floats,
    row: int,
    clock: Ints,
    inverse: float,
    offsets: Ints,
    rings: Ints,
    spare: Ints,
    late: Ints,
    counts: Ints,
    sums: Floats,
    run: Ints,
    pairs: Floats,
) -> int:
    """Count and sum the rows of all slots from `row` on; return the row it stopped at.

    run    int64[1]      the slice that the pairs are for
    pairs  float64[2 m]  (count, sum) per slot of rows that are not in the rings yet, m = len(rings); what is
                         left there at the end found no room
    """
    open_from, reach, base_time, base_id, period = clock[0], clock[1], clock[2], clock[3], clock[4]
    n, n_slots = times.shape[0], rings.shape[0]
    i = row
    while i < n:
        stop = min(i + BLOCK, n)
        now, adding, whose = times[i:stop], values[i:stop], slots[i:stop]
        least = greatest = now[0]
        most = whose[0]
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
            most = max(most, whose[j])
        if most >= n_slots:
            break
        clock[LEAST] = min(clock[LEAST], least)
        if least >= reach and greatest - reach < FURTHEST:
            id_ = base_id + slice_at(least - base_time, period, inverse, offsets)
            together = id_ == base_id + slice_at(greatest - base_time, period, inverse, offsets)
            if together and id_ != run[0]:
                # Worth it only if the slice goes on for some rows per slot; look at one of them.
                ahead = times[min(i + 4 * n_slots, n - 1)] - base_time
                together = n - i > 4 * n_slots and ahead >= 0 and ahead < FURTHEST
                together = together and id_ == base_id + slice_at(ahead, period, inverse, offsets)
                if together:
                    if not end_run(rings, spare, counts, sums, run[0], pairs):
                        return i
                    run[0] = id_
            if together:
                for j in range(now.shape[0]):
                    add_pair(pairs, np.uint64(whose[j]), adding[j])
                i = stop
                continue
        for j in range(now.shape[0]):
            time = now[j]
            if time < open_from:
                late[0] += 1
                late[late[0]] = i + j
                continue
            slot = np.uint64(whose[j])
            if time < reach:
                return i + j
            id_ = base_id + slice_at(time - base_time, period, inverse, offsets)
            held = id_ >= rings[slot, FIRST] and id_ < rings[slot, END]
            if not held and (time - reach >= FURTHEST or not stretch(rings, whose[j], id_, spare)):
                return i + j
            if id_ < rings[slot, CLEAN]:
                touch_late(rings, whose[j], id_, id_ + 1)
            cell = np.uint64(rings[slot, BASE] + (id_ & rings[slot, MASK]))
            counts[cell] += 1
            sums[cell] += adding[j]
        i = stop
    end_run(rings, spare, counts, sums, run[0], pairs)
    return i


@loop()
def end_run(rings: Ints, spare: Ints, counts: Ints, sums: Floats, id_: int, pairs: Floats) -> bool:
    """Put what was summed per slot into slice `id_` of the rings; False if some found no room."""
    fits = True
    for slot in range(rings.shape[0]):
        if pairs[2 * slot] == 0.0:
            continue
        held = id_ >= rings[slot, FIRST] and id_ < rings[slot, END]
        if not held and not stretch(rings, slot, id_, spare):
            fits = False
            continue
        if id_ < rings[slot, CLEAN]:
            touch_late(rings, slot, id_, id_ + 1)
        cell = rings[slot, BASE] + (id_ & rings[slot, MASK])
        counts[cell] += np.int64(pairs[2 * slot])
        sums[cell] += pairs[2 * slot + 1]
        pairs[2 * slot] = pairs[2 * slot + 1] = 0.0
    return fits
