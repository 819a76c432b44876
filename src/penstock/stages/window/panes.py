"""Rows into slices: accumulators per (slot, slice), updated batch by batch (SPRINGALD's pane stage, IV-A).

Three speeds with one outcome. Little data goes through NumPy, and through the loops as plain Python,
without loading Numba. Otherwise compiled loops find the cells of a chunk of rows once and update one
accumulator after the other. Where a sum or a compiled fold is all there is to do, one loop finds cells and
updates them in a single pass (`python -m bench windows`: its 448 M rows/s are the single pass of a sum).

Invariant: a loop that meets a row for which its ring has no room stops there; `Rings` then makes room for the
rows that are left, which may move cells. What was placed before is therefore added before room is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.windows import slice_loop
from penstock.kernels.windows.accumulate import Rule
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.folds import build_single_loop
from penstock.kernels.windows.ring import Rings, expand_ranges
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK, MIN_RING_CELLS
from penstock.kernels.windows.sums import sum_keyed, sum_single
from penstock.stages import policy
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import InputRows, Values
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator, load_cells
from penstock.stages.window.folds import CombineFailure, FoldColumns, catch_combine
from penstock.stages.window.inputs import AccumulatorUpdate
from penstock.timing.slices import Slicing

Pass = Callable[[InputRows, int, tuple[Any, ...]], int]
"""pass(rows, row, room): add rows from `row` on while there is room, and return the row it stopped at;
`room` is as for `slice_loop.find_cells`."""


class SliceAccumulators:
    """The accumulators of every slot's slices; the first accumulator counts rows.

    `extra` rules have cells behind those of the accumulators, for the owner to keep.
    """

    def __init__(
        self,
        slicing: Slicing,
        accumulators: Sequence[WindowAccumulator],
        run: JitPolicy,
        extra: Sequence[Rule] = (),
    ) -> None:
        assert accumulators[0].kind is AccumulatorKind.ROWS, "slices without rows do not exist"
        self.arena = Arena([*(accumulator.rule for accumulator in accumulators), *extra])
        for place, accumulator in enumerate(accumulators):
            self.arena.is_neutral[place] = accumulator.kind is AccumulatorKind.COUNT
        self.rings = Rings(self.arena, slicing.longest)
        self._slicing, self._accumulators, self.run = slicing, tuple(accumulators), run
        self._late = np.zeros(1, np.int64)  # where loops note the rows that are late: how many, then which

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self.arena.nbytes + self.rings.nbytes + self._late.nbytes

    def has_state(self, slots: Ints) -> Mask:
        """Return which of these slots have slices that an open window needs."""
        known = slots < len(self.rings.table)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self.rings.table[slots[known], MASK] >= 0
        return held

    def read(self, rings: Ints, ids: Ints, accumulator: int) -> Ints:
        """Return the first number of one accumulator in one slice per ring."""
        return np.asarray(self.arena.cells[accumulator][rings[:, BASE] + (ids & rings[:, MASK]), 0])

    def slices_with_rows(self, rings: Ints, past: int | None = None) -> tuple[Ints, Ints, Ints]:
        """Return (id, number of the ring, cell) of the slices with rows, up to slice `past` if given."""
        ends = rings[:, END] if past is None else np.minimum(rings[:, END], past)
        ids, ring = expand_ranges(rings[:, FIRST], ends)
        cells = rings[ring, BASE] + (ids & rings[ring, MASK])
        has_rows = self.arena.cells[0][cells, 0] > 0
        return ids[has_rows], ring[has_rows], cells[has_rows]

    def of_slots(self, slots: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (slot, id, cell) of the slices with rows of some slots."""
        owners, rings = self.rings.of_slots(slots[self.has_state(slots)])
        ids, ring, cells = self.slices_with_rows(rings)
        return owners[ring], ids, cells

    def load(self, saved: pa.RecordBatch, slots: Ints, ids: Ints) -> None:
        """Take over the cells of saved slices, under these slots."""
        self.rings.reserve(int(slots.max(initial=-1)) + 1)
        places = self.rings.place(slots, ids)  # may replace the arrays of cells
        self.arena.is_neutral = [False] * len(self.arena.cells)
        load_cells(saved, self.arena.cells, places)

    def add(self, rows: InputRows, open_from: int = slice_loop.MIN_ID) -> int:
        """Add rows to their slices, except those before `open_from`; return the least time of all."""
        n_rows, times = len(rows.times), rows.times
        if n_rows >= len(self._late):
            self._late = np.empty(n_rows + 1, np.int64)
        self._late[0] = 0
        if not rows.single_key and len(self.rings.table) <= 1 and not rows.slots.any():
            rows = replace(rows, single_key=True)  # one group for all: its loops are the faster ones
        run_pass = self._plan_pass(rows) if self._is_compiled(n_rows) else None
        self.rings.reserve(1)
        row, least = 0, slice_loop.MAX_ID
        while row < n_rows:
            if run_pass is not None:
                row, seen = self._run_pass(run_pass, row, rows, open_from)
                least = min(least, seen)
            stop = min(row + policy.SIZES.chunk_rows, n_rows)
            if row < stop:
                least = min(least, int(times[row:stop].min()))
                chunk = rows.at(slice(row, stop))
                placed = self._place_and_update(chunk, open_from) if self._is_compiled(stop - row) else 0
                if placed < stop - row:
                    self._place_by_sorting(chunk.at(slice(placed, None)), open_from)
            row = stop
        return least

    def _is_compiled(self, work: int) -> bool:
        return self.run.compiles(work) and self._slicing.period <= slice_loop.MAX_DISTANCE

    def _clock(self, times: Ints, open_from: int) -> Ints:
        """Return what the loops need to number slices around the times of these rows."""
        period = self._slicing.period
        reach = max(open_from, int(times[0]) - slice_loop.MAX_DISTANCE // 2)
        periods = reach // period
        base_id = periods * len(self._slicing.offsets)
        clock = (open_from, reach, periods * period, base_id, period, slice_loop.MAX_ID)
        return np.array([*clock, *self._slicing.offsets], np.int64)

    def _plan_pass(self, rows: InputRows) -> Pass | None:
        """Return the single pass that does everything for these rows, if there is one.

        There is one for a sum, or a compiled fold of one slot, right after the rows, beside which only values
        are counted, in columns without nulls: then counting is nothing to do, as COUNT is kept as the number
        of nulls.
        """
        main, counts = self._accumulators[1:2], self._accumulators[2:]
        if not main or any(count.kind is not AccumulatorKind.COUNT for count in counts):
            return None
        columns = [accumulator.column for accumulator in (*main, *counts)]
        if any(column is None or rows.values[column].valid is not None for column in columns):
            return None
        assert columns[0] is not None, "it was checked"
        inputs = rows.values[columns[0]]
        if main[0].kind is AccumulatorKind.FLOAT_SUM:
            least_rows = 0 if rows.single_key else policy.SIZES.rows_per_slot * len(self.rings.table)
            return partial(self._sum_rows, inputs) if len(rows.times) >= least_rows else None
        if main[0].kind is AccumulatorKind.FOLD and rows.single_key and isinstance(inputs, FoldColumns):
            is_compiled = build_single_loop(inputs.of).compiles
            return partial(self._fold_rows, main[0].rule, inputs) if is_compiled else None
        return None

    def _sum_rows(self, values: Values, rows: InputRows, row: int, room: tuple[Any, ...]) -> int:
        """Count and sum from `row` on while there is room; return the row it stopped at."""
        flat = (self.arena.cells[0].reshape(-1), self.arena.cells[1].reshape(-1))
        inputs, work = (rows.times, values.data, row), len(rows.times) - row
        if rows.single_key:
            return int(self.run(sum_single, *inputs, *room, *flat, work=work))
        # Each slot's count and sum in the slice at hand are kept beside the rings until the slice changes.
        pairs, slice_ = np.zeros((len(self.rings.table), 2)), np.array([slice_loop.MIN_ID], np.int64)
        sums = (*flat, slice_, pairs.reshape(-1))
        stopped = int(self.run(sum_keyed, rows.slots, *inputs, *room, *sums, work=work))
        unplaced = np.flatnonzero(pairs[:, 0])
        if len(unplaced):  # these found no room
            places = self.rings.place(unplaced, np.full(len(unplaced), slice_[0]))
            self.arena.cells[0][places, 0] += pairs[unplaced, 0].astype(np.int64)
            self.arena.cells[1][places, 0] += pairs[unplaced, 1]
        return stopped

    def _fold_rows(
        self, rule: Rule, fold: FoldColumns, rows: InputRows, row: int, room: tuple[Any, ...]
    ) -> int:
        """Lift and combine the rows of one slot from `row` on while there is room; return where it stops."""
        at, loop = np.zeros(1, np.int64), build_single_loop(fold.of)
        inputs = (rows.times, *fold.columns, row)
        into = (self.arena.cells[0].reshape(-1), self.arena.cells[1], at)
        try:
            with catch_combine(rule, at):
                return int(self.run(loop, *inputs, *room, *into, work=len(rows.times) - row))
        except CombineFailure as failure:
            failure.locate(rows.slots, rows.times)
            raise

    def _run_pass(self, run_pass: Pass, row: int, rows: InputRows, open_from: int) -> tuple[int, int]:
        """Do everything in one pass from `row` on, while there is room: where it stopped, the least time."""
        clock = self._clock(rows.times[row:], open_from)

        def run(start: int) -> int:
            return run_pass(rows, start, (clock, self.rings.table, self.arena.spare, self._late))

        stopped = self._run_with_room(run, row, rows, open_from)
        return stopped, int(clock[slice_loop.MIN_TIME])

    def _run_with_room(self, run: Callable[[int], int], row: int, rows: InputRows, open_from: int) -> int:
        """Run a loop from `row` on, making room where it stops; return the row that no room helps."""
        stuck = -1
        while True:
            row = run(row)
            if row in (len(rows.times), stuck):
                return row
            if self.arena.spare[0]:
                stuck = row
                self._make_room(rows.at(slice(row, None)), open_from)
            else:
                # As many blocks as there may be new rings, but not many times what is in use.
                most = min(len(rows.times) - row, len(self.rings.table))
                self.arena.stock(min(most, self.arena.n_cells // MIN_RING_CELLS + 1000) + 1)

    def _make_room(self, rows: InputRows, open_from: int) -> None:
        """Let the rings hold the next of these rows, where that is simple."""
        sizes = policy.SIZES
        slots, times = rows.slots[: sizes.chunk_rows], rows.times[: sizes.chunk_rows]
        if times.min() < open_from:
            slots, times = slots[times >= open_from], times[times >= open_from]
        if rows.single_key and len(times):
            # Why: a sample of the rows behind saves growing twice for one batch.
            further = rows.times[sizes.chunk_rows :: sizes.sampled_rows]
            least, most = times.min(), max(times.max(), further.max(initial=times[0]))
            first, last = self._slicing.ids(np.array([least, most]))
            bounds = (np.array([number], np.int64) for number in (0, first, last + 1, len(times)))
            self.rings.cover_if_dense(*bounds)
        elif len(times):
            self.rings.reserve(int(slots.max()) + 1)
            self.rings.make_room(slots, self._slicing.ids(times))

    def _place_and_update(self, rows: InputRows, open_from: int) -> int:
        """Find the cells of rows by compiled loops and update them, while there is room; return how far."""
        clock, n_rows = self._clock(rows.times, open_from), len(rows.times)
        cells, late = np.empty(n_rows, np.int64), np.zeros(n_rows + 1, np.int64)
        runs = np.empty((n_rows + 1, 3), np.int64) if rows.single_key else None

        def run(row: int) -> int:
            room = (clock, self.rings.table, self.arena.spare, late)
            n_late, placed_runs = int(late[0]), None
            if runs is None:
                stop = int(self.run(slice_loop.find_cells, rows.slots, rows.times, row, *room, cells))
            else:
                stop = int(self.run(slice_loop.find_runs, rows.times, row, *room, cells, runs))
                placed_runs = runs[1 : runs[0, 0] + 1] - np.array([row, row, 0], np.int64)
            placed, of_placed = rows.at(slice(row, stop)), cells[row:stop]
            if late[0] > n_late:
                if placed_runs is not None:
                    self.run(slice_loop.write_run_cells, placed_runs, of_placed)
                on_time = np.flatnonzero(of_placed >= 0)
                placed, of_placed, placed_runs = placed.at(on_time), of_placed[on_time], None
            self.update(placed, of_placed, placed_runs)
            return stop

        return self._run_with_room(run, 0, rows, open_from)

    def _place_by_sorting(self, rows: InputRows, open_from: int) -> None:
        """Find the cells of rows, and update them; works for all times and amounts of room."""
        if (late := rows.times < open_from).any():
            rows = rows.at(np.flatnonzero(~late))
        if len(rows.times):
            self.rings.reserve(int(rows.slots.max()) + 1)
            self.update(rows, self.rings.place(rows.slots, self._slicing.ids(rows.times)))

    def update(self, rows: InputRows, cells: Ints, runs: Ints | None = None) -> None:
        """Add rows to their cells, accumulator by accumulator; `runs` as for `AccumulatorUpdate`."""
        if not len(cells):
            return
        update = AccumulatorUpdate(self.run, cells, rows, runs)
        try:
            for place, accumulator in enumerate(self._accumulators):
                column = accumulator.column
                if accumulator.kind is AccumulatorKind.COUNT and column is not None:
                    # While no null has come there is nothing to clear or to combine.
                    self.arena.is_neutral[place] &= rows.values[column].valid is None
                update.apply(accumulator, self.arena.cells[place])
        except CombineFailure as failure:
            failure.locate(rows.slots, rows.times)
            raise
