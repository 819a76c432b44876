"""Indexes of stored rows: by their clock, which all have, and a grid over two codes, where that is worth it.

The order by clock is a few sorted runs, as in a log-structured merge tree, because rows may come late.

Each cell of a grid chains its rows, newest first. A box lies in two cells of each code, because cells are as
wide as boxes; keys are cells by themselves. Cells are hashed, so the grid may be as wide as the values are. A
row is added by one write, and nothing is done when rows are over: a chain ends at the first row that is older
than all live ones, and a box holds no clock of a row that is over.

The plan of a grid is made of the rows and the boxes that there are: which codes narrow the rows down most,
and how wide cells are. It is made again when there are twice as many rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from penstock.frozen import Frozen
from penstock.kernels.join.boxes import ALL_ONE, MOST_CELLS, OWN, Floats, chain_rows, search_chains
from penstock.stages import policy
from penstock.stages.join.conditions import CLOCK, TIME, Condition
from penstock.stages.rows.batch import Ints

_WIDE = 0.5
"""A code that leaves more than this share of the rows is not worth a part in the grid."""
RUN_GROWTH = 4
"""How many times longer than the run after it a run is at least, or they are merged."""
_NEVER = 2**63 - 1
_NONE = np.empty(0, np.int64)

Hits = tuple[Ints, Ints]
"""Boxes and rows in them, pair by pair."""


class Boxes:
    """What new rows look for: a range of every code, both ends included and none of them empty.

    lows, highs  int64[k, m]
    """

    def __init__(self, lows: Ints, highs: Ints) -> None:
        self.lows, self.highs = lows, highs

    def __len__(self) -> int:
        return int(self.lows.shape[1])

    def take(self, places: Ints | slice) -> Boxes:
        """Return some of the boxes."""
        return Boxes(np.ascontiguousarray(self.lows[:, places]), np.ascontiguousarray(self.highs[:, places]))


class GridAxis(Frozen):
    """One of the codes of a grid.

    code   which
    unit   what it stands for (`kernels/join/boxes.py`)
    width  of a cell
    share  of the rows that are looked at, as estimated
    """

    code: int
    unit: int
    width: float
    share: float


class IndexPlan(Frozen):
    """By which codes rows are found, two at most; with none, all rows are in one cell."""

    axes: tuple[GridAxis, ...]
    share: float


def plan_index(codes: Ints, boxes: Boxes, conditions: Sequence[Condition]) -> IndexPlan:
    """Return by which codes rows like these are found best, for boxes like these."""
    axes = [_plan_axis(place, codes[place], boxes, conditions) for place in range(len(codes))]
    best = sorted(axes, key=lambda axis: axis.share)[:2]
    chosen = tuple(axis for axis in best if axis.share < _WIDE)
    return IndexPlan(chosen, math.prod(axis.share for axis in chosen))


def _plan_axis(code: int, codes: Ints, boxes: Boxes, conditions: Sequence[Condition]) -> GridAxis:
    condition = TIME if code == CLOCK else conditions[code - 1]
    if condition.unit == OWN:
        return GridAxis(code, OWN, 1.0, 1 / max(1, len(np.unique(codes))))
    values, lows, highs = (
        # Why: numbers that can be subtracted; great ones are cut off, which only estimates may do.
        np.clip(condition.numbers(ends), -1e300, 1e300)
        for ends in (codes, boxes.lows[code], boxes.highs[code])
    )
    least, most = values.min(), values.max()
    covered = (np.clip(highs, least, most) - np.clip(lows, least, most)).mean()
    # Why: a cell must be wider than the distance of two floats, or a box would lie in very many.
    spacing = 4 * float(np.spacing(np.abs(values).max()))
    width = max(float((highs - lows).mean()), spacing, float(most - least) / len(codes))
    share = min(1.0, 2 * float(covered / (most - least))) if most > least else 1.0
    return GridAxis(code, condition.unit, width, share)


NO_CHAINS = (
    np.empty(0, np.int64),
    np.empty((0, 4), np.int64),
    0,
    np.zeros(2, np.int64),
    np.zeros(2, np.int64),
    np.ones(2),
    np.empty(0, np.int64),
)
"""Stands for the chains of rows without an index."""


class GridIndex:
    """The chains of all cells.

    plan  by which codes
    """

    def __init__(self, plan: IndexPlan, n_codes: int, capacity: int) -> None:
        self.plan = plan
        n_bits = max(4, (capacity - 1).bit_length())
        self._shift = 64 - n_bits
        self._heads = np.full(1 << n_bits, -1, np.int64)
        self._links = np.empty((capacity, 4), np.int64)
        axes = (*plan.axes, *(GridAxis(CLOCK, ALL_ONE, 1.0, 1.0) for _ in range(2 - len(plan.axes))))
        self._axes = np.array([axis.code for axis in axes])
        self._others = np.setdiff1d(np.arange(n_codes), [CLOCK, *self._axes])
        self._units = np.array([axis.unit for axis in axes])
        self._widths = np.array([axis.width for axis in axes])

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._heads.nbytes + self._links.nbytes

    @property
    def chains(self) -> tuple[Ints, Ints, int, Ints, Ints, Floats, Ints]:
        """Return heads, links, shift, axes, units, widths, and which codes are not on an axis."""
        axes = (self._axes, self._units, self._widths)
        return self._heads, self._links, self._shift, *axes, self._others

    def add(self, codes: Ints, begin: int, end: int, run: policy.JitPolicy) -> None:
        """Add the rows of some slots; the codes are those of all."""
        axes = (self._axes, self._units, self._widths)
        run(chain_rows, codes, begin, end, *axes, self._heads, self._links, self._shift, work=end - begin)

    def search(self, codes: Ints, oldest: int, boxes: Boxes, run: policy.JitPolicy) -> tuple[Hits, Ints]:
        """Return the rows in each box, and the boxes that lie in too many cells to be looked for.

        codes   int64[k, c]  of all slots
        oldest  the first slot that may be live
        """
        n_boxes, capacity = len(boxes), 1024
        looked_at = (codes.shape[1] - oldest) * self.plan.share
        open_boxes, open_rows = np.empty((2, MOST_CELLS * n_boxes), np.int64)
        wide = np.empty(1 + n_boxes, np.int64)
        while True:
            hit_boxes, hit_rows = np.empty((2, capacity), np.int64)
            n_found = run(
                search_chains,
                self._heads,
                self._links,
                self._shift,
                oldest,
                codes,
                self._others,
                boxes.lows,
                boxes.highs,
                self._axes,
                self._units,
                self._widths,
                open_boxes,
                open_rows,
                wide,
                hit_boxes,
                hit_rows,
                work=int((MOST_CELLS + looked_at) * n_boxes),
            )
            if n_found <= capacity:
                return (hit_boxes[:n_found], hit_rows[:n_found]), wide[1 : 1 + wide[0]]
            capacity = n_found


class ClockRun(Frozen):
    """Rows by their clock, as they came where it is equal."""

    clock: Ints
    slots: Ints

    def __len__(self) -> int:
        return len(self.slots)


class ClockRuns:
    """The live rows of one part of one side; a few new ones wait as they came until they are many."""

    def __init__(self) -> None:
        self._runs: list[ClockRun] = []
        self._least, self._n_rows = _NEVER, 0
        self._waiting: list[Ints] = []
        self._n_waiting = self._first_waiting = 0

    def __len__(self) -> int:
        return self._n_rows

    def __iter__(self) -> Iterator[ClockRun]:
        self._sort_waiting()
        return iter(self._runs)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return 16 * len(self)

    def add(self, clock: Ints, first_slot: int, least: int) -> None:
        """Note the clocks of new rows, and the least of them; they have the slots from the first on."""
        n_new = len(clock)
        if not self._n_waiting:
            self._first_waiting = first_slot
        self._n_rows += n_new
        self._n_waiting += n_new
        self._waiting.append(np.array(clock))
        self._least = min(self._least, least)
        if self._n_waiting >= policy.SIZES.waiting_rows:
            self._sort_waiting()

    def _sort_waiting(self) -> None:
        """Make a run of the rows that wait."""
        if not self._n_waiting:
            return
        clock, first = np.concatenate(self._waiting), self._first_waiting
        self._waiting, self._n_waiting = [], 0
        run = _sort_run(clock, np.arange(first, first + len(clock)))
        runs = self._runs
        runs.append(run)
        while len(runs) > 1 and len(runs[-2]) <= RUN_GROWTH * len(runs[-1]):
            before, last = runs[-2:]
            runs[-2:] = [_merge_runs(before, last)]

    def expire(self, horizon: int) -> Ints:
        """Remove the rows whose clock is before the horizon; return their slots, by run."""
        over = []
        if self._least < horizon:
            self._sort_waiting()
            left_runs = []
            for run in self._runs:
                n_over = int(np.searchsorted(run.clock, horizon))
                if n_over:
                    over.append(run.slots[:n_over])
                if n_over < len(run):
                    left_runs.append(ClockRun(run.clock[n_over:], run.slots[n_over:]) if n_over else run)
            self._runs = left_runs
            self._least = min((int(run.clock[0]) for run in left_runs), default=_NEVER)
        if not over:
            return _NONE
        slots = over[0] if len(over) == 1 else np.concatenate(over)
        self._n_rows -= len(slots)
        return slots

    def slots(self) -> Ints:
        """Return the slots of all rows, in order."""
        return np.sort(np.concatenate([_NONE, *(run.slots for run in self)]))

    def renumber(self, slots: Ints) -> None:
        """Take note that these slots, all that there are and in order, are those from 0 on from now on."""
        self._runs = [ClockRun(np.array(run.clock), np.searchsorted(slots, run.slots)) for run in self]


def _sort_run(clock: Ints, slots: Ints) -> ClockRun:
    if (clock[1:] >= clock[:-1]).all():
        return ClockRun(clock, slots)
    order = np.argsort(clock, kind="stable")
    return ClockRun(clock[order], slots[order])


def _merge_runs(before: ClockRun, last: ClockRun) -> ClockRun:
    clock, slots = (
        np.concatenate([before.clock, last.clock]),
        np.concatenate([before.slots, last.slots]),
    )
    if before.clock[-1] <= last.clock[0]:
        return ClockRun(clock, slots)
    return _sort_run(clock, slots)
