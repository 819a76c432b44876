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
from typing import Any, NamedTuple

import numpy as np

from penstock.frozen import dataclass
from penstock.kernels.windows import slice_loop
from penstock.kernels.windows.accumulate import Cells, Rule
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.folds import build_single_loop
from penstock.kernels.windows.ring import Rings, expand_ranges
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK, MIN_RING_CELLS
from penstock.kernels.windows.sums import sum_keyed, sum_single
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Ints
from penstock.stages.rows.input import Values
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.folds import FoldColumns, catch_combine, locate_row
from penstock.stages.window.inputs import AccumulatorUpdate
from penstock.timing.slices import Slicing

CHUNK_ROWS = 1 << 16
"""Rows that are placed and then added one accumulator after the other, while their cells are in the cache."""
SAMPLED_ROWS = 64
"""One row in so many is looked at where an estimate will do."""
ROWS_PER_SLOT = 4
"""With fewer rows per slot than this, sums per slot beside the rings cost more than they save."""


class AddResult(NamedTuple):
    """What became of rows: the places of those that came too late, and the least time of all."""

    late: Ints
    least_time: int


class SliceAccumulators:
    """The accumulators of every slot's slices; the first accumulator counts rows."""

    def __init__(
        self, slicing: Slicing, accumulators: Sequence[WindowAccumulator], compile_after: int | None = None
    ) -> None:
        assert accumulators[0].kind is AccumulatorKind.ROWS, "slices without rows do not exist"
        self.arena = Arena([accumulator.rule for accumulator in accumulators])
        self.arena.is_neutral = [a.kind is AccumulatorKind.COUNT for a in accumulators]
        self.rings = Rings(self.arena, slicing.longest)
        self._slicing, self._accumulators = slicing, tuple(accumulators)
        self.run = JitPolicy(compile_after)
        self._offsets = np.array(slicing.offsets, np.int64)
        self._late = np.zeros(1, np.int64)  # how many rows are late, then their places

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self.arena.nbytes + self.rings.nbytes + self._late.nbytes

    def row_counts(self, rings: Ints, ids: Ints) -> Ints:
        """Return the number of rows of one slice per ring."""
        return np.asarray(self.arena.cells[0][rings[:, BASE] + (ids & rings[:, MASK]), 0])

    def slices_with_rows(self, rings: Ints, past: int | None = None) -> tuple[Ints, Ints, Ints]:
        """Return (id, number of the ring, cell) of the slices with rows, up to slice `past` if given."""
        ends = rings[:, END] if past is None else np.minimum(rings[:, END], past)
        ids, ring = expand_ranges(rings[:, FIRST], ends)
        cells = rings[ring, BASE] + (ids & rings[ring, MASK])
        has_rows = self.arena.cells[0][cells, 0] > 0
        return ids[has_rows], ring[has_rows], cells[has_rows]

    def add(
        self,
        slots: Ints | None,
        times: Ints,
        values: Sequence[Values] = (),
        order: Ints | None = None,
        open_from: int = slice_loop.MIN_ID,
    ) -> AddResult:
        """Add rows to their slices, except those before `open_from`.

        Without slots all rows are of slot 0. `order` is the place among rows of equal time.
        """
        if len(times) > len(self._late) - 1:
            self._late = np.empty(len(times) + 1, np.int64)
        self._late[0] = 0
        if slots is not None and len(self.rings.table) <= 1 and not slots.any():
            slots = None  # one group for all: its loops are the faster ones
        self._note_nulls(values)
        rows = _Rows(slots, times, values, order)
        whole = self._plan_pass(values, slots) if self._is_compiled(len(times)) else None
        self.rings.reserve(1)
        row, least = 0, slice_loop.MAX_ID
        while row < len(times):
            if whole is not None:
                row, seen = self._run_pass(whole, row, rows, open_from)
                least = min(least, seen)
            stop = min(row + CHUNK_ROWS, len(times))
            if row < stop:
                least = min(least, int(times[row:stop].min()))
                self._add_chunk(rows.at(slice(row, stop)), row, open_from)
            row = stop
        return AddResult(self._late[1 : self._late[0] + 1].copy(), least)

    def _note_nulls(self, values: Sequence[Values]) -> None:
        """Note which columns had nulls: where none has come yet there is nothing to clear or to combine."""
        for place, accumulator in enumerate(self._accumulators):
            if self.arena.is_neutral[place] and accumulator.column is not None:
                self.arena.is_neutral[place] = values[accumulator.column].valid is None

    def _is_compiled(self, work: int) -> bool:
        return self.run.compiles(work) and self._slicing.period <= slice_loop.MAX_DISTANCE

    def _clock(self, times: Ints, open_from: int) -> tuple[Ints, float]:
        """Return what the loops need to number slices around the times of these rows."""
        period = self._slicing.period
        reach = max(open_from, int(times[0]) - slice_loop.MAX_DISTANCE // 2)
        periods = reach // period
        base_id = periods * len(self._slicing.offsets)
        clock = [open_from, reach, periods * period, base_id, period, slice_loop.MAX_ID]
        return np.array(clock, np.int64), 1.0 / period

    def _plan_pass(self, values: Sequence[Values], slots: Ints | None) -> SumPass | FoldPass | None:
        """Return the single pass that does everything for these rows, if there is one.

        There is one for a sum, or a compiled fold of one slot, right after the rows, beside which only values
        are counted, in columns without nulls: then counting is nothing to do, as COUNT is kept as the number
        of nulls.
        """
        main, counts = self._accumulators[1:2], self._accumulators[2:]
        if not main or any(count.kind is not AccumulatorKind.COUNT for count in counts):
            return None
        columns = [accumulator.column for accumulator in (*main, *counts)]
        if any(column is None or values[column].valid is not None for column in columns):
            return None
        assert columns[0] is not None, "it was checked"
        inputs = values[columns[0]]
        if main[0].kind is AccumulatorKind.FLOAT_SUM:
            enough = slots is None or len(slots) >= ROWS_PER_SLOT * len(self.rings.table)
            return SumPass(inputs, self.rings, self.arena) if enough else None
        if main[0].kind is AccumulatorKind.FOLD and slots is None and isinstance(inputs, FoldColumns):
            return FoldPass(main[0].rule, inputs) if build_single_loop(inputs.of).compiles else None
        return None

    def _run_pass(self, whole: SumPass | FoldPass, row: int, rows: _Rows, open_from: int) -> tuple[int, int]:
        """Do everything in one pass from `row` on, while there is room: where it stopped, the least time."""
        clock = self._clock(rows.times[row:], open_from)

        def run(start: int) -> int:
            room = (*clock, self._offsets, self.rings.table, self.arena.spare, self._late)
            return whole.run(self.run, start, rows.slots, rows.times, room, self.arena.cells)

        stopped = self._run_with_room(run, row, rows, open_from)
        return stopped, int(clock[0][slice_loop.MIN_TIME])

    def _run_with_room(self, run: Callable[[int], int], row: int, rows: _Rows, open_from: int) -> int:
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

    def _make_room(self, rows: _Rows, open_from: int) -> None:
        """Let the rings hold the next of these rows, where that is simple."""
        near = rows.at(slice(0, CHUNK_ROWS))
        if near.times.min() < open_from:
            near = near.at(np.flatnonzero(near.times >= open_from))
        times = near.times
        if rows.slots is None and len(times):
            # Why: a sample of the rows behind saves growing twice for one batch.
            further = rows.times[CHUNK_ROWS::SAMPLED_ROWS]
            least, most = times.min(), max(times.max(), further.max(initial=times[0]))
            first, last = self._slicing.ids(np.array([least, most]))
            bounds = (np.array([number], np.int64) for number in (0, first, last + 1, len(times)))
            self.rings.cover_if_dense(*bounds)
        elif rows.slots is not None and len(times):
            self.rings.reserve(int(near.all_slots.max()) + 1)
            self.rings.make_room(near.all_slots, self._slicing.ids(times))

    def _add_chunk(self, rows: _Rows, start: int, open_from: int) -> None:
        """Add the rows of a chunk, which begins at row `start` of its batch, accumulator by accumulator."""
        row = 0
        if self._is_compiled(len(rows.times)):
            row = self._place_and_update(rows, start, open_from)
        if row < len(rows.times):
            rest = rows.at(slice(row, None))
            self._update_on_time(rest, self._place_by_sorting(rest, open_from), start + row)

    def _place_and_update(self, rows: _Rows, start: int, open_from: int) -> int:
        """Find the cells of rows by compiled loops and update them, while there is room."""
        clock, n_rows = self._clock(rows.times, open_from), len(rows.times)
        cells, late = np.empty(n_rows, np.int64), np.zeros(n_rows + 1, np.int64)
        runs = np.empty((n_rows + 1, 3), np.int64) if rows.slots is None else None

        def run(row: int) -> int:
            room = (*clock, self._offsets, self.rings.table, self.arena.spare, late)
            n_late, placed_runs = int(late[0]), None
            if runs is None:
                stop = int(self.run(slice_loop.find_cells, rows.slots, rows.times, row, *room, cells))
            else:
                stop = int(self.run(slice_loop.find_runs, rows.times, row, *room, cells, runs))
                placed_runs = runs[1 : runs[0, 0] + 1] - np.array([row, row, 0], np.int64)
            placed, of_placed = rows.at(slice(row, stop)), cells[row:stop]
            if late[0] == n_late:
                self._update(placed, of_placed, placed_runs)
            else:
                self._update_on_time(placed, of_placed, start + row, placed_runs)
            return stop

        return self._run_with_room(run, 0, rows, open_from)

    def _place_by_sorting(self, rows: _Rows, open_from: int) -> Ints:
        """Return the cells of any rows, -1 for late ones; works for all times and amounts of room."""
        slots = rows.all_slots
        cells = np.full(len(slots), -1, np.int64)
        on_time = np.flatnonzero(rows.times >= open_from)
        if len(on_time):
            self.rings.reserve(int(slots.max()) + 1)
            cells[on_time] = self.rings.place(slots[on_time], self._slicing.ids(rows.times[on_time]))
        return cells

    def _update_on_time(self, rows: _Rows, cells: Ints, start: int, runs: Ints | None = None) -> None:
        """Add rows to their cells; those without one are noted as late."""
        if runs is not None:
            self.run(slice_loop.write_run_cells, runs, cells)
        late = np.flatnonzero(cells < 0)
        n_late = int(self._late[0])
        self._late[n_late + 1 : n_late + 1 + len(late)] = late + start
        self._late[0] += len(late)
        if len(late):
            on_time = np.flatnonzero(cells >= 0)
            rows, cells = rows.at(on_time), cells[on_time]
        self._update(rows, cells)

    def _update(self, rows: _Rows, cells: Ints, runs: Ints | None = None) -> None:
        """Add rows to their cells, accumulator by accumulator."""
        if not len(cells):
            return
        order = np.zeros(len(cells), np.int64) if rows.order is None else rows.order
        order = np.ascontiguousarray(order)
        update = AccumulatorUpdate(self.run, cells, rows.times, order, rows.values, runs)
        with locate_row(rows.slots, rows.times):
            for accumulator, state in zip(self._accumulators, self.arena.cells, strict=True):
                update.apply(accumulator, state)


@dataclass(frozen=True, slots=True)
class SumPass:
    """Counts and sums rows in one pass: `values` is the column that is summed."""

    values: Values
    rings: Rings
    arena: Arena

    def run(
        self,
        jit: JitPolicy,
        row: int,
        slots: Ints | None,
        times: Ints,
        room: tuple[Any, ...],
        cells: Sequence[Cells],
    ) -> int:
        """Count and sum from `row` on while there is room; return the row it stopped at.

        `room` is as for `slice_loop.find_cells`.
        """
        flat = (cells[0].reshape(-1), cells[1].reshape(-1))
        inputs, work = (times, self.values.data, row), len(times) - row
        if slots is None:
            return int(jit(sum_single, *inputs, *room, *flat, work=work))
        # Each slot's count and sum in the slice at hand are kept beside the rings until the slice changes.
        pairs, slice_ = np.zeros((len(self.rings.table), 2)), np.array([slice_loop.MIN_ID], np.int64)
        stopped = int(jit(sum_keyed, slots, *inputs, *room, *flat, slice_, pairs.reshape(-1), work=work))
        unplaced = np.flatnonzero(pairs[:, 0])
        if len(unplaced):  # these found no room
            places = self.rings.place(unplaced, np.full(len(unplaced), slice_[0]))
            self.arena.cells[0][places, 0] += pairs[unplaced, 0].astype(np.int64)
            self.arena.cells[1][places, 0] += pairs[unplaced, 1]
        return stopped


@dataclass(frozen=True, slots=True)
class FoldPass:
    """Lifts the rows of one slot and combines them into slices, by one loop compiled for the fold."""

    rule: Rule
    rows: FoldColumns

    def run(
        self,
        jit: JitPolicy,
        row: int,
        slots: Ints | None,
        times: Ints,
        room: tuple[Any, ...],
        cells: Sequence[Cells],
    ) -> int:
        """Fold the rows from `row` on while there is room; return the row it stopped at."""
        at = np.zeros(1, np.int64)
        inputs, into = (times, *self.rows.columns, row), (cells[0].reshape(-1), cells[1], at)
        with locate_row(slots, times), catch_combine(self.rule, at):
            loop = build_single_loop(self.rows.of)
            return int(jit(loop, *inputs, *room, *into, work=len(times) - row))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a batch; without slots all are of slot 0."""

    slots: Ints | None
    times: Ints
    values: Sequence[Values]
    order: Ints | None

    @property
    def all_slots(self) -> Ints:
        """Return the slots, also when all are 0."""
        return np.zeros(len(self.times), np.int64) if self.slots is None else self.slots

    def at(self, places: Any) -> _Rows:
        """Return the rows at these places, or of a slice."""
        slots = None if self.slots is None else self.slots[places]
        order = None if self.order is None else self.order[places]
        return _Rows(slots, self.times[places], [values.at(places) for values in self.values], order)
