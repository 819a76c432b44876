"""Count and sum in one pass: the commonest accumulators, from (time, value) straight into the cells.

Bodies of the slice loop (`slice_loop.py`). A fast path: `python -m bench windows` (sum, 1 key and 100 keys)
shows what it brings over accumulator by accumulator.

*One slot.* A block whose times lie in one slice, as they mostly do when rows come nearly in order, is one
vectorised sum. Blocks of rows that came much later than they happened go row by row into pairs (count, sum),
one per cell of the ring, which are flushed into the ring at the end.

*Many slots.* While blocks lie in one and the same slice, rows are summed per slot as pairs (count, sum),
which are flushed into the rings when the slice is over; other blocks go row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop
from penstock.kernels.windows.slice_loop import (
    BASE,
    BASE_ID,
    BASE_TIME,
    BLOCK_ROWS,
    DONE,
    MASK,
    MAX_DISTANCE,
    OFFSETS,
    PERIOD,
    ROW_BY_ROW,
    STUCK,
    Frame,
    add_keyed,
    add_single,
    hold_slice,
    slice_at,
)

Ints = npt.NDArray[np.int64]
UInts = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

MAX_PAIRS = 4096
"""Greater rings have no pairs, and none that have more cells than there are rows."""
COPIES = 4
"""Consecutive rows go to different copies of the pairs, lest they wait for each other in one cell."""
CONTENDED_SLICES = 16
"""Fewer slices in a block than this make consecutive rows wait for each other."""

MAX_OFFSET = 2**31
"""Times less than this after the start of a slice are numbered by integer products alone."""
LOW_BITS = np.uint64(2**32 - 1)


def emit_pair(builder: Any, data: Any, arguments: Any) -> None:
    """Write what `add_pair` does as two numbers at once, which Numba would not find by itself."""
    from llvmlite import ir

    at, value = arguments
    pair = ir.VectorType(ir.DoubleType(), 2)
    place = builder.gep(data, [builder.mul(at, ir.Constant(at.type, 2))])
    place = builder.bitcast(place, pair.as_pointer())
    adds = builder.insert_element(ir.Constant(pair, [1.0, 0.0]), value, ir.Constant(ir.IntType(32), 1))
    # NumPy aligns to 16 bytes by chance only.
    builder.store(builder.fadd(builder.load(place, align=8), adds), place, align=8)


@loop(emit=emit_pair)
def add_pair(pairs: Floats, at: int, value: float) -> None:
    """Add 1 to pairs[2 at] and `value` to pairs[2 at + 1], in one reading and one writing of memory."""
    pairs[2 * at] += 1.0
    pairs[2 * at + 1] += value


@loop()
def shift_of(period: int) -> np.uint64:
    """Return how far products with `reciprocal_of` are shifted: 31 + the bits of the period, rounded up."""
    shift, power = 31, 1
    while power < period:
        power *= 2
        shift += 1
    return np.uint64(shift)


@loop()
def reciprocal_of(period: int, shift: np.uint64) -> np.uint64:
    """Return 2^shift / period, rounded up: at most 2^32 - 1 for a period up to 2^31.

    With e < period what rounding adds, d * (2^shift + e) / period / 2^shift has the integer part of
    d / period while d e < 2^shift, which holds for every d < 2^31 (Granlund and Montgomery).
    """
    number: np.uint64 = (np.uint64(1) << shift) // np.uint64(period)
    return number if number * np.uint64(period) == np.uint64(1) << shift else number + np.uint64(1)


class SumFrame(Frame):
    """The variables that a pass over one slot keeps between blocks; `sum_single` says what they are."""

    values: Floats
    counts: Ints
    sums: Floats
    n_rows: int
    even: bool
    shift: np.uint64
    reciprocal: np.uint64
    origin: int
    from_id: np.uint64
    around: np.uint64
    at: np.uint64
    pairs: Floats
    n_pairs: int
    n_copies: int
    cells: UInts


def scan_and_number(now: Ints, *, of: SumFrame) -> tuple[int, int]:
    """Find the least and the greatest time, and the cells of the rows on the way."""
    least = greatest = now[0]
    if of.even:
        # Why: memory is slower than the product, so cells cost nothing even where they are not needed.
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
            # Why: both factors are masked to 32 bits, so that the compiler multiplies four at a time.
            step = (np.uint64(now[j] - of.origin) & LOW_BITS) * (of.reciprocal & LOW_BITS) >> of.shift
            of.cells[j] = (of.from_id + step) & of.around
    else:
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
    return least, greatest


def sum_block(now: Ints, start: int, stop: int, first: int, last: int, *, of: SumFrame) -> None:
    """Count and sum the rows of a block of one slot. What `sum_single` keeps between blocks is changed."""
    added, base, mask, period = of.values[start:stop], of.base, of.mask, of.period
    if first == last:
        total = 0.0
        for j in range(added.shape[0]):
            total += added[j]
        of.counts[base + (first & mask)] += stop - start
        of.sums[base + (first & mask)] += total
    elif of.even and of.greatest - of.least < MAX_OFFSET // 2:
        paired = mask < min(MAX_PAIRS, of.n_rows)
        moved = np.uint64(mask) != of.around or (paired and of.n_pairs == 0)
        if moved or of.least < of.origin or of.greatest - of.origin >= MAX_OFFSET:
            flush_pairs(of.pairs[: 2 * of.n_pairs * of.n_copies], of.n_copies, of.at, of.counts, of.sums)
            of.n_pairs = mask + 1 if paired else 0
            of.n_copies = COPIES if of.n_pairs * COPIES <= MAX_PAIRS else 1
            of.pairs[: 2 * of.n_pairs * of.n_copies] = 0.0
            # Why: rows a little older than these may follow.
            of.origin = of.base_time + max(first - of.base_id - MAX_OFFSET // 4 // period, 0) * period
            begun = of.base_id + slice_at(of.origin - of.base_time, period, of.inverse, of.offsets)
            of.around, of.at, of.from_id = np.uint64(mask), np.uint64(base), np.uint64(begun & mask)
            for j in range(now.shape[0]):
                step = (np.uint64(now[j] - of.origin) & LOW_BITS) * (of.reciprocal & LOW_BITS) >> of.shift
                of.cells[j] = (of.from_id + step) & of.around
        if of.n_pairs:
            copy = np.uint64(of.n_pairs if last - first < CONTENDED_SLICES and of.n_copies > 1 else 0)
            if stop - start == BLOCK_ROWS:
                for j in range(0, BLOCK_ROWS, COPIES):
                    add_pair(of.pairs, of.cells[j], added[j])
                    add_pair(of.pairs, of.cells[j + 1] + copy, added[j + 1])
                    add_pair(of.pairs, of.cells[j + 2] + copy + copy, added[j + 2])
                    add_pair(of.pairs, of.cells[j + 3] + copy + copy + copy, added[j + 3])
            else:
                for j in range(now.shape[0]):
                    add_pair(of.pairs, of.cells[j], added[j])
        else:
            for j in range(now.shape[0]):
                of.counts[of.at + of.cells[j]] += 1
                of.sums[of.at + of.cells[j]] += added[j]
    else:
        for j in range(now.shape[0]):
            id_ = of.base_id + slice_at(now[j] - of.base_time, period, of.inverse, of.offsets)
            cell = np.uint64(base + (id_ & mask))
            of.counts[cell] += 1
            of.sums[cell] += added[j]


@loop()
def flush_pairs(pairs: Floats, n_copies: int, at: np.uint64, counts: Ints, sums: Floats) -> None:
    """Add pairs (count, sum), copy by copy, to the cells from `at` on."""
    n_cells = max(pairs.shape[0] // 2 // n_copies, 1)
    for j in range(pairs.shape[0] // 2):
        cell = at + np.uint64(j % n_cells)
        counts[cell] += np.int64(pairs[2 * j])
        sums[cell] += pairs[2 * j + 1]


@loop(
    "Ir Fr i I I2 I I I F",
    reassociate=True,
    add_single=add_single,
    scan_block=scan_and_number,
    add_block=sum_block,
)
def sum_single(
    times: Ints,
    values: Floats,
    row: int,
    clock: Ints,
    rings: Ints,
    spare: Ints,
    late: Ints,
    counts: Ints,
    sums: Floats,
) -> int:
    """Count and sum the rows of slot 0 from `row` on; return the row it stopped at, as `add_single`."""
    n_rows, period = times.shape[0] - row, clock[PERIOD]
    # The case without a search among offsets, and times near each other, is numbered by products.
    even = clock.shape[0] == OFFSETS + 1 and period <= MAX_OFFSET // 4
    shift = shift_of(period)
    reciprocal = reciprocal_of(period, shift)
    mask = max(rings[0, MASK], 0)  # no ring is that small: one that begins is noticed
    # The ring that pairs and `cells` are for, and the time from which its slices are numbered.
    origin, from_id = clock[BASE_TIME], np.uint64(clock[BASE_ID] & mask)
    around, at = np.uint64(mask), np.uint64(rings[0, BASE])
    pairs, n_pairs, n_copies = np.empty(2 * MAX_PAIRS), 0, 1
    cells = np.empty(BLOCK_ROWS, np.uint64)
    stopped = add_single(
        times, row, clock, rings, spare, late, n_rows=n_rows, even=even, reciprocal=reciprocal, origin=origin,
        from_id=from_id, around=around, at=at, pairs=pairs, n_pairs=n_pairs, n_copies=n_copies, cells=cells,
    )  # fmt: skip
    flush_pairs(pairs[: 2 * n_pairs * n_copies], n_copies, at, counts, sums)
    return stopped


class KeyedSumFrame(Frame):
    """The variables of `sum_keyed`, as it says."""

    times: Ints
    values: Floats
    counts: Ints
    sums: Floats
    run: Ints
    pairs: Floats


def sum_keyed_block(
    now: Ints, own: Ints, start: int, stop: int, first: int, last: int, *, of: KeyedSumFrame
) -> int:
    """Add the rows of a block in one slice to the pairs of their slots."""
    outcome = DONE if first == last else ROW_BY_ROW
    if outcome == DONE and first != of.run[0]:
        # Why: worth it only if the slice goes on for some rows per slot; look at one of them.
        further = min(start + 4 * of.rings.shape[0], of.times.shape[0] - 1)
        ahead = of.times[further] - of.base_time
        goes_on = further == start + 4 * of.rings.shape[0] and ahead >= 0 and ahead < MAX_DISTANCE
        if not goes_on or first != of.base_id + slice_at(ahead, of.period, of.inverse, of.offsets):
            outcome = ROW_BY_ROW
        elif not flush_slots(of.rings, of.spare, of.counts, of.sums, of.run[0], of.pairs):
            outcome = STUCK
        else:
            of.run[0] = first
    if outcome == DONE:
        added = of.values[start:stop]
        for j in range(now.shape[0]):
            add_pair(of.pairs, np.uint64(own[j]), added[j])
    return outcome


def sum_row(row: np.uint64, cell: np.uint64, *, values: Floats, counts: Ints, sums: Floats) -> None:
    """Add one row to its cell."""
    counts[cell] += 1
    sums[cell] += values[row]


@loop("Ir Ir Fr i I I2 I I I F I F", add_keyed=add_keyed, add_keyed_block=sum_keyed_block, add_row=sum_row)
def sum_keyed(
    slots: Ints,
    times: Ints,
    values: Floats,
    row: int,
    clock: Ints,
    rings: Ints,
    spare: Ints,
    late: Ints,
    counts: Ints,
    sums: Floats,
    run: Ints,
    pairs: Floats,
) -> int:
    """Count and sum the rows of all slots from `row` on; return the row it stopped at, as `add_keyed`.

    run    int64[1]      the slice that the pairs are for
    pairs  float64[2 m]  (count, sum) per slot of rows that are not in the rings yet, m = len(rings); what is
                         left there at the end found no room
    """
    stopped = add_keyed(slots, times, row, clock, rings, spare, late, values=values)
    flush_slots(rings, spare, counts, sums, run[0], pairs)
    return stopped


@loop()
def flush_slots(rings: Ints, spare: Ints, counts: Ints, sums: Floats, id_: int, pairs: Floats) -> bool:
    """Add what was summed per slot to slice `id_` of the rings; False if some found no room."""
    fits = True
    for slot in range(rings.shape[0]):
        if pairs[2 * slot] == 0.0:
            continue
        if not hold_slice(rings, slot, id_, spare):
            fits = False
            continue
        cell = rings[slot, BASE] + (id_ & rings[slot, MASK])
        counts[cell] += np.int64(pairs[2 * slot])
        sums[cell] += pairs[2 * slot + 1]
        pairs[2 * slot] = pairs[2 * slot + 1] = 0.0
    return fits
