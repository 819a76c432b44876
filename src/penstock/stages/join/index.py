"""An index of stored rows: a grid over two codes, each of whose cells chains its rows, newest first.

A box lies in two cells of each code, because cells are as wide as boxes; keys are cells by themselves. Cells
are hashed, so the grid may be as wide as the values are. A row is added by one write, and nothing is done
when rows are over: a chain ends at the first row that is older than all live ones, and a box holds no clock
of a row that is over.

The plan of an index is made of the rows and the boxes that there are: which codes narrow the rows down most,
and how wide cells are. It is made again when there are twice as many rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.frozen import Frozen
from penstock.kernels.join.boxes import chain_rows, search_chains
from penstock.stages import policy
from penstock.stages.join.conditions import Condition, Floats, KeyEquality
from penstock.stages.rows.batch import Ints, Mask

CLOCK = 0
"""The code by which rows meet and expire; the conditions have the codes after it."""
MOST_CELLS = 16
"""A box that lies in more cells is scanned for."""
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
    """One of the two codes of a grid.

    code   which
    width  of a cell, as a difference of the numbers of codes; None if each code is a cell
    share  of the rows that are looked at, as estimated
    """

    code: int
    width: float | None
    share: float

    def cells_of(self, codes: Ints, conditions: Sequence[Condition]) -> Ints:
        """Return the cell of each code; of a greater code it is not less."""
        if self.width is None:
            return codes
        with np.errstate(over="ignore"):
            cells = np.floor(_numbers(self.code, codes, conditions) / self.width)
        return np.clip(cells, -(2.0**62), 2.0**62).astype(np.int64)


class IndexPlan(Frozen):
    """By which codes rows are found, two at most; with none, all rows are in one cell."""

    axes: tuple[GridAxis, ...]

    @property
    def share(self) -> float:
        """Return the share of the rows that a box looks at, as estimated."""
        return float(np.prod([axis.share for axis in self.axes]))

    def cells_of(self, codes: Ints, conditions: Sequence[Condition]) -> tuple[Ints, Ints]:
        """Return the cells of rows, or of ends of boxes, on both axes."""
        cells = [axis.cells_of(codes[axis.code], conditions) for axis in self.axes]
        first, second = *cells, *(np.zeros(codes.shape[1], np.int64) for _ in range(2 - len(cells)))
        return first, second


def plan_index(codes: Ints, boxes: Boxes, conditions: Sequence[Condition]) -> IndexPlan:
    """Return by which codes rows like these are found best, for boxes like these."""
    axes = [_plan_axis(place, codes[place], boxes, conditions) for place in range(len(codes))]
    best = sorted(axes, key=lambda axis: axis.share)[:2]
    return IndexPlan(tuple(axis for axis in best if axis.share < _WIDE))


def _plan_axis(code: int, codes: Ints, boxes: Boxes, conditions: Sequence[Condition]) -> GridAxis:
    if code != CLOCK and isinstance(conditions[code - 1], KeyEquality):
        return GridAxis(code, None, 1 / max(1, len(np.unique(codes))))
    values, lows, highs = (
        # Why: numbers that can be subtracted; great ones are cut off, which only estimates may do.
        np.clip(_numbers(code, ends, conditions), -1e300, 1e300)
        for ends in (codes, boxes.lows[code], boxes.highs[code])
    )
    least, most = values.min(), values.max()
    covered = (np.clip(highs, least, most) - np.clip(lows, least, most)).mean()
    # Why: a cell must be wider than the distance of two floats, or a box would lie in very many.
    spacing = 4 * float(np.spacing(np.abs(values).max()))
    width = max(float((highs - lows).mean()), spacing, float(most - least) / len(codes))
    return GridAxis(code, width, min(1.0, 2 * float(covered / (most - least))) if most > least else 1.0)


def _numbers(code: int, codes: Ints, conditions: Sequence[Condition]) -> Floats:
    """Return numbers as far apart as the values of the codes."""
    return codes.astype(np.float64) if code == CLOCK else conditions[code - 1].numbers(codes)


class GridIndex:
    """The chains of all cells.

    plan  by which codes
    """

    def __init__(self, plan: IndexPlan, capacity: int) -> None:
        self.plan = plan
        n_bits = max(4, (capacity - 1).bit_length())
        self._shift = 64 - n_bits
        self._heads = np.full(1 << n_bits, -1, np.int64)
        self._links = np.empty(capacity, np.int64)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._heads.nbytes + self._links.nbytes

    def add(self, codes: Ints, first: int, conditions: Sequence[Condition], run: policy.JitPolicy) -> None:
        """Add rows with these codes, the first of which has this slot."""
        cells = self.plan.cells_of(codes, conditions)
        run(chain_rows, *cells, first, self._heads, self._links, self._shift)

    def search(
        self,
        codes: Ints,
        first: int,
        boxes: Boxes,
        conditions: Sequence[Condition],
        run: policy.JitPolicy,
    ) -> tuple[Hits, Mask | None]:
        """Return the rows in each box, and which boxes lie in too many cells to be looked for; None for none.

        codes  int64[k, c]  of all slots
        first  the first live slot
        """
        first_low, second_low = self.plan.cells_of(boxes.lows, conditions)
        first_high, second_high = self.plan.cells_of(boxes.highs, conditions)
        # Floats: the distance of two cells may be beyond int64.
        n_cells = (1.0 + first_high - first_low) * (1.0 + second_high - second_low)
        wide: Mask | None = n_cells > MOST_CELLS
        if wide.any():
            second_high = np.where(wide, second_low - 1, second_high)
            n_cells = np.where(wide, 0.0, n_cells)
        else:
            wide = None
        capacity, n_open = 1024, int(n_cells.sum())
        open_boxes, open_rows = np.empty(n_open, np.int64), np.empty(n_open, np.int64)
        while True:
            hit_boxes, hit_rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
            n_found = run(
                search_chains,
                self._heads,
                self._links,
                self._shift,
                first,
                codes,
                boxes.lows,
                boxes.highs,
                first_low,
                first_high,
                second_low,
                second_high,
                open_boxes,
                open_rows,
                hit_boxes,
                hit_rows,
                work=4 * len(boxes) + int(codes.shape[1] * self.plan.share) * len(boxes),
            )
            if n_found <= capacity:
                return (hit_boxes[:n_found], hit_rows[:n_found]), wide
            capacity = n_found
