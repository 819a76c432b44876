"""Indexes of stored rows: an order by two codes, in which the rows of a box stand in few places.

The plan of an index is made of the rows and the boxes that there are: which codes narrow the rows down most,
and how wide their groups are. All segments of a side follow one plan, until there are twice as many rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.frozen import Frozen
from penstock.stages.join.conditions import Condition, Floats, KeyEquality
from penstock.stages.rows.batch import Ints
from penstock.stages.rows.order import sort_indices

CLOCK = 0
"""The code by which segments are sorted; the conditions have the codes after it."""


class IndexPlan(Frozen):
    """By which two codes the segments of a side are indexed.

    The first is cut into groups as wide as a box, so that a box lies in two or three of them, and inside a
    group the rows are in order of the second: a grid that is open on one side. Keys are groups by themselves.
    With one condition there is one group.

    first    the code of the groups; the clock if there is one group
    second   the other code
    width    of a group, as a difference of `Condition.numbers`; None for keys, and for one group
    share    of the rows that are looked at, as estimated
    n_rows   of the segment for which this was found
    """

    first: int
    second: int
    width: float | None
    share: float
    n_rows: int

    def groups_of(self, codes: Ints, conditions: Sequence[Condition]) -> Ints:
        """Return the group of each code of `first`; of a greater code it is not less."""
        if self.first == CLOCK:
            return np.zeros(len(codes), np.int64)
        if self.width is None:
            return codes
        numbers = conditions[self.first - 1].numbers(codes)
        with np.errstate(over="ignore"):
            groups = np.floor(numbers / self.width)
        return np.clip(groups, -(2.0**62), 2.0**62).astype(np.int64)


class Boxes:
    """What new rows look for: a range of every code, both ends included and none of them empty.

    lows, highs  int64[k, m]
    """

    def __init__(self, lows: Ints, highs: Ints) -> None:
        self.lows, self.highs = lows, highs
        self._by_group: tuple[IndexPlan, Ints, Boxes, Ints, Ints] | None = None

    def __len__(self) -> int:
        return int(self.lows.shape[1])

    def take(self, places: Ints | slice) -> Boxes:
        """Return some of the boxes."""
        return Boxes(np.ascontiguousarray(self.lows[:, places]), np.ascontiguousarray(self.highs[:, places]))

    def by_group(self, plan: IndexPlan, conditions: Sequence[Condition]) -> tuple[Ints, Boxes, Ints, Ints]:
        """Return the boxes in the order of their groups, where they were, and their first and last groups.

        Why: boxes that are near each other search rows that are near each other, which are in the cache then.
        """
        known = self._by_group
        if known is None or known[0] is not plan:
            first = plan.groups_of(self.lows[plan.first], conditions)
            places = np.argsort(first, kind="stable")
            boxes = self.take(places)
            last = plan.groups_of(boxes.highs[plan.first], conditions)
            self._by_group = known = (plan, places, boxes, first[places], last)
        return known[1:]


class SegmentIndex(Frozen):
    """An order of a segment's rows by two of their codes, as `search_boxes` wants it.

    starts  where the rows of a run of 2^shift groups begin, from the least group on, and where the last ends
    """

    plan: IndexPlan
    order: Ints
    groups: Ints
    seconds: Ints
    starts: Ints
    shift: int

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self.order.nbytes + self.groups.nbytes + self.seconds.nbytes + self.starts.nbytes


def plan_index(codes: Ints, boxes: Boxes, conditions: Sequence[Condition]) -> IndexPlan:
    """Return by which codes rows like these are found best, for boxes like these."""
    # Of the clock nothing is expected: most rows that are there are near enough.
    shares = [
        1.0,
        *(_estimate_share(one, codes[place], boxes, place) for place, one in enumerate(conditions, 1)),
    ]
    by_share = sorted(range(len(shares)), key=shares.__getitem__)
    if isinstance(conditions[0], KeyEquality):
        second = next(place for place in by_share if place != 1)
        return IndexPlan(1, second, None, shares[1] * shares[second], codes.shape[1])
    first, second = by_share[1], by_share[0]
    if first == CLOCK or shares[first] >= 1:
        return IndexPlan(CLOCK, second, None, shares[second], codes.shape[1])
    width = _choose_group_width(conditions[first - 1], codes[first], boxes, first)
    return IndexPlan(first, second, width, shares[second] * min(1.0, 2 * shares[first]), codes.shape[1])


def build_index(codes: Ints, plan: IndexPlan, conditions: Sequence[Condition]) -> SegmentIndex:
    """Return the index of rows with these codes."""
    groups = plan.groups_of(codes[plan.first], conditions)
    order = sort_indices([groups, codes[plan.second]])
    groups = np.ascontiguousarray(groups[order])
    least, extent = int(groups[0]), int(groups[-1]) - int(groups[0]) + 1
    # Few entries for each row, however far apart the groups are.
    shift = max(0, (extent // (2 * codes.shape[1])).bit_length())
    runs = (groups - least) >> shift
    starts = np.searchsorted(runs, np.arange(((extent - 1) >> shift) + 2))
    seconds = np.ascontiguousarray(codes[plan.second][order])
    return SegmentIndex(plan, order, groups, seconds, starts.astype(np.int64), shift)


def _estimate_share(condition: Condition, codes: Ints, boxes: Boxes, place: int) -> float:
    """Return about how many of the rows with these codes are in the range of a box, as a share of them."""
    if isinstance(condition, KeyEquality):
        return 1 / max(1, len(np.unique(codes)))
    least, most = _finite(condition.numbers(np.array([codes.min(), codes.max()])))
    lows, highs = (
        _finite(condition.numbers(boxes.lows[place])),
        _finite(condition.numbers(boxes.highs[place])),
    )
    widths = np.clip(highs, least, most) - np.clip(lows, least, most)
    return float(widths.mean() / (most - least)) if most > least else 1.0


def _choose_group_width(condition: Condition, codes: Ints, boxes: Boxes, place: int) -> float:
    """Return a width of groups such that a box lies in few of them, and a group has some rows."""
    lows, highs = (
        _finite(condition.numbers(boxes.lows[place])),
        _finite(condition.numbers(boxes.highs[place])),
    )
    values = _finite(condition.numbers(codes))
    # Why: a group must be wider than the distance of two floats, or a box would lie in very many.
    spacing = 4 * float(np.spacing(np.abs(values).max()))
    return max(float((highs - lows).mean()), spacing, float(np.ptp(values)) / len(codes))


def _finite(values: Floats) -> Floats:
    """Return numbers that can be subtracted: great ones are cut off, which only estimates may do."""
    return np.clip(values, -1e300, 1e300)
