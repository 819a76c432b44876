"""Stored rows of one part of one side of a join, by attribute (DP-Join, 4.4.1).

A row has a slot, which is the number of rows that were stored before it; every attribute is an array by slot
that grows. Their order by clock is kept apart, because rows may come late (`ClockRuns`). When half of the
slots are of rows that are over, those that live move together: between two rounds (`settle`), so that inside
one a pair can be named by its slots.

Whether a scan or an index (`index.py`) finds the rows of a box is a question of cost: rows are scanned until
that has cost as much as an index does, and then get one, if boxes are small. The answer is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.kernels.join.boxes import scan_boxes
from penstock.kernels.windows.ring import expand_ranges
from penstock.stages import policy
from penstock.stages.join.cell_places import NO_BUCKET
from penstock.stages.join.conditions import CLOCK, Condition
from penstock.stages.join.index import NO_CHAINS, Boxes, ClockRuns, GridIndex, Hits, plan_index
from penstock.stages.join.join_rows import JoinRows, take_join_rows
from penstock.stages.join.payload import Payload
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.order import NO_ORDER, Order


class Share(NamedTuple):
    """Which part of the stored rows a worker searches, of how many equal ones."""

    number: int
    n_shares: int

    def ends(self, begin: int, end: int) -> tuple[int, int]:
        """Return its part of a range."""
        n_rows = end - begin
        cuts = (begin + n_rows * number // self.n_shares for number in (self.number, self.number + 1))
        return next(cuts), next(cuts)


ALONE = Share(0, 1)
"""All rows."""


class RowStore:
    """All stored rows of one part of one side; what is asked for by slot is as `RowsOfSide` says."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._n_slots = self._first = 0  # those before the first are over
        self._capacity = 0
        self._codes = np.empty((0, 0), np.int64)
        self._tops = np.empty(0, np.int64)  # the greatest clock up to each slot
        # By slot, so that those of a row are side by side: buckets, numbers, times, and the places.
        self._attributes = np.empty((0, 0), np.int64)
        self._paired = np.empty(0, np.bool_)
        self._payload, self._runs = Payload(), ClockRuns()
        self._index: GridIndex | None = None
        self._n_compared = 0
        self._keeps_scanning = False

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        arrays = (self._codes, self._tops, self._attributes, self._paired)
        held = sum(int(array.nbytes) for array in arrays) + self._payload.nbytes + self._runs.nbytes
        return held + (0 if self._index is None else self._index.nbytes)

    @property
    def codes(self) -> Ints:
        """Implement `RowsOfSide.codes`; there are more slots than rows."""
        return self._codes

    @property
    def times(self) -> Ints:
        """Implement `RowsOfSide.times`."""
        times: Ints = self._attributes[:, 2]
        return times

    @property
    def buckets(self) -> Ints:
        """Implement `RowsOfSide.buckets`."""
        buckets: Ints = self._attributes[:, 0]
        return buckets

    @property
    def numbers(self) -> Ints:
        """Implement `RowsOfSide.numbers`."""
        numbers: Ints = self._attributes[:, 1]
        return numbers

    @property
    def order(self) -> Order:
        """Implement `RowsOfSide.order`."""
        return tuple(self._attributes.T[3:])

    @property
    def has_pair(self) -> Mask:
        """Implement `RowsOfSide.has_pair`."""
        return self._paired

    def take_batch(self, at: Ints) -> pa.RecordBatch:
        """Implement `RowsOfSide.take_batch`."""
        return self._payload.take(at)

    @property
    def is_plain(self) -> bool:
        """Implement `RowsOfSide.is_plain`."""
        return False

    def take_plain(self, at: Ints) -> list[tuple[object, ...]]:
        """Implement `RowsOfSide.take_plain`."""
        return self._payload.take_plain(at)

    def take_columns(self, at: Ints) -> list[pa.Array]:
        """Implement `RowsOfSide.take_columns`."""
        return self._payload.take_columns(at)

    def take_keys(self, at: Ints) -> list[tuple[int, ...]]:
        """Implement `RowsOfSide.take_keys`."""
        # Why row by row: to take several lets others run, and to get the interpreter back takes longer.
        keys = self._attributes[:, 2:]
        return [tuple(keys[slot].tolist()) for slot in at.tolist()]

    def take_column(self, name: str, at: Ints) -> pa.Array:
        """Implement `RowsOfSide.take_column`."""
        return self._payload.take_column(name, at)

    def live_rows(self) -> JoinRows:
        """Return the live rows, as they came; there must be some."""
        return take_join_rows(self, self._runs.slots())

    def rows_at_home(self) -> JoinRows | None:
        """Return the live rows but for copies of what is saved elsewhere; None if there are none."""
        if not len(self):
            return None
        slots = self._runs.slots()
        slots = slots[self.buckets[slots] != NO_BUCKET]
        return take_join_rows(self, slots) if len(slots) else None

    def take_all(self) -> list[JoinRows]:
        """Remove all rows and return them."""
        rows = [self.live_rows()] if len(self) else []
        self._clear()
        return rows

    def add(self, rows: JoinRows, run: policy.JitPolicy) -> int:
        """Store rows; return the first of their slots, which hold until `settle`."""
        if not len(rows):
            return self._n_slots
        begin = self.reserve(len(rows), len(rows.codes), len(rows.order) + 3)
        end = begin + len(rows)
        self._codes[:, begin:end] = rows.codes
        attributes = (rows.buckets, rows.numbers, rows.times, *rows.order)
        for place, attribute in enumerate(attributes):
            self._attributes[begin:end, place] = attribute
        self._attributes[begin:end, len(attributes) :] = NO_ORDER
        self._paired[begin:end] = rows.has_pair
        clock = self._codes[CLOCK, begin:end]
        np.maximum.accumulate(clock, out=self._tops[begin:end])
        if begin and self._tops[begin - 1] > self._tops[begin]:
            np.maximum(self._tops[begin:end], self._tops[begin - 1], out=self._tops[begin:end])
        self._n_slots = end
        self._payload.add(rows.batch)
        self._runs.add(clock, begin, int(clock.min()))
        if self._index is not None:
            self._index.add(self._codes, begin, end, run)
        return begin

    def reserve(self, n_rows: int, n_codes: int, n_attributes: int) -> int:
        """Make room for rows; return the first of their slots."""
        begin = self._n_slots
        if begin + n_rows > self._capacity or n_attributes > self._attributes.shape[1]:
            self._grow(begin + n_rows, n_codes, n_attributes)
        return begin

    def list_own_arrays(self, begin: int) -> tuple[Any, ...]:
        """Return what `join_few` writes rows to that get the slots from `begin` on."""
        is_indexed = self._index is not None
        chains = NO_CHAINS if self._index is None else self._index.chains
        return self._codes, self._tops, self._attributes, begin, int(is_indexed), *chains[:6]

    def keep_reserved(self, begin: int, clock: Ints, least: int, batch: Batch) -> None:
        """Keep rows that `join_few` has written to slots that were reserved; `least` is of their clocks."""
        end = begin + len(clock)
        self._paired[begin:end] = False
        self._n_slots = end
        self._payload.add(batch)
        self._runs.add(clock, begin, least)

    def is_searched_as_is(self, n_boxes: int) -> bool:
        """Return whether boxes need nothing prepared: there is an index, or there is little to compare."""
        if self._index is not None:
            return True
        return len(self) < policy.SIZES.index_rows and n_boxes <= policy.SIZES.few_rows

    def list_searched_arrays(self, n_codes: int) -> tuple[Any, ...]:
        """Return what `join_few` looks for rows in."""
        codes = self._codes if self._n_slots else np.empty((n_codes, 0), np.int64)
        is_indexed = self._index is not None
        chains = NO_CHAINS if self._index is None else self._index.chains
        return codes, self._first, self._n_slots, int(is_indexed), *chains

    def _grow(self, n_slots: int, n_codes: int, n_attributes: int) -> None:
        """Make room, twice as much as there was at least; the index is made again, for twice as many rows."""
        if n_slots > self._capacity:
            self._capacity = max(n_slots, 2 * self._capacity, 64)
            self._index, self._keeps_scanning = None, False
        here, n_before = slice(0, self._n_slots), self._attributes.shape[1]
        codes = np.empty((n_codes, self._capacity), np.int64)
        codes[:, here] = self._codes[:, here] if self._n_slots else 0
        attributes = np.full((self._capacity, max(n_attributes, n_before)), NO_ORDER, np.int64)
        attributes[here, :n_before] = self._attributes[here]
        tops, paired = np.empty(self._capacity, np.int64), np.zeros(self._capacity, np.bool_)
        tops[here], paired[here] = self._tops[here], self._paired[here]
        self._codes, self._attributes, self._tops, self._paired = codes, attributes, tops, paired

    def settle(self) -> None:
        """Let the live rows move together, if half of the slots are of others."""
        if self._n_slots > 2 * len(self) + policy.SIZES.index_rows:
            self._move_together()

    def _move_together(self) -> None:
        """Give the live rows the first slots, and free the others."""
        slots = self._runs.slots()
        if not len(slots):
            self._clear()
            return
        # Why more than twice: the next time comes before the arrays have to grow.
        more = len(slots) + len(slots) // 4 + 2 * policy.SIZES.index_rows
        self._first, self._n_slots, self._capacity = 0, len(slots), len(slots) + more
        room = ((0, 0), (0, more))
        # Why: what is taken by slot lies column by column, and loops want whole rows.
        self._codes = np.pad(np.ascontiguousarray(self._codes[:, slots]), room)
        self._attributes = np.pad(self._attributes[slots], room[::-1])
        self._paired = np.pad(self._paired[slots], room[1])
        self._tops = np.pad(np.maximum.accumulate(self._codes[CLOCK, : len(slots)]), room[1])
        self._payload.keep(slots)
        self._runs.renumber(slots)
        self._index, self._keeps_scanning = None, False

    def expire(self, horizon: int) -> Ints:
        """Let rows go whose clock is before the horizon; return their slots, which hold until `settle`."""
        over = self._runs.expire(horizon)
        if len(over):
            self._first = int(np.searchsorted(self._tops[: self._n_slots], horizon))
        return over

    @property
    def n_scanned(self) -> int:
        """Return the number of rows that every box is compared with, because they have no index."""
        return 0 if self._index is not None else len(self)

    def prepare(self, boxes: Boxes, conditions: Sequence[Condition], run: policy.JitPolicy) -> None:
        """Make an index if scans have cost as much. Whatever changes here does so before cells search."""
        if self._index is not None or self._keeps_scanning or not conditions:
            return
        costs, n_rows = policy.SIZES, len(self)
        self._n_compared += len(boxes) * n_rows
        if n_rows < costs.index_rows or self._n_compared < costs.index_cost * n_rows:
            return
        live = self._runs.slots()
        plan = plan_index(self._codes[:, live], boxes, conditions)
        if plan.share * costs.index_share > 1:
            self._keeps_scanning = True
            return
        self._index = GridIndex(plan, len(self._codes), self._capacity)
        self._index.add(self._codes, int(live[0]), self._n_slots, run)

    def find(
        self, boxes: Boxes, conditions: Sequence[Condition], run: policy.JitPolicy, share: Share = ALONE
    ) -> Iterator[Hits]:
        """Yield the live rows in each box, some at a time."""
        if len(conditions) == 0:
            yield from self._find_by_clock(boxes, share)
            return
        share_looked_at = 1.0 if self._index is None else self._index.plan.share
        n_compared = max(1.0, len(self) * share_looked_at)
        n_at_once = max(1, int(policy.SIZES.compared_at_once / n_compared))
        for begin in range(0, len(boxes), n_at_once):
            part = boxes if n_at_once >= len(boxes) else boxes.take(slice(begin, begin + n_at_once))
            for box, row in self._look(part, run, share):
                if len(box):
                    yield box + begin, row

    def _look(self, boxes: Boxes, run: policy.JitPolicy, share: Share) -> Iterator[Hits]:
        if self._index is None:
            yield self._scan(boxes, run, share)
            return
        (box, row), wide = self._index.search(self._codes, self._first, boxes, run)
        if share is not ALONE:
            first, past = share.ends(self._first, self._n_slots)
            own = (row >= first) & (row < past)
            box, row = box[own], row[own]
        yield box, row
        if len(wide):
            box, row = self._scan(boxes.take(wide), run, share)
            yield wide[box], row

    def _find_by_clock(self, boxes: Boxes, share: Share) -> Iterator[Hits]:
        """Yield all rows whose clock is in the range of each box."""
        for run in self._runs:
            first, past = share.ends(0, len(run))
            begins = np.clip(np.searchsorted(run.clock, boxes.lows[CLOCK]), first, past)
            ends = np.searchsorted(run.clock, boxes.highs[CLOCK], side="right")
            ends = np.clip(ends, begins, past)
            n_before = np.append(0, np.cumsum(ends - begins))
            at = 0
            while at < len(boxes):
                stop = int(np.searchsorted(n_before, n_before[at] + policy.SIZES.pairs_at_once))
                stop = max(at + 1, min(stop, len(boxes)))
                rows, ranges = expand_ranges(begins[at:stop], ends[at:stop])
                if len(rows):
                    yield ranges + at, run.slots[rows]
                at = stop

    def _scan(self, boxes: Boxes, run: policy.JitPolicy, share: Share) -> Hits:
        codes, lows, highs = self._codes, boxes.lows, boxes.highs
        first, past = share.ends(self._first, self._n_slots)
        # What is before the first clock as great as a box wants need not be looked at.
        begins = np.searchsorted(self._tops[: self._n_slots], lows[CLOCK]).astype(np.int64)
        begins = np.clip(begins, first, past)
        ends = np.full(len(boxes), past, np.int64)
        second = min(2, len(codes) - 1)
        n_compared = int((ends - begins).sum())
        capacity = 1024
        while True:
            box, row = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
            n_found = run(
                scan_boxes,
                codes[1],
                codes[second],
                lows[1],
                highs[1],
                lows[second],
                highs[second],
                begins,
                ends,
                box,
                row,
                work=n_compared,
            )
            if n_found <= capacity:
                break
            capacity = n_found
        box, row = box[:n_found], row[:n_found]
        if not n_found:
            return box, row
        inside = (codes[CLOCK, row] >= lows[CLOCK, box]) & (codes[CLOCK, row] <= highs[CLOCK, box])
        for code in range(3, len(codes)):
            inside &= (codes[code, row] >= lows[code, box]) & (codes[code, row] <= highs[code, box])
        return box[inside], row[inside]
