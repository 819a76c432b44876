"""The slice loop: every row finds its slice, late rows are set aside, and a body adds the others to cells.

Two frames, `add_single` for a stream of one slot and `add_keyed` for many, are the loops of everything that
adds rows to slices. What is done with the rows are their steps (`kernels/inline.py`): finding runs or cells
for the accumulators (here), counting and summing at once (`sums.py`), a user's fold (`folds.py`).

A slot's slices stand in a ring: cell = base + (slice & mask). The ring table has one row of eight numbers
(a cache line) per slot, so a row of the batch costs one look at the table. Where a slice lies outside what
the ring holds, `extend_ring` moves its ends or starts a ring in a spare block; when that is not enough the
loop returns the row it stopped at, and `Rings` makes room.

Rows are read in blocks, so that what is rare (late rows, new slices) is asked once per block. `add_single`
assumes that rows come nearly in order: most blocks then lie in one slice and no row needs its slice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]

# Columns of the ring table. The tree holds what is true of [FIRST, CLEAN) but for [LATE_FROM, LATE_TO).
BASE, MASK, FIRST, END, CLEAN, LATE_FROM, LATE_TO, HAS_EXTRA = range(8)
"""HAS_EXTRA is 1 where the slot has further rings that only `Rings` knows."""

# Places in a clock. Rows before OPEN_FROM are late. Slices are numbered from REACH on; the base time is the
# last multiple of the period up to there and starts the base slice. MIN_TIME is lowered by the loops. The
# cuts of one period stand from OFFSETS on.
OPEN_FROM, REACH, BASE_TIME, BASE_ID, PERIOD, MIN_TIME, OFFSETS = range(7)

MIN_RING_CELLS = 4
"""Cells of the smallest ring."""

MAX_DISTANCE = 2**49
"""Rows this far after `reach`, as those before it, are left to `Rings`: the product would not be exact."""

BLOCK_ROWS = 128
"""Rows that are read together."""

MAX_ID = 2**62
MIN_ID = -MAX_ID

ROW_BY_ROW, DONE, STUCK = range(3)
"""What `add_keyed_block` did with a block: nothing, everything, or nothing because a ring has no room."""


@loop()
def slice_at(since: int, period: int, inverse: float, offsets: Ints) -> np.int64:
    """Return the number of the slice that holds the time `since` after the base, counted from the base's.

    No division: with d = since < 2^50 and a period P, (d + 1/2) / P is at least 1/(2P) away from the next
    integer while the product with the rounded 1/P errs by less than 2^-51 d/P, so cutting off the fraction is
    exact.
    """
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
    """Let the slot's ring hold slice `id_`, in its own cells or in a spare block; False if it cannot."""
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
    # Invariant: the rings of a slot never meet, or a window would reach over both; `Rings` sees them all.
    if end - first > mask + 1 or rings[slot, HAS_EXTRA]:
        return False
    if id_ < rings[slot, FIRST]:
        record_late(rings, slot, id_, rings[slot, FIRST])
    rings[slot, FIRST] = first
    rings[slot, END] = end
    return True


@loop()
def record_late(rings: Ints, slot: int, first: int, end: int) -> None:
    """Record that slices [first, end) have changed, as far as the tree already holds them."""
    rings[slot, LATE_FROM] = min(rings[slot, LATE_FROM], first)
    rings[slot, LATE_TO] = max(rings[slot, LATE_TO], min(end, rings[slot, CLEAN]))


@loop()
def hold_slice(rings: Ints, slot: int, id_: int, spare: Ints) -> bool:
    """Prepare slice `id_` of a slot for a change; False if its ring has no room for it."""
    held = id_ >= rings[slot, FIRST] and id_ < rings[slot, END]
    if not held and not extend_ring(rings, slot, id_, spare):
        return False
    if id_ < rings[slot, CLEAN]:
        record_late(rings, slot, id_, id_ + 1)
    return True


def scan_block(now: Ints) -> tuple[int, int]:
    """Return the least and the greatest time of a block: the usual first step of `add_single`."""
    least = greatest = now[0]
    for j in range(now.shape[0]):
        least = min(least, now[j])
        greatest = max(greatest, now[j])
    return least, greatest


