"""Which cell of a join a stage is, where the cells of one join have no memory in common (DP-Join, 4.3).

A row has a home, which is one of the cells that it is sent to: the home counts it, emits it if it is late,
and saves it. There the row has a bucket. In other cells it is a copy, and has none.

**A grid.** The left is spread over m parts and the right over n; cell (i, j) has left part i and right part
j, so each row is in all cells of one row or one column, and each pair in one cell. The home is the first one.

**Ranges of an attribute**, where a band says how far apart partners are in it. Its values are cut into
ranges, one to a cell. A row's home is the cell of its own value; a side that is copied is sent, besides, to
the cells that its band reaches into: the margin of their range. So a row is sent about once. One side is
copied, and a pair is found where the other row has its home. If rows of both sides leave without a partner
both are copied: the home of each sees all its partners, and that of the left row emits the pair. Rows that
are close to nothing (null, NaN) have one cell, whichever it is. Cuts are codes (`conditions.py`), so that
integers and floats are cut alike, and exactly.

**All rows in every cell**, where the home of a row has to see all its partners and no attribute bounds them,
or the order of all rows has to be known. A cell compares its own rows with all. Rows of two homes meet in
both, and the home of the left row emits the pair; or where the last rows are met, in that of the later row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from penstock.frozen import Frozen
from penstock.kernels.windows.ring import expand_ranges
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


class RangeLayout(Frozen):
    """How an attribute is cut.

    band    which of the bands of the join cuts it, by its place among them
    cuts    the code with which every range begins, but for the first, in their order
    copies  (of the left, of the right): whether rows are sent to all ranges that their band reaches into
    """

    band: int
    cuts: tuple[int, ...]
    copies: tuple[bool, bool]

    @property
    def n_parts(self) -> int:
        """Return the number of ranges."""
        return len(self.cuts) + 1

    def homes(self, codes: Ints) -> Ints:
        """Return the range that each row lies in."""
        return np.searchsorted(np.array(self.cuts, np.int64), codes, side="right").astype(np.int64)

    def reach(self, codes: Ints, condition: Condition) -> tuple[Ints, Ints]:
        """Return the first and the last range that the band of each row reaches into."""
        low, high = condition.ranges(codes)
        # A band that holds nothing has its ends the wrong way round, and reaches nowhere.
        return self.homes(low), self.homes(high)

    def copies_of(self, side: int, codes: Ints, condition: Condition) -> tuple[Ints, Ints]:
        """Return (range, row) for every range besides its home that a row of a side is sent to."""
        if not self.copies[side]:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        first, last = self.reach(codes, condition)
        parts, rows = expand_ranges(first, np.maximum(first, last + 1))
        away = parts != self.homes(codes)[rows]
        return parts[away], rows[away]

    def margin(self, part: int, condition: Condition) -> range:
        """Return the ranges that rows of a range may be copied to."""
        ends = np.array([self.cuts[max(0, part - 1)], self.cuts[min(part, len(self.cuts) - 1)]], np.int64)
        first, last = self.reach(ends, condition)
        return range(
            0 if part == 0 else int(first[0]),
            self.n_parts if part == self.n_parts - 1 else int(last[1]) + 1,
        )


class RangePlace(Frozen):
    """Which range of a layout a stage has; one that is too many has none."""

    part: int
    layout: RangeLayout

    @property
    def pairs_meet_twice(self) -> bool:
        """Return whether a pair is found wherever one of its rows has its home."""
        return all(self.layout.copies)

    def owns(self, bucket: int) -> bool:
        """Return whether it saves the rows of a bucket."""
        return bucket % self.layout.n_parts == self.part

    def buckets(self, side: int, numbers: Ints) -> Ints:
        """Return buckets for new rows of a side."""
        return spread_buckets(self.part, self.layout.n_parts, numbers)

    def own_buckets(self) -> Mask:
        """Return bool[2, 256]: the buckets of both sides that it saves."""
        return np.tile(np.arange(BUCKETS) % self.layout.n_parts == self.part, (2, 1))

    def take_up(self, side: int, rows: JoinRows, conditions: Sequence[Condition], *, anew: bool) -> JoinRows:
        """Return the saved rows that belong here, as home or as copies; others are elsewhere.

        anew  they get other buckets, because they were saved by another layout
        """
        band = conditions[self.layout.band]
        codes = rows.codes[1 + self.layout.band]
        is_home = self.layout.homes(codes) == self.part
        is_here = is_home.copy()
        parts, copied = self.layout.copies_of(side, codes, band)
        is_here[copied[parts == self.part]] = True
        buckets = self.buckets(side, rows.numbers) if anew else rows.buckets
        marked = replace(rows, buckets=np.where(is_home, buckets, NO_BUCKET))
        return marked if is_here.all() else marked.take(np.flatnonzero(is_here))

    def take_up_unmatchable(self, side: int, rows: JoinRows, *, anew: bool) -> JoinRows:
        """Return the saved rows without any partner that belong here: those whose bucket is its own."""
        owned = rows.take(np.flatnonzero(rows.buckets % self.layout.n_parts == self.part))
        return replace(owned, buckets=self.buckets(side, owned.numbers)) if anew else owned


class HomeLayout(Frozen):
    """So many cells that have all rows, each the home of some.

    meets_twice  whether a pair is found in the homes of both its rows, or only of the one that comes later
    """

    n_parts: int
    meets_twice: bool = True

    @property
    def share_compared(self) -> float:
        """Return the part of all comparisons that a cell makes."""
        own = 1 / self.n_parts
        return 2 * own - own * own if self.meets_twice else own


class HomePlace(Frozen):
    """Which cell of such a layout a stage is; one that is too many is the home of none."""

    part: int
    layout: HomeLayout

    @property
    def pairs_meet_twice(self) -> bool:
        """Implement `CellPlace.pairs_meet_twice`."""
        return self.layout.meets_twice

    def buckets(self, side: int, numbers: Ints) -> Ints:
        """Implement `CellPlace.buckets`."""
        return spread_buckets(self.part, self.layout.n_parts, numbers)

    def own_buckets(self) -> Mask:
        """Implement `CellPlace.own_buckets`."""
        return np.tile(np.arange(BUCKETS) % self.layout.n_parts == self.part, (2, 1))

    def take_up(self, side: int, rows: JoinRows, conditions: Sequence[Condition], *, anew: bool) -> JoinRows:
        """Implement `CellPlace.take_up`: all rows are here, and some at home."""
        is_home = rows.buckets % self.layout.n_parts == self.part
        return replace(rows, buckets=np.where(is_home, rows.buckets, NO_BUCKET))

    def take_up_unmatchable(self, side: int, rows: JoinRows, *, anew: bool) -> JoinRows:
        """Implement `CellPlace.take_up_unmatchable`: nobody meets them, so no copies are kept."""
        return rows.take(np.flatnonzero(rows.buckets % self.layout.n_parts == self.part))


def side_and_bucket(saved_bucket: int) -> tuple[int, int]:
    """Return the side and the bucket of a saved piece: those of the right are numbered from 256.

    >>> side_and_bucket(5), side_and_bucket(261)
    ((0, 5), (1, 5))
    """
    side, bucket = divmod(saved_bucket, BUCKETS)
    return LEFT_SIDE + side, bucket
