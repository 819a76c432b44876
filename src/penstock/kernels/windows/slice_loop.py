"""From (slot, time) to the cell a row is added to.

A slot's slices stand in a ring: cell = base + (slice & mask). The ring table has one row of eight numbers
(a cache line) per slot, so a row of the batch costs one look at the table. Where a slice lies outside what
the ring holds, `stretch` tries to move its ends or to start a ring in a spare block; when that is not
enough the loop returns the row it stopped at and `rings` makes room.

Rows are looked at in blocks. `place` first finds the cells of a block as if every ring held them, without a
branch, so that many looks at the table are under way at once; only a block with a row that was not
held is gone through again row by row. `cut`, for a stream of one slot, finds runs: rows one after the other
that go to one cell, which registers can then add up without looking at each row's cell.

The slice's number needs no division: with d = time - base < 2^50 and a period P, (d + 1/2) / P is at least
1/(2P) away from the next integer while the product with the rounded 1/P errs by less than 2^-51 d/P, so
cutting off the fraction is exact.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile.loops import loop

Ints = npt.NDArray[np.int64]

# Columns of the ring table. The tree holds what is true of [FIRST, CLEAN) but for [LATE_FROM, LATE_TO).
BASE, MASK, FIRST, END, CLEAN, LATE_FROM, LATE_TO, HAS_EXTRA = range(8)
"""HAS_FAR is 1 where the slot has further rings that only `rings` knows."""

MIN_RING_CELLS = 4
"""Cells of the smallest ring."""

MAX_DISTANCE = 2**49
"""Rows this far after `reach`, as those before it, are left to `rings`: the product would not be exact."""

BLOCK_ROWS = 128
"""Rows that are looked at together."""

MAX_ID = 2**62
MIN_ID = -MAX_ID

MIN_TIME = 5
"""Where in a clock the passes over whole rows note the least time."""


@loop()
def slice_at(since: int, period: int, inverse: float, offsets: Ints) -> np.int64:
    """The number of the slice that begins `since` after the base time, counted from the base's."""
    rounds = np.int64((since + 0.5) * inverse)
    if offsets.shape[0] == 1:
        return rounds
    within = since - rounds * period
    id_: np.int64 = rounds * offsets.shape[0]
    for k in range(1, offsets.shape[0]):
        if offsets[k] <= within:
            id_ += 1
    return id_


@loop()
def extend_ring(rings: Ints, slot: int, id_: int, spare: Ints) -> bool:
    """Let the slot's ring hold slice `id_`, in the cells it has or in a spare block; False if it cannot."""
    mask = rings[slot, MASK]
    if mask < 0:
        n = spare[0]
        if n == 0:
            return False
        spare[0] = n - 1
        rings[slot, BASE] = spare[n]
        rings[slot, MASK] = MIN_RING_CELLS - 1
        rings[slot, FIRST] = id_
        rings[slot, END] = id_ + 1
        rings[slot, CLEAN] = id_
        rings[slot, LATE_FROM] = MAX_ID
        rings[slot, LATE_TO] = -MAX_ID
        return True
    first = min(rings[slot, FIRST], id_)
    end = max(rings[slot, END], id_ + 1)
    # A slot with further rings must not come near one of them: windows would reach over both.
    if end - first > mask + 1 or rings[slot, HAS_EXTRA]:
        return False
    if id_ < rings[slot, FIRST]:
        record_late(rings, slot, id_, rings[slot, FIRST])
    rings[slot, FIRST] = first
    rings[slot, END] = end
    return True


@loop()
def record_late(rings: Ints, slot: int, first: int, end: int) -> None:
    """Note that slices [first, end) which the tree already holds have changed."""
    rings[slot, LATE_FROM] = min(rings[slot, LATE_FROM], first)
    rings[slot, LATE_TO] = max(rings[slot, LATE_TO], min(end, rings[slot, CLEAN]))


