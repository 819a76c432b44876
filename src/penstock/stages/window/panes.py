"""One pass for a user's fold: rows are lifted and combined into slices by one loop, if there is nothing else.

The loop is compiled for the fold (`kernels/windows/folds.py`). Folds beside other registers, with nulls or in
Python go register by register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.frozen import dataclass
from penstock.kernels.windows import slice_loop as placing
from penstock.kernels.windows.accumulate import Cells, Rule
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.folds import build_keyed_loop, build_single_loop
from penstock.kernels.windows.ring import Rings
from penstock.kernels.windows.slice_loop import MIN_RING_CELLS
from penstock.kernels.windows.sums import sum_keyed, sum_single
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Ints
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.folds import FoldColumns, catch_combine, locate_row
from penstock.stages.window.inputs import AccumulatorUpdate, Run
from penstock.stages.window.store import Values
from penstock.timing.slices import Slicing


@dataclass(frozen=True, slots=True)
class FoldPass:
    """The rows of a batch and the rule of the only register beside their number."""

    rule: Rule
    rows: FoldColumns

    def run(
        self, run: Run, row: int, slots: Ints | None, times: Ints, room: tuple[Any, ...], cells: list[Cells]
    ) -> int:
        """Fold the rows from `row` on; gives the row it stopped at. `room` is as in `cells.place`."""
        of, at = self.rows.of, np.zeros(1, np.int64)
        loop = build_single_loop(of) if slots is None else build_keyed_loop(of)
        given = (*(() if slots is None else (slots,)), times, *self.rows.columns, row)
        into = (cells[0].reshape(-1), cells[1], at)
        with locate_row(slots, times), catch_combine(self.rule, at):
            return int(run(loop, *given, *room, *into, work=len(times) - row))


def plan_fold_pass(
    registers: Sequence[WindowAccumulator], values: Sequence[Values], *, keyed: bool
) -> FoldPass | None:
    """The pass that does everything for these rows, if one does.

    Counts of columns without nulls are nothing to do: they are kept as the number of nulls.
    """
    folds = [each for each in registers[1:] if each.kind is AccumulatorKind.FOLD]
    others = [each for each in registers[1:] if each.kind is not AccumulatorKind.FOLD]
    if len(folds) != 1 or registers[1] is not folds[0] or folds[0].column is None:
        return None
    if any(each.kind is not AccumulatorKind.COUNT or each.column is None for each in others):
        return None
    if any(each.column is None or values[each.column].valid is not None for each in registers[1:]):
        return None
    rows = values[folds[0].column]
    if not isinstance(rows, FoldColumns):
        return None
    loop = build_keyed_loop(rows.of) if keyed else build_single_loop(rows.of)
    return FoldPass(folds[0].rule, rows) if loop.compiles else None


# Count and sum rows in one pass, where that is all there is to do: the commonest aggregate by far.

ENOUGH = 4
"""So many rows per slot pay for sums per slot beside the rings."""


@dataclass(frozen=True, slots=True)
class SumPass:
    """The column that is summed; `run` as in `FoldPass`."""

    values: Values
    rings: Rings
    arena: Arena

    def run(
        self,
        pace: JitPolicy,
        row: int,
        slots: Ints | None,
        times: Ints,
        room: Sequence[Any],
        cells: Sequence[Any],
    ) -> int:
        """Count and sum from `row` on, as far as there is room; give the row it stopped at."""
        flat = (cells[0].reshape(-1), cells[1].reshape(-1))
        given, work = (times, self.values.data, row), len(times) - row
        if slots is None:
            return int(pace(sum_single, *given, *room, *flat, work=work))
        n_slots = len(self.rings.table)
        pairs, slice_ = np.zeros((n_slots, 2)), np.array([placing.MIN_ID], np.int64)
        stopped = int(pace(sum_keyed, slots, *given, *room, *flat, slice_, pairs.reshape(-1), work=work))
        waiting = np.flatnonzero(pairs[:, 0])
        if len(waiting):  # these found no room
            places = self.rings.place(waiting, np.full(len(waiting), slice_[0]))
            self.arena.cells[0][places, 0] += pairs[waiting, 0].astype(np.int64)
            self.arena.cells[1][places, 0] += pairs[waiting, 1]
        return stopped


def plan_sum_pass(
    registers: Sequence[WindowAccumulator],
    values: Sequence[Values],
    rings: Rings,
    arena: Arena,
    slots: Ints | None,
) -> SumPass | None:
    """A pass that does everything, or None where there is more to do than to count and sum one column.

    Counts of columns without nulls are nothing to do: they are kept as the number of nulls.
    """
    if len(registers) < 2 or registers[1].kind is not AccumulatorKind.FLOAT_SUM:
        return None
    if any(register.kind is not AccumulatorKind.COUNT for register in registers[2:]):
        return None
    columns = [register.column for register in registers[1:]]
    if any(column is None or values[column].valid is not None for column in columns):
        return None
    if slots is not None and len(slots) < ENOUGH * len(rings.table):
        return None
    assert columns[0] is not None, "a sum is of a column"
    return SumPass(values[columns[0]], rings, arena)


# Rows into slices: registers per (slot, slice), added to batch by batch (SPRINGALD's pane stage, IV-A).
#
# Three speeds with one outcome. Little data goes through NumPy, and through the loops as plain Python,
# without loading Numba. Else compiled loops find the cells of a chunk of rows once and add them register
# by register; a sum, or a compiled fold, has a pass of its own. A loop that meets a row its rings have no
# room for stops; `Rings.place` then makes room for the rows that are left.

CHUNK = 1 << 16
"""Rows that are placed and then added register by register, while their cells are in the cache."""


GLANCE = 64
"""One row of so many is looked at where a guess will do."""


class SliceAccumulators:
    """The registers of every slot's slices; the first register counts rows."""

    def __init__(
        self, slicing: Slicing, registers: Sequence[WindowAccumulator], compile_after: int | None = None
    ) -> None:
        assert registers[0].kind is AccumulatorKind.ROWS, (
            "only slices with rows count, so rows are counted first"
        )
        self.arena = Arena([register.rule for register in registers])
        self.arena.is_neutral = [register.kind is AccumulatorKind.COUNT for register in registers]
        self.rings = Rings(self.arena, slicing.longest)
        self._slicing, self._registers = slicing, tuple(registers)
        self.run = JitPolicy(compile_after)
        self._offsets = np.array(slicing.offsets, np.int64)
        self._late = np.zeros(1, np.int64)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self.arena.nbytes + self.rings.nbytes + self._late.nbytes

    def add(
        self,
        slots: Ints | None,
        times: Ints,
        values: Sequence[Values] = (),
        order: Ints | None = None,
        open_from: int = placing.MIN_ID,
    ) -> AddResult:
        """Add rows to their slices, but for those before `open_from`.

        Without slots all rows are of slot 0. `order` is the place among rows of equal time.
        """
        if len(times) > len(self._late) - 1:
            self._late = np.empty(len(times) + 1, np.int64)
        self._late[0] = 0
        if slots is not None and len(self.rings.table) <= 1 and not slots.any():
            slots = None  # one group for all: its loops are the faster ones
        self._note_nulls(values)
        rows = _Rows(slots, times, values, order)
        fast = self._fast(len(times))
        whole = self._one_pass(values, slots) if fast else None
        self.rings.reserve(1)
        row, least = 0, placing.MAX_ID
        while row < len(times):
            if whole is not None:
                row, seen = self._pass(row, rows, whole, open_from)
                least = min(least, seen)
            stop = min(row + CHUNK, len(times))
            if row < stop:
                least = min(least, int(times[row:stop].min()))
                self._add_chunk(rows.part(row, stop), row, open_from)
            row = stop
        return AddResult(self._late[1 : self._late[0] + 1].copy(), least)

    def _note_nulls(self, values: Sequence[Values]) -> None:
        """Nulls are counted, so that where none has come yet there is nothing to clear or to combine."""
        for place, register in enumerate(self._registers):
            if self.arena.is_neutral[place] and register.column is not None:
                self.arena.is_neutral[place] = values[register.column].valid is None

    def _fast(self, work: int) -> bool:
        return self.run.compiles(work) and self._slicing.period <= placing.MAX_DISTANCE

    def _clock(self, times: Ints, open_from: int) -> tuple[Ints, float]:
        """What the loops need to number slices around the times of these rows."""
        period = self._slicing.period
        reach = max(open_from, int(times[0]) - placing.MAX_DISTANCE // 2)
        rounds = reach // period
        base_id = rounds * len(self._slicing.offsets)
        clock = [open_from, reach, rounds * period, base_id, period, placing.MAX_ID]
        return np.array(clock, np.int64), 1.0 / period

    def _until_stuck(self, row: int, rows: _Rows, open_from: int, run: Callable[[int], int]) -> int:
        """Run a loop on from `row`, making room where it stops; give back the row that no room helps."""
        stuck = -1
        while True:
            row = run(row)
            if row in (len(rows.times), stuck):
                return row
            if self.arena.spare[0]:
                stuck = row
                self._make_room(rows.part(row, len(rows.times)), open_from)
            else:
                # As many as there may be new rings, but not many times what is in use.
                most = min(len(rows.times) - row, len(self.rings.table))
                self.arena.stock(min(most, self.arena.n_cells // MIN_RING_CELLS + 1000) + 1)

    def _make_room(self, rows: _Rows, open_from: int) -> None:
        """Let the rings hold the next of these rows, where that is simple."""
        near = rows.part(0, CHUNK)
        if near.times.min() < open_from:
            near = near.at(np.flatnonzero(near.times >= open_from))
        times = near.times
        if rows.slots is None and len(times):
            # A glance at the others saves growing twice for one batch.
            further = rows.times[CHUNK::GLANCE]
            least, most = times.min(), max(times.max(), further.max(initial=times[0]))
            lo, last = self._slicing.ids(np.array([least, most]))
            self.rings.cover_if_dense(_one(0), _one(lo), _one(last + 1), _one(len(times)))
        elif rows.slots is not None and len(times):
            self.rings.reserve(int(near.numbers.max()) + 1)
            self.rings.make_room(near.numbers, self._slicing.ids(times))

    def _one_pass(self, values: Sequence[Values], slots: Ints | None) -> SumPass | FoldPass | None:
        """A loop that does all there is to do, if there is one."""
        summing = plan_sum_pass(self._registers, values, self.rings, self.arena, slots)
        return summing or plan_fold_pass(self._registers, values, keyed=slots is not None)

    def _pass(self, row: int, rows: _Rows, whole: SumPass | FoldPass, open_from: int) -> tuple[int, int]:
        """Everything in one pass from `row` on, as far as there is room: where it stopped, the least time."""
        clock = self._clock(rows.times[row:], open_from)

        def run(at: int) -> int:
            room = (*clock, self._offsets, self.rings.table, self.arena.spare, self._late)
            return whole.run(self.run, at, rows.slots, rows.times, room, self.arena.cells)

        stopped = self._until_stuck(row, rows, open_from, run)
        return stopped, int(clock[0][placing.MIN_TIME])

    def _add_chunk(self, rows: _Rows, start: int, open_from: int) -> None:
        """Add the rows of a chunk, which begins at row `start` of its batch, register by register."""
        n, row = len(rows.times), 0
        if self._fast(n):
            row = self._place_and_fill(rows, start, open_from)
        if row < n:
            rest = rows.part(row, n)
            self._fill_without_late(rest, self._place_anywhere(rest, open_from), start + row)

    def _place_and_fill(self, rows: _Rows, start: int, open_from: int) -> int:
        """Place and add rows as far as there is room. What is placed is added before room moves its cells."""
        clock, n = self._clock(rows.times, open_from), len(rows.times)
        cells, late = np.empty(n, np.int64), np.zeros(n + 1, np.int64)
        runs = np.empty((n + 1, 3), np.int64) if rows.slots is None else None

        def run(row: int) -> int:
            room = (*clock, self._offsets, self.rings.table, self.arena.spare, late)
            n_late = int(late[0])
            if runs is None:
                stop = int(self.run(placing.find_cells, rows.slots, rows.times, row, *room, cells))
            else:
                stop = int(self.run(placing.find_runs, rows.times, row, *room, cells, runs))
            found = None if runs is None else _from_zero(runs[1 : runs[0, 0] + 1], row)
            taken, mine = rows.part(row, stop), cells[row:stop]
            if late[0] == n_late:
                self._fill(taken, mine, found)
            else:
                self._fill_without_late(taken, mine, start + row, found)
            return stop

        return self._until_stuck(0, rows, open_from, run)

    def _place_anywhere(self, rows: _Rows, open_from: int) -> Ints:
        """The cells of any rows, by sorting; -1 for late ones."""
        slots = rows.numbers
        cells = np.full(len(slots), -1, np.int64)
        on_time = np.flatnonzero(rows.times >= open_from)
        if len(on_time):
            self.rings.reserve(int(slots.max()) + 1)
            cells[on_time] = self.rings.place(slots[on_time], self._slicing.ids(rows.times[on_time]))
        return cells

    def _fill_without_late(self, rows: _Rows, cells: Ints, start: int, runs: Ints | None = None) -> None:
        """Add rows to their cells; those without one are noted as late."""
        if runs is not None:
            self.run(placing.write_run_cells, runs, cells)
        gone = np.flatnonzero(cells < 0)
        n_late = int(self._late[0])
        self._late[n_late + 1 : n_late + 1 + len(gone)] = gone + start
        self._late[0] += len(gone)
        if len(gone):
            taken = np.flatnonzero(cells >= 0)
            rows, cells = rows.at(taken), cells[taken]
        self._fill(rows, cells)

    def _fill(self, rows: _Rows, cells: Ints, runs: Ints | None = None) -> None:
        """Add rows to their cells, register by register."""
        if not len(cells):
            return
        order = np.zeros(len(cells), np.int64) if rows.order is None else rows.order
        filling = AccumulatorUpdate(
            self.run, cells, rows.times, np.ascontiguousarray(order), rows.values, runs
        )
        with locate_row(rows.slots, rows.times):
            for register, state in zip(self._registers, self.arena.cells, strict=True):
                filling.fill(register, state)


class AddResult(NamedTuple):
    """What became of rows: the places of those that came too late, and the least time of all."""

    late: Ints
    least: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a batch; without slots all are of slot 0."""

    slots: Ints | None
    times: Ints
    values: Sequence[Values]
    order: Ints | None

    @property
    def numbers(self) -> Ints:
        """The slots, also when all are 0."""
        return np.zeros(len(self.times), np.int64) if self.slots is None else self.slots

    def part(self, start: int, stop: int) -> _Rows:
        """The rows from `start` to `stop`."""
        return self._cut(slice(start, stop))

    def at(self, places: Ints) -> _Rows:
        """The rows at these places."""
        return self._cut(places)

    def _cut(self, which: Any) -> _Rows:
        slots = None if self.slots is None else self.slots[which]
        order = None if self.order is None else self.order[which]
        return _Rows(slots, self.times[which], [each.at(which) for each in self.values], order)


def _from_zero(runs: Ints, row: int) -> Ints:
    """Runs whose rows are counted from `row` on."""
    return runs - np.array([row, row, 0], np.int64)


def _one(number: int) -> Ints:
    return np.array([number], np.int64)
