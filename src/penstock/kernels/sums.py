"""Count and sum in one pass: the commonest registers, from (slot, time, value) straight into the cells.

Rows are looked at in blocks. When the times of a block lie in one slice, as they mostly do when rows come
nearly in order, no row needs its slice: without keys the block is one vectorised sum, with keys the rows are
summed per slot in two small arrays, which are put into the rings when the slice is over. Other blocks go
row by row. Arguments are those of `cells.place`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.cells import BASE, CLEAN, END, FIRST, FURTHEST, MASK, slice_at, stretch, touch_late
from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BLOCK = 128


@loop("Ir Fr i I f Ir I2 I I I F", reassociate=True)
def sum_single(
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
) -> int:
    """Count and sum the rows of slot 0 from `row` on; return the row it stopped at."""
    open_from, reach, base_time, base_id, period = clock[0], clock[1], clock[2], clock[3], clock[4]
    even = offsets.shape[0] == 1  # the case without a search among offsets has a loop of its own
    n: int = times.shape[0]
    i = row
    while i < n:
        stop = min(i + BLOCK, n)
        # Views counted from 0: Numba must not allow for negative places, and the loops vectorise.
        now, adding = times[i:stop], values[i:stop]
        least = greatest = now[0]
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
        if least < reach:
            # Some row is late: go on one row at a time up to behind it.
            stop = i + 1
            now, adding = times[i:stop], values[i:stop]
            least = greatest = times[i]
            if least < open_from:
                late[0] += 1
                late[late[0]] = i
                i = stop
                continue
            if least < reach:
                return i
        if greatest - reach >= FURTHEST:
            return i
        first = base_id + slice_at(least - base_time, period, inverse, offsets)
        last = base_id + slice_at(greatest - base_time, period, inverse, offsets)
        held = first >= rings[0, FIRST] and last < rings[0, END]
        if not held and not (stretch(rings, 0, first, spare) and stretch(rings, 0, last, spare)):
            return i
        if first < rings[0, CLEAN]:
            touch_late(rings, 0, first, last + 1)
        base, mask = rings[0, BASE], rings[0, MASK]
        if first == last:
            total = 0.0
            for j in range(adding.shape[0]):
                total += adding[j]
            counts[base + (first & mask)] += stop - i
            sums[base + (first & mask)] += total
        elif even:
            for j in range(now.shape[0]):
                id_ = base_id + np.int64(((now[j] - base_time) + 0.5) * inverse)
                cell = np.uint64(base + (id_ & mask))
                counts[cell] += 1
                sums[cell] += adding[j]
        else:
            for j in range(now.shape[0]):
                id_ = base_id + slice_at(now[j] - base_time, period, inverse, offsets)
                cell = np.uint64(base + (id_ & mask))
                counts[cell] += 1
                sums[cell] += adding[j]
        i = stop
    return n


@loop("Ir Ir Fr i I f Ir I2 I I I F I I F")
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
    run_counts: Ints,
    run_sums: Floats,
) -> int:
    """Count and sum the rows of all slots from `row` on; return the row it stopped at.

    run         int64[1]    the slice that the two below are for
    run_counts  int64[m]    rows per slot that are not in the rings yet, m = len(rings)
    run_sums    float64[m]  and their sums; what is left there at the end found no room
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
        if least >= reach and greatest - reach < FURTHEST:
            id_ = base_id + slice_at(least - base_time, period, inverse, offsets)
            together = id_ == base_id + slice_at(greatest - base_time, period, inverse, offsets)
            if together and id_ != run[0]:
                # Worth it only if the slice goes on for some rows per slot; look at one of them.
                ahead = times[min(i + 4 * n_slots, n - 1)] - base_time
                together = n - i > 4 * n_slots and ahead >= 0 and ahead < FURTHEST
                together = together and id_ == base_id + slice_at(ahead, period, inverse, offsets)
                if together:
                    if not end_run(rings, spare, counts, sums, run[0], run_counts, run_sums):
                        return i
                    run[0] = id_
            if together:
                for j in range(now.shape[0]):
                    slot = np.uint64(whose[j])
                    run_counts[slot] += 1
                    run_sums[slot] += adding[j]
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
    end_run(rings, spare, counts, sums, run[0], run_counts, run_sums)
    return i


@loop()
def end_run(
    rings: Ints, spare: Ints, counts: Ints, sums: Floats, id_: int, run_counts: Ints, run_sums: Floats
) -> bool:
    """Put what was summed per slot into slice `id_` of the rings; False if some found no room."""
    fits = True
    for slot in range(rings.shape[0]):
        if run_counts[slot] == 0:
            continue
        held = id_ >= rings[slot, FIRST] and id_ < rings[slot, END]
        if not held and not stretch(rings, slot, id_, spare):
            fits = False
            continue
        if id_ < rings[slot, CLEAN]:
            touch_late(rings, slot, id_, id_ + 1)
        cell = rings[slot, BASE] + (id_ & rings[slot, MASK])
        counts[cell] += run_counts[slot]
        sums[cell] += run_sums[slot]
        run_counts[slot] = 0
        run_sums[slot] = 0.0
    return fits
