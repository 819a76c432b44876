"""An index of stored rows: a grid over two codes, each of whose cells chains its rows, newest first.

A box lies in two cells of each code, because cells are as wide as boxes; keys are cells by themselves. Cells
are hashed, so the grid may be as wide as the values are. A row is added by one write, and nothing is done
when rows are over: a chain ends at the first row that is older than all live ones, and a box holds no clock
of a row that is over.

The plan of an index is made of the rows and the boxes that there are: which codes narrow the rows down most,
and how wide cells are. It is made again when there are twice as many rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.frozen import Frozen
from penstock.kernels.join.boxes import ALL_ONE, MOST_CELLS, OWN, chain_rows, search_chains
from penstock.stages import policy
from penstock.stages.join.conditions import TIME, Condition
from penstock.stages.rows.batch import Ints

CLOCK = 0
"""The code by which rows meet and expire; the conditions have the codes after it."""
_WIDE = 0.5
"""A code that leaves more than this share of the rows is not worth a part in the grid."""

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