class Frame:
    """The variables of the two frames that their steps may name.

    base_time, base_id, period, inverse, offsets  of the clock: `inverse` is 1 / period
    base, mask       of the ring, in `add_single`
    least, greatest  times of the block, in `add_single`
    """

    rings: Ints
    spare: Ints
    base_time: int
    base_id: int
    period: int
    inverse: float
    offsets: Ints
    base: int
    mask: int
    least: int
    greatest: int


def add_block(now: Ints, start: int, stop: int, first: int, last: int) -> None:
    """Stand for the second step of `add_single`: adds the rows of a block, whose slices the ring holds.

    now          int64[b]  the times of rows `start` to `stop`
    first, last  their slices
    """
    raise AssertionError("a frame runs with its steps in it")


def add_single(
    times: Ints, row: int, clock: Ints, rings: Ints, spare: Ints, late: Ints, **shared: Any
) -> int:
    """Add the rows of slot 0 from `row` on; return the row it stopped at.

    times   int64[n]
    clock   int64[6 + k] see OPEN_FROM and the others
    rings   int64[m, 8]  ends and late ranges are updated
    spare   int64[s]     a stack of free blocks of MIN_RING_CELLS cells, its height first
    late    int64[n + 1] their number first, then the rows that are late
    shared  what else the steps `scan_block` and `add_block` use of the entry's variables
    """
    # Why: plain numbers; in an array they would be read again after every write to another.
    open_from, reach = clock[OPEN_FROM], clock[REACH]
    base_time, base_id, period = clock[BASE_TIME], clock[BASE_ID], clock[PERIOD]
    inverse, offsets = 1.0 / period, clock[OFFSETS:]
    n = times.shape[0]
    i = row
    while i < n:
        stop = min(i + BLOCK_ROWS, n)
        # Why: views counted from 0; Numba need not allow for negative places, and the loops vectorise.
        now = times[i:stop]
        least, greatest = scan_block(now)
        if least < reach:
            # Some row is late: go on one row at a time until behind it.
            stop = i + 1
            now = times[i:stop]
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
        held = first >= rings[0, FIRST] and last < rings[0, END]
        if not held and not (extend_ring(rings, 0, first, spare) and extend_ring(rings, 0, last, spare)):
            break
        clock[MIN_TIME] = min(clock[MIN_TIME], least)
        if first < rings[0, CLEAN]:
            record_late(rings, 0, first, last + 1)
        # Invariant: from here on the ring holds every slice of the block.
        base, mask = rings[0, BASE], rings[0, MASK]  # noqa: F841  # for `add_block`
        add_block(now, i, stop, first, last)
        i = stop
    return i


def add_keyed_block(now: Ints, own: Ints, start: int, stop: int, first: int, last: int) -> int:
    """Leave all rows to `add_row`: a first step of `add_keyed`, which may add a block at once instead.

    now, own  int64[b]  the times and slots of rows `start` to `stop`; slots are below len(rings)
    """
    return ROW_BY_ROW


def add_row(row: np.uint64, cell: np.uint64) -> None:
    """Stand for the second step of `add_keyed`: adds one row to its cell."""
    raise AssertionError("a frame runs with its steps in it")