@loop("Ir Ir i I f Ir I2 I I I")
def find_cells(
    slots: Ints,
    times: Ints,
    row: int,
    clock: Ints,
    inverse: float,
    offsets: Ints,
    rings: Ints,
    spare: Ints,
    late: Ints,
    cells: Ints,
) -> int:
    """Find the cell of each row from `row` on; return the row it stopped at.

    slots    int64[n]     one that is not below len(rings) stops it
    times    int64[n]
    clock    int64[6]     (open from, reach, base time, base slice, period, least time): rows before
                          `open from` are late; slices are numbered from `reach` on; the base time is
                          the last multiple of the period up to there and starts the base slice;
                          `inverse` is 1 / period
    offsets  int64[k]     the cuts of one period
    rings    int64[m, 8]  ends and late ranges are updated
    spare    int64[s]     a stack of free blocks of SMALLEST cells, its height first
    late     int64[n + 1] their number first, then the rows that are late
    cells    int64[n]     written; -1 for a late row
    """
    # Plain numbers: in an array they would be read again after every write to another.
    open_from, reach, base_time, base_id, period = clock[0], clock[1], clock[2], clock[3], clock[4]
    n, n_slots = times.shape[0], rings.shape[0]
    i = row
    while i < n:
        stop = min(i + BLOCK_ROWS, n)
        # Views counted from 0: Numba must not allow for negative places, and the loops vectorise.
        now, whose, found = times[i:stop], slots[i:stop], cells[i:stop]
        least = greatest = now[0]
        most = whose[0]
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
            most = max(most, whose[j])
        outside = -1  # below 0 once some row is not held, or changes what the tree holds
        if least >= reach and greatest - reach < MAX_DISTANCE and most < n_slots:
            outside = 0
            id_ = base_id + slice_at(least - base_time, period, inverse, offsets)
            if id_ == base_id + slice_at(greatest - base_time, period, inverse, offsets):
                for j in range(now.shape[0]):
                    slot = np.uint64(whose[j])
                    outside |= (id_ - rings[slot, FIRST]) | (rings[slot, END] - 1 - id_)
                    outside |= id_ - rings[slot, CLEAN]
                    found[j] = rings[slot, BASE] + (id_ & rings[slot, MASK])
            else:
                for j in range(now.shape[0]):
                    slot = np.uint64(whose[j])
                    id_ = base_id + slice_at(now[j] - base_time, period, inverse, offsets)
                    outside |= (id_ - rings[slot, FIRST]) | (rings[slot, END] - 1 - id_)
                    outside |= id_ - rings[slot, CLEAN]
                    found[j] = rings[slot, BASE] + (id_ & rings[slot, MASK])
        if outside < 0:
            for j in range(i, stop):
                time = times[j]
                if time < open_from:
                    late[0] += 1
                    late[late[0]] = j
                    cells[j] = -1
                    continue
                if time < reach or slots[j] >= n_slots or time - reach >= MAX_DISTANCE:
                    return j
                id_ = base_id + slice_at(time - base_time, period, inverse, offsets)
                slot = np.uint64(slots[j])
                held = id_ >= rings[slot, FIRST] and id_ < rings[slot, END]
                if not held and not extend_ring(rings, slots[j], id_, spare):
                    return j
                if id_ < rings[slot, CLEAN]:
                    record_late(rings, slots[j], id_, id_ + 1)
                cells[j] = rings[slot, BASE] + (id_ & rings[slot, MASK])
        i = stop
    return int(n)


@loop("Ir i I f Ir I2 I I I I2")
def find_runs(
    times: Ints,
    row: int,
    clock: Ints,
    inverse: float,
    offsets: Ints,
    rings: Ints,
    spare: Ints,
    late: Ints,
    cells: Ints,
    runs: Ints,
) -> int:
    """Cut the rows of slot 0 from `row` on into runs; return the row it stopped at. Else as `place`.

    cells  int64[n]        written for rows of runs without one cell; -1 for late rows, which are in no run
    runs   int64[n + 1, 3] their number first, then (start, stop, cell) of each, cell -1: each row has its own
    """
    open_from, reach, base_time, base_id, period = clock[0], clock[1], clock[2], clock[3], clock[4]
    n = times.shape[0]
    n_runs = 0
    i = row
    while i < n:
        stop = min(i + BLOCK_ROWS, n)
        now, found = times[i:stop], cells[i:stop]
        least = greatest = now[0]
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
        if least < reach:
            # Some row is late: go on one row at a time up to behind it.
            stop = i + 1
            now, found = times[i:stop], cells[i:stop]
            least = greatest = times[i]
            if least < open_from:
                late[0] += 1
                late[late[0]] = i
                cells[i] = -1
                i = stop
                continue
            if least < reach:
                break
        if greatest - reach >= MAX_DISTANCE:
            break
        first = base_id + slice_at(least - base_time, period, inverse, offsets)
        last = base_id + slice_at(greatest - base_time, period, inverse, offsets)
        held = first >= rings[0, FIRST] and last < rings[0, END]
        if not held and not (extend_ring(rings, 0, first, spare) and extend_ring(rings, 0, last, spare)):
            break
        if first < rings[0, CLEAN]:
            record_late(rings, 0, first, last + 1)
        base, mask = rings[0, BASE], rings[0, MASK]
        cell = base + (first & mask)
        if first != last:
            cell = -1
            for j in range(now.shape[0]):
                id_ = base_id + slice_at(now[j] - base_time, period, inverse, offsets)
                found[j] = base + (id_ & mask)
        if n_runs and runs[n_runs, 1] == i and runs[n_runs, 2] == cell:
            runs[n_runs, 1] = stop
        else:
            n_runs += 1
            runs[n_runs, 0] = i
            runs[n_runs, 1] = stop
            runs[n_runs, 2] = cell
        i = stop
    runs[0, 0] = n_runs
    return int(i)


@loop("I2 I")
def write_run_cells(runs: Ints, cells: Ints) -> None:
    """Write the cell of every row of runs that have one cell.

    runs   int64[k, 3]  (start, stop, cell), cell -1: the rows have theirs already
    cells  int64[n]
    """
    for r in range(runs.shape[0]):
        if runs[r, 2] >= 0:
            cells[runs[r, 0] : runs[r, 1]] = runs[r, 2]
