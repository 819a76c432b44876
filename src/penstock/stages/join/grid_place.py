"""A cell as a stage of its own, where the cells of one join have no memory in common (DP-Join, 4.3).

The left is spread over m parts and the right over n; cell (i, j) has left part i and right part j, so each
row is in all cells of one row or one column, and each pair in one cell. One of them is the row's home: the
first cell of its row, or of its column. The home counts it, emits it if it is late, and saves it: there the
row has a bucket. In other cells it is a copy, and has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from penstock.frozen import Frozen
from penstock.stages.join.bounds import LEFT_SIDE
from penstock.stages.join.conditions import Condition
from penstock.stages.join.join_rows import JoinRows
from penstock.stages.join.model import Layout
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Ints, Mask

NO_BUCKET = -1
"""Stands for the bucket of a copy: its home is another cell, which saves it."""


class CellPlace(Protocol):
    """Which cell of a join a stage is, where others are elsewhere."""

    @property
    def pairs_meet_twice(self) -> bool:
        """Return whether a pair is found in the homes of both its rows; the left row's emits it."""

    def buckets(self, side: int, numbers: Ints) -> Ints:
        """Return buckets for new rows of a side: such as this cell owns, whoever restores it."""

    def own_buckets(self) -> Mask:
        """Return bool[2, 256]: the buckets of both sides that it saves."""

    def take_up(self, side: int, rows: JoinRows, conditions: Sequence[Condition], *, anew: bool) -> JoinRows:
        """Return the saved rows of a side that belong here; `anew` gives them other buckets."""

    def take_up_unmatchable(self, side: int, rows: JoinRows, *, anew: bool) -> JoinRows:
        """Return the saved rows that nothing can be paired with that belong here."""


def spread_buckets(part: int, n_parts: int, numbers: Ints) -> Ints:
    """Return buckets of one part for rows of these numbers: as even as they are."""
    return np.asarray(part + n_parts * (numbers % max(1, BUCKETS // n_parts)), np.int64)


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
        """Implement `CellPlace.buckets`."""
        return spread_buckets(self.parts[side], self.layout[side], numbers)

    @property
    def pairs_meet_twice(self) -> bool:
        """Implement `CellPlace.pairs_meet_twice`: two lines of cells cross once."""
        return False

    def own_buckets(self) -> Mask:
        """Implement `CellPlace.own_buckets`."""
        of_sides = [np.arange(BUCKETS) % self.layout[side] == self.parts[side] for side in (0, 1)]
        return np.array([of_sides[side] & self.is_home(side) for side in (0, 1)])

    def take_up(self, side: int, rows: JoinRows, conditions: Sequence[Condition], *, anew: bool) -> JoinRows:
        """Implement `CellPlace.take_up`: only what belongs here was read."""
        return rows if self.is_home(side) else replace(rows, buckets=np.full(len(rows), NO_BUCKET))

    def take_up_unmatchable(self, side: int, rows: JoinRows, *, anew: bool) -> JoinRows:
        """Implement `CellPlace.take_up_unmatchable`."""
        return self.take_up(side, rows, (), anew=anew)


WHOLE = GridPlace()
"""The only cell."""


def side_and_bucket(saved_bucket: int) -> tuple[int, int]:
    """Return the side and the bucket of a saved piece: those of the right are numbered from 256.

    >>> side_and_bucket(5), side_and_bucket(261)
    ((0, 5), (1, 5))
    """
    side, bucket = divmod(saved_bucket, BUCKETS)
    return LEFT_SIDE + side, bucket
