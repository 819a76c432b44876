"""A cell as a stage of its own, where the cells of one join have no memory in common (DP-Join, 4.3).

The left is spread over m parts and the right over n; cell (i, j) has left part i and right part j, so each
row is in all cells of one row or one column, and each pair in one cell. One of them is the row's home: the
first cell of its row, or of its column. The home counts it, emits it if it is late, and saves it.
"""

from __future__ import annotations

import numpy as np

from penstock.frozen import Frozen
from penstock.stages.join.bounds import LEFT_SIDE
from penstock.stages.join.model import Layout, list_layouts
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Ints


class GridPlace(Frozen):
    """Which cell of a layout a stage is.

    parts   (i, j): its part of the left, and of the right
    layout  (m, n): how many parts there are of each
    """

    parts: tuple[int, int] = (0, 0)
    layout: Layout = (1, 1)

    def is_home(self, side: int) -> bool:
        """Return whether it is the home of its rows of this side."""
        return self.parts[1 - side] == 0

    def owns(self, side: int, bucket: int) -> bool:
        """Return whether rows that were saved under a bucket are in its part."""
        return bucket % self.layout[side] == self.parts[side]

    def buckets(self, side: int, numbers: Ints) -> Ints:
        """Return buckets for new rows of a side: such as this part owns, whoever restores it."""
        part, n_parts = self.parts[side], self.layout[side]
        return np.asarray(part + n_parts * (numbers % max(1, BUCKETS // n_parts)), np.int64)


WHOLE = GridPlace()
"""The only cell."""


def choose_cells(max_cells: int, rates: tuple[float, float] = (1.0, 1.0)) -> Layout:
    """Return the layout of up to so many cells that brings the fewest rows to each: x / m + y / n.

    Behind an exchange a row costs most where it is received and stored, once in each cell of its row or
    column; comparisons are shared out evenly by any layout (DP-Join, 3.3, expression 6).

    >>> choose_cells(6), choose_cells(6, (30.0, 1.0)), choose_cells(7)
    ((2, 3), (6, 1), (2, 3))
    """
    layouts = list_layouts(max_cells)
    return min(layouts, key=lambda layout: (rows_per_cell(layout, rates), layout[0] * layout[1]))


def rows_per_cell(layout: Layout, rates: tuple[float, float]) -> float:
    """Return how many rows a cell receives, or holds, of so many of both sides."""
    return rates[0] / layout[0] + rates[1] / layout[1]


def side_and_bucket(saved_bucket: int) -> tuple[int, int]:
    """Return the side and the bucket of a saved piece: those of the right are numbered from 256.

    >>> side_and_bucket(5), side_and_bucket(261)
    ((0, 5), (1, 5))
    """
    side, bucket = divmod(saved_bucket, BUCKETS)
    return LEFT_SIDE + side, bucket
