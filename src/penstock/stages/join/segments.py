"""Stored rows of one side of a join: segments in order of time, by attribute (DP-Join, 4.4.1).

Every segment is sorted by its clock, the code by which rows meet and expire: their time, their window, or
their number. New rows are a segment of their own; a segment is put together with the one before it unless
that is much larger, so that there are few, and late rows keep their place by time. Nothing else changes in a
segment but its first live row, because expiry cuts off a prefix, and which rows have a partner.

Whether a scan or an index (`index.py`) finds the rows of a box is a question of cost: a segment is scanned
until that has cost as much as an index does, and then gets one, if its boxes are small. The answer is the
same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.frozen import Frozen
from penstock.kernels.join.boxes import scan_boxes, search_boxes
from penstock.kernels.windows.ring import expand_ranges
from penstock.stages import policy
from penstock.stages.join.conditions import Condition
from penstock.stages.join.index import CLOCK, Boxes, IndexPlan, SegmentIndex, build_index, plan_index
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.order import Order, concat_orders


class JoinRows(Frozen):
    """Rows of one side.

    codes    int64[k, n]  the clock, and a code for each condition; of rows that meet nothing, the clock only
    times    int64[n]     microseconds
    order    their place among rows of equal time
    rows     all their columns
    buckets  int64[n]     by which they are saved, and spread over cells
    numbers  int64[n]     of the rows as they came, each once
    paired   bool[n]      which have a partner; the one thing that changes
    """

    codes: Ints
    times: Ints
    order: Order
    rows: pa.RecordBatch
    buckets: Ints
    numbers: Ints
    paired: Mask

    def __len__(self) -> int:
        return len(self.times)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        arrays: list[Any] = [self.codes, self.times, *self.order, self.buckets, self.numbers, self.paired]
        return sum(int(array.nbytes) for array in arrays) + int(self.rows.nbytes)

    def part(self, begin: int, end: int) -> JoinRows:
        """Return some of the rows, one after the other, where they are; `paired` is shared."""
        here = slice(begin, end)
        return JoinRows(
            self.codes[:, here],
            self.times[here],
            tuple(column[here] for column in self.order),
            self.rows.slice(begin, end - begin),
            self.buckets[here],
            self.numbers[here],
            self.paired[here],
        )

    def take(self, indices: Ints) -> JoinRows:
        """Return the rows at these indices."""
        return JoinRows(
            np.ascontiguousarray(self.codes[:, indices]),
            self.times[indices],
            tuple(column[indices] for column in self.order),
            self.rows.take(pa.array(indices)),
            self.buckets[indices],
            self.numbers[indices],
            self.paired[indices],
        )


def concat_join_rows(parts: Sequence[JoinRows]) -> JoinRows:
    """Return several lots of rows of one side as one."""
    if len(parts) == 1:
        return parts[0]
    return JoinRows(
        np.concatenate([part.codes for part in parts], axis=1),
        np.concatenate([part.times for part in parts]),
        concat_orders([(part.order, len(part)) for part in parts]),
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.buckets for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.paired for part in parts]),
    )


def sort_by_clock(rows: JoinRows) -> JoinRows:
    """Return the rows by their clock, as they came where it is equal."""
    clock = rows.codes[CLOCK]
    if (clock[1:] >= clock[:-1]).all():
        return rows
    return rows.take(np.argsort(clock, kind="stable"))


class Share(NamedTuple):
    """Which part of the stored rows a worker searches, of how many equal ones."""

    number: int
    n_shares: int


ALONE = Share(0, 1)
"""All rows."""

Hits = tuple[Ints, Ints]
"""Boxes and rows in them, pair by pair."""


class Segment:
    """Rows that came at about the same time, sorted by their clock.

    rows   the rows
    start  the first that is live
    """

    def __init__(self, rows: JoinRows, n_compared: int = 0) -> None:
        self.rows, self.start = rows, 0
        self._n_compared = n_compared
        self._index: SegmentIndex | None = None
        self._keeps_scanning = False

    @property
    def has_index(self) -> bool:
        """Return whether rows are looked for by an index."""
        return self._index is not None

    @property
    def n_live(self) -> int:
        """Return the number of live rows."""
        return len(self.rows) - self.start

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self.rows.nbytes + (0 if self._index is None else self._index.nbytes)

    def live_rows(self) -> JoinRows:
        """Return the live rows."""
        return self.rows if self.start == 0 else self.rows.part(self.start, len(self.rows))

    def pack(self) -> Segment:
        """Return the live rows as a segment without the others."""
        return Segment(self.rows.take(np.arange(self.start, len(self.rows))), self._n_compared)

    def merge(self, later: Segment) -> Segment:
        """Return the live rows of both as one segment."""
        rows = sort_by_clock(concat_join_rows([self.live_rows(), later.live_rows()]))
        return Segment(rows, self._n_compared + later._n_compared)

    def expire(self, horizon: int) -> range:
        """Move the first live row up to the horizon of the clock; return the rows that are over."""
        clock, before = self.rows.codes[CLOCK], self.start
        if clock[before] >= horizon:
            return range(before, before)
        self.start = max(before, int(np.searchsorted(clock, horizon)))
        return range(before, self.start)

    def prepare(
        self, boxes: Boxes, conditions: Sequence[Condition], plan: IndexPlan | None
    ) -> IndexPlan | None:
        """Make an index if scans have cost as much, by this plan or by a better one, which is returned.

        Whatever changes here does so before cells search.
        """
        if self._index is not None or self._keeps_scanning or not conditions:
            return plan
        n_rows = self.n_live
        self._n_compared += len(boxes) * n_rows
        costs = policy.SIZES
        if n_rows < costs.index_rows or self._n_compared < costs.index_cost * n_rows:
            return plan
        if plan is None or n_rows >= 2 * plan.n_rows:
            plan = plan_index(self.rows.codes, boxes, conditions)
        if plan.share * costs.index_share > 1:
            self._keeps_scanning = True
        else:
            self._index = build_index(self.rows.codes, plan, conditions)
        return plan

    def find(
        self, boxes: Boxes, conditions: Sequence[Condition], run: policy.JitPolicy, share: Share = ALONE
    ) -> Iterator[Hits]:
        """Yield the live rows in each box, some at a time."""
        if len(conditions) == 0:
            yield from self._find_by_clock(boxes, share)
            return
        share_looked_at = 1.0 if self._index is None else self._index.plan.share
        n_compared = max(1.0, self.n_live * share_looked_at)
        n_at_once = max(1, int(policy.SIZES.compared_at_once / n_compared))
        for begin in range(0, len(boxes), n_at_once):
            part = boxes if n_at_once >= len(boxes) else boxes.take(slice(begin, begin + n_at_once))
            box, row = self._look(part, conditions, run, share)
            if len(box):
                yield box + begin, row

    def _look(
        self, boxes: Boxes, conditions: Sequence[Condition], run: policy.JitPolicy, share: Share
    ) -> Hits:
        if self._index is None:
            return self._scan(boxes, run, share)
        box, row = self._search(boxes, conditions, run)
        first, past = self._share_ends(share)
        if first == 0 and past == len(self.rows):
            return box, row
        own = (row >= first) & (row < past)
        return box[own], row[own]

    def _share_ends(self, share: Share) -> tuple[int, int]:
        """Return the first row of a share of the live rows, and the row after its last."""
        number, n_shares = share
        n_live = self.n_live
        return self.start + n_live * number // n_shares, self.start + n_live * (number + 1) // n_shares

    def _clock_ranges(self, boxes: Boxes, share: Share) -> tuple[Ints, Ints]:
        """Return from which row of a share to which the clock is in the range of each box."""
        clock = self.rows.codes[CLOCK]
        first, past = self._share_ends(share)
        begins = np.clip(np.searchsorted(clock, boxes.lows[CLOCK]), first, past)
        ends = np.clip(np.searchsorted(clock, boxes.highs[CLOCK], side="right"), begins, past)
        return begins.astype(np.int64), ends.astype(np.int64)

    def _find_by_clock(self, boxes: Boxes, share: Share) -> Iterator[Hits]:
        begins, ends = self._clock_ranges(boxes, share)
        n_before = np.append(0, np.cumsum(ends - begins))
        at = 0
        while at < len(boxes):
            past = int(np.searchsorted(n_before, n_before[at] + policy.SIZES.pairs_at_once))
            past = max(at + 1, min(past, len(boxes)))
            rows, ranges = expand_ranges(begins[at:past], ends[at:past])
            if len(rows):
                yield ranges + at, rows
            at = past

    def _scan(self, boxes: Boxes, run: policy.JitPolicy, share: Share) -> Hits:
        begins, ends = self._clock_ranges(boxes, share)
        codes, lows, highs = self.rows.codes, boxes.lows, boxes.highs
        second = min(2, len(codes) - 1)
        n_compared = int((ends - begins).sum())
        if n_compared == 0:
            return _NOTHING
        hits = _collect(
            lambda boxes, rows: run(
                scan_boxes,
                codes[1],
                codes[second],
                lows[1],
                highs[1],
                lows[second],
                highs[second],
                begins,
                ends,
                boxes,
                rows,
                work=n_compared,
            )
        )
        if len(codes) <= 3 or not len(hits[0]):
            return hits
        box, row = hits
        values = codes[3:, row]
        inside = np.logical_and.reduce((values >= lows[3:, box]) & (values <= highs[3:, box]))
        return box[inside], row[inside]

    def _search(self, boxes: Boxes, conditions: Sequence[Condition], run: policy.JitPolicy) -> Hits:
        index = self._index
        assert index is not None, "there is an index"
        places, sorted_boxes, first_groups, last_groups = boxes.by_group(index.plan, conditions)
        lows, highs, second = sorted_boxes.lows, sorted_boxes.highs, index.plan.second
        box, row = _collect(
            lambda hit_boxes, hit_rows: run(
                search_boxes,
                index.order,
                index.groups,
                index.seconds,
                index.starts,
                index.shift,
                self.rows.codes,
                lows,
                highs,
                first_groups,
                last_groups,
                lows[second],
                highs[second],
                hit_boxes,
                hit_rows,
                work=len(boxes) + len(index.order),
            )
        )
        return places[box], row


_NOTHING: Hits = (np.empty(0, np.int64), np.empty(0, np.int64))


def _collect(find: Any) -> Hits:
    """Return what a loop finds, which says how much that is."""
    capacity = 1024
    while True:
        boxes, rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        n_found = int(find(boxes, rows))
        if n_found <= capacity:
            return boxes[:n_found], rows[:n_found]
        capacity = n_found


class RowSegments:
    """All stored rows of one part of one side.

    segments  oldest first; later ones may hold rows of before, if those came late
    """

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._plan: IndexPlan | None = None

    def __len__(self) -> int:
        return sum(segment.n_live for segment in self.segments)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return sum(segment.nbytes for segment in self.segments)

    def add(self, rows: JoinRows) -> Segment | None:
        """Store rows."""
        if not len(rows):
            return None
        if not rows.codes.flags.c_contiguous:  # a part of others
            rows = replace(rows, codes=np.ascontiguousarray(rows.codes))
        self.segments.append(Segment(sort_by_clock(rows)))
        most = policy.SIZES.segment_rows
        while len(self.segments) > 1:
            before, last = self.segments[-2:]
            # Segments become four times as large from each to the one before it, so there are few.
            if before.n_live > 4 * last.n_live or before.n_live + last.n_live > most:
                break
            self.segments[-2:] = [before.merge(last)]
        return self.segments[-1]

    @property
    def n_scanned(self) -> int:
        """Return the number of rows that every box is compared with, because they have no index."""
        return sum(segment.n_live for segment in self.segments if not segment.has_index)

    def prepare(self, boxes: Boxes, conditions: Sequence[Condition]) -> None:
        """Make the indexes that are worth it."""
        for segment in self.segments:
            self._plan = segment.prepare(boxes, conditions, self._plan)

    def expire(self, horizon: int) -> list[JoinRows]:
        """Remove the rows whose clock is before the horizon, and return them."""
        over = []
        for segment in self.segments:
            places = segment.expire(horizon)
            if places:
                over.append(segment.rows.part(places.start, places.stop))
        if over:
            self.segments = [
                # Why: memory follows what is there; half of a segment may be over before it is packed.
                segment.pack() if 2 * segment.n_live < len(segment.rows) else segment
                for segment in self.segments
                if segment.n_live
            ]
        return over

    def take_all(self) -> list[JoinRows]:
        """Remove all rows and return them."""
        rows = [segment.live_rows() for segment in self.segments if segment.n_live]
        self.segments = []
        return rows