def add_keyed(
    slots: Ints, times: Ints, row: int, clock: Ints, rings: Ints, spare: Ints, late: Ints, **shared: Any
) -> int:
    """Add the rows of many slots from `row` on; return the row it stopped at. Else as `add_single`.

    slots   int64[n]  one that is not below len(rings) stops it
    shared  what else the steps `add_keyed_block` and `add_row` use
    """
    open_from, reach = clock[OPEN_FROM], clock[REACH]
    base_time, base_id, period = clock[BASE_TIME], clock[BASE_ID], clock[PERIOD]
    inverse, offsets = 1.0 / period, clock[OFFSETS:]
    n, n_slots = times.shape[0], rings.shape[0]
    fits = True
    i = row
    while fits and i < n:
        stop = min(i + BLOCK_ROWS, n)
        now, own = times[i:stop], slots[i:stop]
        least = greatest = now[0]
        most = own[0]
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
            most = max(most, own[j])
        id_, in_one_slice, outcome = base_id, False, ROW_BY_ROW
        if least >= reach and greatest - reach < MAX_DISTANCE and most < n_slots:
            id_ = base_id + slice_at(least - base_time, period, inverse, offsets)
            last = base_id + slice_at(greatest - base_time, period, inverse, offsets)
            in_one_slice = id_ == last
            outcome = add_keyed_block(now, own, i, stop, id_, last)
        if outcome == STUCK:
            break
        clock[MIN_TIME] = min(clock[MIN_TIME], least)
        if outcome == ROW_BY_ROW:
            for j in range(now.shape[0]):
                if not in_one_slice:
                    time = now[j]
                    if time < open_from:
                        late[0] += 1
                        late[late[0]] = i + j
                        continue
                    if time < reach or time - reach >= MAX_DISTANCE or own[j] >= n_slots:
                        stop, fits = i + j, False
                        break
                    id_ = base_id + slice_at(time - base_time, period, inverse, offsets)
                slot = np.uint64(own[j])
                held = id_ >= rings[slot, FIRST] and id_ < rings[slot, END]
                if not held and not extend_ring(rings, own[j], id_, spare):
                    stop, fits = i + j, False
                    break
                if id_ < rings[slot, CLEAN]:
                    record_late(rings, own[j], id_, id_ + 1)
                # Invariant: the slot's ring holds the slice, and the tree knows that it changes.
                add_row(np.uint64(i + j), np.uint64(rings[slot, BASE] + (id_ & rings[slot, MASK])))
        i = stop
    return i


def keep_cell(row: np.uint64, cell: np.uint64, *, cells: Ints) -> None:
    """Write the cell of one row."""
    cells[row] = np.int64(cell)


@loop("Ir Ir i I I2 I I I", add_keyed=add_keyed, add_keyed_block=add_keyed_block, add_row=keep_cell)
def find_cells(
    slots: Ints, times: Ints, row: int, clock: Ints, rings: Ints, spare: Ints, late: Ints, cells: Ints
) -> int:
    """Find the cell of each row from `row` on; return the row it stopped at. Else as `add_keyed`.

    cells    int64[n]     written; -1 for a late row
    """
    n_late = late[0]
    stopped = add_keyed(slots, times, row, clock, rings, spare, late, cells=cells)
    for k in range(n_late + 1, late[0] + 1):
        cells[late[k]] = -1
    return stopped


def add_run(
    now: Ints, start: int, stop: int, first: int, last: int, *, of: Frame, cells: Ints, runs: Ints
) -> None:
    """Append a block to the runs, or to the last run where it goes on with the same cell."""
    cell = of.base + (first & of.mask)
    if first != last:
        cell = -1
        block_cells = cells[start:stop]
        for j in range(now.shape[0]):
            id_ = of.base_id + slice_at(now[j] - of.base_time, of.period, of.inverse, of.offsets)
            block_cells[j] = of.base + (id_ & of.mask)
    n_runs = runs[0, 0]
    if n_runs and runs[n_runs, 1] == start and runs[n_runs, 2] == cell:
        runs[n_runs, 1] = stop
    else:
        n_runs += 1
        runs[0, 0] = n_runs
        runs[n_runs, 0] = start
        runs[n_runs, 1] = stop
        runs[n_runs, 2] = cell


@loop("Ir i I I2 I I I I2", add_single=add_single, scan_block=scan_block, add_block=add_run)
def find_runs(
    times: Ints, row: int, clock: Ints, rings: Ints, spare: Ints, late: Ints, cells: Ints, runs: Ints
) -> int:
    """Find runs, rows of slot 0 one after the other that go to one cell; return the row it stopped at.

    cells  int64[n]        written for rows of runs without one cell; -1 for late rows, which are in no run
    runs   int64[n + 1, 3] their number first, then (start, stop, cell) of each, cell -1: each row has its own
    """
    n_late = late[0]
    runs[0, 0] = 0
    stopped = add_single(times, row, clock, rings, spare, late, cells=cells, runs=runs)
    for k in range(n_late + 1, late[0] + 1):
        cells[late[k]] = -1
    return stopped


@loop("I2 I")
def write_run_cells(runs: Ints, cells: Ints) -> None:
    """Write the cell of every row of runs that have one cell.

    runs   int64[k, 3]  (start, stop, cell), cell -1: the rows have theirs already
    cells  int64[n]
    """
    for r in range(runs.shape[0]):
        if runs[r, 2] >= 0:
            cells[runs[r, 0] : runs[r, 1]] = runs[r, 2]
