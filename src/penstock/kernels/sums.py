"""Count and sum in one pass: the commonest registers, from (time, value) straight into the cells.

For a stream of one slot. Rows are looked at in blocks. When the times of a block lie in one slice, as they
mostly do when rows come nearly in order, no row needs its slice and the block is one vectorised sum. Other
blocks go row by row. Arguments are those of `cells.place`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.cells import BASE, CLEAN, END, FIRST, FURTHEST, MASK, slice_at, stretch, touch_late
from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BLOCK = 128

NEAR = 2**31
"""Times less than this after the begin of a slice are numbered by whole numbers alone."""
LOW = np.uint64(2**32 - 1)


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
    """Count and sum the rows of slot 0 from `row` on; return the row it stopped at."""
    open_from, reach, base_time, base_id, period = clock[0], clock[1], clock[2], clock[3], clock[4]
    # The case without a search among offsets, and times near each other, has a loop of its own.
    even = offsets.shape[0] == 1 and period <= NEAR
    shift = shift_of(period)
    reciprocal = reciprocal_of(period, shift)
    places = np.empty(BLOCK, np.uint64)
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
        elif even and greatest - least < NEAR - period:
            # Numbering and adding are two loops, so that the first is vectorised.
            begin = base_time + (first - base_id) * period
            around, at, id_ = np.uint64(mask), np.uint64(base), np.uint64(first & mask)
            for j in range(now.shape[0]):
                # Both factors have 32 bits, and the machine is told so: such products come four at a time.
                slices = (np.uint64(now[j] - begin) & LOW) * (reciprocal & LOW) >> shift
                places[j] = at + ((id_ + slices) & around)
            for j in range(now.shape[0]):
                counts[places[j]] += 1
                sums[places[j]] += adding[j]
        else:
            for j in range(now.shape[0]):
                id_ = base_id + slice_at(now[j] - base_time, period, inverse, offsets)
                cell = np.uint64(base + (id_ & mask))
                counts[cell] += 1
                sums[cell] += adding[j]
        i = stop
    return n
