"""Count and sum in one pass: the commonest registers, from (time, value) straight into the cells.

For a stream of one slot. Rows are looked at in blocks. When the times of a block lie in one slice, as they
mostly do when rows come nearly in order, no row needs its slice and the block is one vectorised sum. Blocks
of rows that came much later than they happened go row by row into pairs (count, sum), one per cell of the
ring, which are put into the ring at the end. Arguments are those of `cells.place`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile.intrinsics import add_pair, prefetch
from penstock.kernels.compile.loops import loop
from penstock.kernels.windows.slice_loop import (
    BASE,
    CLEAN,
    END,
    FIRST,
    MASK,
    MAX_DISTANCE,
    MIN_TIME,
    extend_ring,
    record_late,
    slice_at,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BLOCK_ROWS = 128

MAX_SLICE_PASSES = 4
"""So many slices of a block are added up one after the other, where there are no pairs."""

MAX_PAIRS = 4096
"""Greater rings have no pairs, and none that have more cells than there are rows."""
COPIES = 4
"""So many rows in turn have pairs of their own: in blocks of few slices they would wait for each other."""
CONTENDED_SLICES = 16
"""So many slices are few."""

PREFETCH_DISTANCE = np.uint64(2 * BLOCK_ROWS)
"""How far ahead of the rows at hand memory is told which rows follow."""
CACHE_LINE = 8
"""Numbers that memory gives at a time."""

MAX_OFFSET = 2**31
"""Times less than this after the begin of a slice are numbered by whole numbers alone."""
LOW_BITS = np.uint64(2**32 - 1)


@loop()
def shift_of(period: int) -> np.uint64:
    """How far products with `reciprocal_of` are shifted: 31 + the bits of the period, rounded up."""
    shift, power = 31, 1
    while power < period:
        power *= 2
        shift += 1
    return np.uint64(shift)


@loop()
def reciprocal_of(period: int, shift: np.uint64) -> np.uint64:
    """2^shift / period, rounded up: at most 2^32 - 1 for a period up to 2^31.

    With e < period what rounding adds, d * (2^shift + e) / period / 2^shift has the integer part of
    d / period while d e < 2^shift, which holds for every d < 2^31 (Granlund and Montgomery).
    """
    number: np.uint64 = (np.uint64(1) << shift) // np.uint64(period)
    return number if number * np.uint64(period) == np.uint64(1) << shift else number + np.uint64(1)


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
    """Count and sum the rows of slot 0 from `row` on; return the row it stopped at.

    clock[LEAST] is lowered to the least time of the rows before that.
    """
    open_from, reach, base_time, base_id, period = clock[0], clock[1], clock[2], clock[3], clock[4]
    # The case without a search among offsets, and times near each other, has loops of its own.
    even = offsets.shape[0] == 1 and period <= MAX_OFFSET // 4
    shift = shift_of(period)
    reciprocal = reciprocal_of(period, shift)
    held = max(rings[0, MASK], 0)  # no ring has so little: one that begins is noticed
    origin, from_id = base_time, np.uint64(base_id & held)
    around, at = np.uint64(held), np.uint64(rings[0, BASE])
    cells = np.empty(BLOCK_ROWS, np.uint64)
    pairs, n_pairs, n_lanes = np.empty(2 * MAX_PAIRS), 0, 1
    n: int = times.shape[0]
    i = row
    while i < n:
        stop = min(i + BLOCK_ROWS, n)
        # Views counted from 0: Numba must not allow for negative places, and the loops vectorise.
        now, adding = times[i:stop], values[i:stop]
        least = greatest = now[0]
        if even:
            # Cells are found before it is known whether they are needed: memory is slower than that.
            for j in range(now.shape[0]):
                least = min(least, now[j])
                greatest = max(greatest, now[j])
                # Both factors have 32 bits, and the machine is told so: such products come four at a time.
                step = (np.uint64(now[j] - origin) & LOW_BITS) * (reciprocal & LOW_BITS) >> shift
                cells[j] = (from_id + step) & around
        else:
            for j in range(now.shape[0]):
                least = min(least, now[j])
                greatest = max(greatest, now[j])
        if least < reach:
            # Some row is late: go on one row at a time up to behind it.
            stop = i + 1
            now, adding = times[i:stop], values[i:stop]
            least = greatest = times[i]
            if least < open_from:
                clock[MIN_TIME] = min(clock[MIN_TIME], least)
                late[0] += 1
                late[late[0]] = i
                i = stop
                continue
            if least < reach:
                break
        if greatest - reach >= MAX_DISTANCE:
            break
        first = base_id + slice_at(least - base_time, period, inverse, offsets)
        last = base_id + slice_at(greatest - base_time, period, inverse, offsets)
        inside = first >= rings[0, FIRST] and last < rings[0, END]
        if not inside and not (extend_ring(rings, 0, first, spare) and extend_ring(rings, 0, last, spare)):
            break
        clock[MIN_TIME] = min(clock[MIN_TIME], least)
        if first < rings[0, CLEAN]:
            record_late(rings, 0, first, last + 1)
        base, mask = rings[0, BASE], rings[0, MASK]
        if first == last:
            total = 0.0
            for j in range(adding.shape[0]):
                total += adding[j]
            counts[base + (first & mask)] += stop - i
            sums[base + (first & mask)] += total
        elif even and last - first < MAX_SLICE_PASSES and mask >= min(MAX_PAIRS // COPIES, n - row):
            # Going through all rows for each slice is faster than adding row by row to one and the same cell.
            for id_ in range(first, last + 1):
                begin = base_time + (id_ - base_id) * period
                end = begin + period
                total, n_mine = 0.0, 0
                for j in range(now.shape[0]):
                    mine = (now[j] >= begin) & (now[j] < end)
                    total += adding[j] if mine else 0.0
                    n_mine += mine
                counts[base + (id_ & mask)] += n_mine
                sums[base + (id_ & mask)] += total
        elif even and greatest - least < MAX_OFFSET // 2:
            paired = mask < min(MAX_PAIRS, n - row)
            moved = np.uint64(mask) != around or (paired and n_pairs == 0)
            if moved or least < origin or greatest - origin >= MAX_OFFSET:
                flush_pairs(pairs[: 2 * n_pairs * n_lanes], n_lanes, at, counts, sums)
                n_pairs = mask + 1 if paired else 0
                n_lanes = COPIES if n_pairs * COPIES <= MAX_PAIRS else 1
                pairs[: 2 * n_pairs * n_lanes] = 0.0
                # Rows a little older than these may follow.
                origin = base_time + max(first - base_id - MAX_OFFSET // 4 // period, 0) * period
                begun = base_id + slice_at(origin - base_time, period, inverse, offsets)
                around, at, from_id = np.uint64(mask), np.uint64(base), np.uint64(begun & mask)
                for j in range(now.shape[0]):
                    step = (np.uint64(now[j] - origin) & LOW_BITS) * (reciprocal & LOW_BITS) >> shift
                    cells[j] = (from_id + step) & around
            if n_pairs:
                # Memory is slow to notice that times and values are read by turns. It is told by and by:
                # asked for much at once, it has everybody wait.
                lane = np.uint64(n_pairs if last - first < CONTENDED_SLICES and n_lanes > 1 else 0)
                if stop - i == BLOCK_ROWS and stop + 3 * BLOCK_ROWS < n:
                    for k in range(0, BLOCK_ROWS, CACHE_LINE):
                        soon = np.uint64(i) + PREFETCH_DISTANCE + np.uint64(k)
                        prefetch(times, soon)
                        prefetch(values, soon)
                        for j in range(k, k + CACHE_LINE, COPIES):
                            add_pair(pairs, cells[j], adding[j])
                            add_pair(pairs, cells[j + 1] + lane, adding[j + 1])
                            add_pair(pairs, cells[j + 2] + lane + lane, adding[j + 2])
                            add_pair(pairs, cells[j + 3] + lane + lane + lane, adding[j + 3])
                else:
                    for j in range(now.shape[0]):
                        add_pair(pairs, cells[j], adding[j])
            else:
                for j in range(now.shape[0]):
                    counts[at + cells[j]] += 1
                    sums[at + cells[j]] += adding[j]
        else:
            for j in range(now.shape[0]):
                id_ = base_id + slice_at(now[j] - base_time, period, inverse, offsets)
                cell = np.uint64(base + (id_ & mask))
                counts[cell] += 1
                sums[cell] += adding[j]
        i = stop
    flush_pairs(pairs[: 2 * n_pairs * n_lanes], n_lanes, at, counts, sums)
    return i


@loop()
def flush_pairs(pairs: Floats, n_lanes: int, at: np.uint64, counts: Ints, sums: Floats) -> None:
    """Add pairs (count, sum), lane by lane, to the cells from `at` on."""
    n_cells = max(pairs.shape[0] // 2 // n_lanes, 1)
    for j in range(pairs.shape[0] // 2):
        cell = at + np.uint64(j % n_cells)
        counts[cell] += np.int64(pairs[2 * j])
        sums[cell] += pairs[2 * j + 1]


# Count and sum per slot in one pass, for many rows of few slots that come nearly in order.
#
# Rows are looked at in blocks. When the times of a block lie in one slice, the rows are summed per slot as
# pairs (count, sum), which are put into the rings when the slice is over; other blocks go row by row.
# Arguments are those of `cells.place`.


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
        stop = min(i + BLOCK_ROWS, n)
        now, adding, whose = times[i:stop], values[i:stop], slots[i:stop]
        least = greatest = now[0]
        most = whose[0]
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
            most = max(most, whose[j])
        if most >= n_slots:
            break
        clock[MIN_TIME] = min(clock[MIN_TIME], least)
        if least >= reach and greatest - reach < MAX_DISTANCE:
            id_ = base_id + slice_at(least - base_time, period, inverse, offsets)
            together = id_ == base_id + slice_at(greatest - base_time, period, inverse, offsets)
            if together and id_ != run[0]:
                # Worth it only if the slice goes on for some rows per slot; look at one of them.
                ahead = times[min(i + 4 * n_slots, n - 1)] - base_time
                together = n - i > 4 * n_slots and ahead >= 0 and ahead < MAX_DISTANCE
                together = together and id_ == base_id + slice_at(ahead, period, inverse, offsets)
                if together:
                    if not flush_slots(rings, spare, counts, sums, run[0], pairs):
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
            if not held and (time - reach >= MAX_DISTANCE or not extend_ring(rings, whose[j], id_, spare)):
                return i + j
            if id_ < rings[slot, CLEAN]:
                record_late(rings, whose[j], id_, id_ + 1)
            cell = np.uint64(rings[slot, BASE] + (id_ & rings[slot, MASK]))
            counts[cell] += 1
            sums[cell] += adding[j]
        i = stop
    flush_slots(rings, spare, counts, sums, run[0], pairs)
    return i


@loop()
def flush_slots(rings: Ints, spare: Ints, counts: Ints, sums: Floats, id_: int, pairs: Floats) -> bool:
    """Put what was summed per slot into slice `id_` of the rings; False if some found no room."""
    fits = True
    for slot in range(rings.shape[0]):
        if pairs[2 * slot] == 0.0:
            continue
        held = id_ >= rings[slot, FIRST] and id_ < rings[slot, END]
        if not held and not extend_ring(rings, slot, id_, spare):
            fits = False
            continue
        if id_ < rings[slot, CLEAN]:
            record_late(rings, slot, id_, id_ + 1)
        cell = rings[slot, BASE] + (id_ & rings[slot, MASK])
        counts[cell] += np.int64(pairs[2 * slot])
        sums[cell] += pairs[2 * slot + 1]
        pairs[2 * slot] = pairs[2 * slot + 1] = 0.0
    return fits
