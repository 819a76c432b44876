"""JoinStage: two streams in, pairs out (DP-Join, 4.3), the same for both real engines.

New rows are compared with what is stored of the other side, and then stored (Kang's procedure with a single
scan, 4.4.3: expiry is found by the watermark, not by looking through the own side). A pair is found once,
when the second of its rows comes. A failure of a user's function is charged to that row.

Cells. The left is spread over m parts and the right over n, by the bucket of each row; cell (i, j) compares
left part i with right part j, whichever of them is new. The stored rows of a part are one object that all
cells of its row or column read, without a copy. Rows that are equal in some columns have one bucket, so then
only the cells (i, i) have work. The stage has no threads: `run_cells` runs the searches of the cells, and an
engine gives one that does so side by side.

A stage is fed a port and a batch at a time (`on_batch`) and told of watermarks, or given whole rounds
(`on_round`), in which the right goes first, so that a pair of two new rows is charged to its left row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.op import ERRORS, LATE, LATE_RIGHT, OUT, Stream
from penstock.operators.stream_join import LEFT, RIGHT, StreamJoin
from penstock.stages import policy
from penstock.stages.join.bounds import LEFT_SIDE, RIGHT_SIDE, build_bound
from penstock.stages.join.predicate import Candidates, JoinPredicate
from penstock.stages.join.results import JoinResults
from penstock.stages.join.segments import Boxes, Found, JoinRows, RowSegments, Segment
from penstock.stages.keys.slots import BUCKETS, KeyBuckets
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.stage import ErrorContext, Outputs, RowErrors, StageContext
from penstock.timing.windows import AFTER_ALL

Search = Callable[[], Any]
RunCells = Callable[[Sequence[Search]], Iterable[Any]]
SIDES = (LEFT, RIGHT)


def run_in_turn(searches: Sequence[Search]) -> list[Any]:
    """Run the searches of cells one after the other."""
    return [search() for search in searches]


class JoinStage:
    """One join.

    layout     (m, n): parts of the left and of the right
    run_cells  runs the searches of the cells
    """

    def __init__(
        self,
        op: StreamJoin,
        left: Stream,
        right: Stream,
        site: StageContext,
        *,
        layout: tuple[int, int] = (1, 1),
        run_cells: RunCells = run_in_turn,
    ) -> None:
        self.op, self.site, self.run_cells = op, site, run_cells
        self._streams = (left, right)
        self._bound = build_bound(op.resolve(left, right))
        self._predicate = JoinPredicate(op.terms, left, right)
        self._results = JoinResults(op, left, right)
        self._errors = RowErrors(site, op.on_error, self._results.schema)
        self._run = policy.JitPolicy()
        keys = self._predicate.keys
        self._key_buckets = None if keys is None else KeyBuckets(keys.types)
        # Which side's rows leave without a partner, and so have to be kept to the end.
        self._leaves_alone = (op.how in ("left", "full", "anti"), op.how in ("right", "full"))
        self._n_rows = 0
        self.layout = layout
        self._stored = self._empty_parts()
        self._unmatchable = (RowSegments(), RowSegments())
        self.watermark: float = -AFTER_ALL

    @property
    def nbytes(self) -> int:
        """Return the memory of all stored rows."""
        parts = [part for side in self._stored for part in side]
        return sum(part.nbytes for part in (*parts, *self._unmatchable))

    @property
    def n_stored(self) -> tuple[int, int]:
        """Return the number of stored rows of the left and of the right."""
        left, right = (
            sum(map(len, parts)) + len(alone)
            for parts, alone in zip(self._stored, self._unmatchable, strict=True)
        )
        return left, right

    def on_batch(self, port: str, batch: Batch, watermark: float) -> Outputs:
        """Take rows of one side in: emit late ones, and the pairs that they make with what is stored."""
        rows: list[Batch] = []
        yield from self._take_in(port, batch, watermark, rows)
        yield from self._emit(rows)

    def on_watermark(self, watermark: float) -> Outputs:
        """Forget the rows that are over; emit those that leave without a partner."""
        rows: list[Batch] = []
        self._expire(watermark, rows)
        yield from self._emit(rows)

    def drain(self) -> Outputs:
        """Emit what is left, because both streams have ended."""
        yield from self.on_watermark(AFTER_ALL)

    def on_round(self, batches: Mapping[str, Batch], before: float, after: float) -> Outputs:
        """Take a round: rows by port, the watermark that judges them, and the one that is reached.

        What leaves on the main port is one batch, in order.
        """
        rows: list[Batch] = []
        for port in (RIGHT, LEFT):
            if port in batches:
                yield from self._take_in(port, batches[port], before, rows)
        self._expire(after, rows)
        yield from self._emit(rows)

    def change_layout(self, layout: tuple[int, int]) -> None:
        """Spread the stored rows over other parts; no pair is lost or found twice."""
        stored = self._stored
        self.layout = layout
        self._stored = self._empty_parts()
        for side, parts in enumerate(stored):
            for part in parts:
                for rows in part.take_all():
                    self._store(side, rows)

    def _empty_parts(self) -> tuple[list[RowSegments], list[RowSegments]]:
        m, n = self.layout
        if self._predicate.keys is not None:
            m = n = m * n
        return [RowSegments() for _ in range(m)], [RowSegments() for _ in range(n)]

    def _emit(self, rows: list[Batch]) -> Outputs:
        rows = [batch for batch in rows if batch.num_rows]
        if rows:
            whole = self._results.merge(rows)
            self.site.accounts.rows_out += whole.num_rows
            yield OUT, whole

    def _take_in(self, port: str, batch: Batch, watermark: float, rows: list[Batch]) -> Outputs:
        """Judge new rows, find their pairs, and store them; what leaves on the main port goes to `rows`."""
        side, accounts = SIDES.index(port), self.site.accounts
        accounts.rows_in += batch.num_rows
        if not batch.num_rows:
            return
        admitted = self._bound.admit(batch.times, watermark)
        n_late, n_outside = int(admitted.late.sum()), int(admitted.no_window.sum())
        accounts.late += n_late
        accounts.no_window += n_outside
        accounts.passed += batch.num_rows - n_late - n_outside
        if n_late:
            yield (LATE, LATE_RIGHT)[side], batch.where(admitted.late)
        new, unmatchable = self._build_rows(side, batch, admitted.rows, admitted.clock)
        yield from self._match(side, new, rows)
        if self._predicate.keys is not None:
            self._predicate.keys.keep(new.codes[1])
        self._store(side, new)
        if self._leaves_alone[side]:
            self._unmatchable[side].add(unmatchable)

    def _build_rows(self, side: int, batch: Batch, at: Ints, clock: Ints) -> tuple[JoinRows, JoinRows]:
        """Return new rows with their codes, and those of them that nothing can be paired with."""
        numbers = self._n_rows + at
        self._n_rows += batch.num_rows
        columns = batch.rows
        valid = self._predicate.valid(side, columns)
        buckets = np.zeros(batch.num_rows, np.int64)
        if self._key_buckets is None:
            buckets = (self._n_rows - batch.num_rows + np.arange(batch.num_rows)) % BUCKETS
        else:
            keys = self._predicate.keys
            assert keys is not None, "buckets of keys need keys"
            buckets = self._key_buckets.of(
                [columns.column(name) for name in keys.names[side]], batch.num_rows
            ).astype(np.int64)
        everywhere = len(at) == batch.num_rows and bool((at[1:] > at[:-1]).all())

        def build(chosen: Ints, clock: Ints, numbers: Ints, *, matchable: bool) -> JoinRows:
            whole = everywhere and len(chosen) == batch.num_rows
            taken = columns if whole else columns.take(pa.array(chosen))
            codes = self._predicate.codes(side, taken, clock) if matchable else clock.reshape(1, -1)
            return JoinRows(
                codes,
                batch.times[chosen],
                tuple(column[chosen] for column in batch.order),
                taken,
                buckets[chosen],
                numbers,
                np.zeros(len(chosen), np.bool_),
            )

        is_valid = valid[at]
        if is_valid.all():
            nothing = np.empty(0, np.int64)
            return build(at, clock, numbers, matchable=True), build(
                nothing, nothing, nothing, matchable=False
            )
        return (
            build(at[is_valid], clock[is_valid], numbers[is_valid], matchable=True),
            build(at[~is_valid], clock[~is_valid], numbers[~is_valid], matchable=False),
        )

    def _match(self, side: int, new: JoinRows, rows: list[Batch]) -> Outputs:
        """Find the pairs of new rows with stored ones, and emit those that failed."""
        errors: list[tuple[Candidates, list[ErrorContext]]] = []
        for segment, at, stored_at in self._search(side, new):
            both = (new, at), (segment.rows, stored_at)
            (left, left_at), (right, right_at) = both if side == LEFT_SIDE else both[::-1]
            pairs = Candidates(left, left_at, right, right_at)
            pairs = self._test(pairs, errors)
            if len(pairs):
                rows.append(self._note_pairs(pairs))
        yield from self._handle_errors(side, errors)

    def _test(self, pairs: Candidates, errors: list[tuple[Candidates, list[ErrorContext]]]) -> Candidates:
        """Return the candidates that fulfil what is left of the predicate; those that fail go to `errors`."""
        held = self._predicate.holds(pairs.left.codes, pairs.left_at, pairs.right.codes, pairs.right_at)
        if held is not None:
            pairs = pairs.where(held)
        for test in self._predicate.tests:
            if not len(pairs):
                break
            holds, failures = test.evaluate(pairs, stops=self._errors.stops)
            if failures:
                failed = np.zeros(len(pairs), np.bool_)
                failed[[place for place, _ in failures]] = True
                errors.append((pairs.where(failed), [context for _, context in failures]))
                if self._errors.stops:
                    self._errors.handle(
                        self._results.pairs(errors[-1][0]), np.ones(len(failures), np.bool_), errors[-1][1]
                    )
            pairs = pairs.where(holds)
        return pairs

    def _handle_errors(self, side: int, errors: Sequence[tuple[Candidates, list[ErrorContext]]]) -> Outputs:
        """Count the new rows of which pairs failed, each once, and emit the pairs."""
        charged = set[int]()
        for pairs, contexts in errors:
            numbers = (
                pairs.left.numbers[pairs.left_at]
                if side == LEFT_SIDE
                else pairs.right.numbers[pairs.right_at]
            )
            n_before = len(charged)
            charged.update(numbers.tolist())
            failed = self._errors.handle(
                self._results.pairs(pairs),
                np.ones(len(pairs), np.bool_),
                contexts,
                counted=len(charged) - n_before,
            )
            if failed is not None:
                yield ERRORS, failed
        self.site.accounts.passed -= len(charged)

    def _note_pairs(self, pairs: Candidates) -> Batch:
        """Note which rows have found a partner, and return what leaves."""
        pairs.left.paired[pairs.left_at] = True
        pairs.right.paired[pairs.right_at] = True
        return self._results.pairs(pairs)

    def _search(self, side: int, new: JoinRows) -> Iterator[tuple[Segment, Ints, Ints]]:
        """Yield where candidates of new rows are stored: a segment, and the places of both."""
        conditions = self._predicate.conditions
        if not len(new):
            return
        clocks = self._bound.ranges(side, new.codes[0])
        boxes, some = self._predicate.boxes(new.codes, clocks)
        searches: list[Search] = []
        for own, stored in self._cells(side, new, some):
            mine = (
                boxes
                if own is None
                else Boxes(
                    np.ascontiguousarray(boxes.lows[:, own]), np.ascontiguousarray(boxes.highs[:, own])
                )
            )
            places = some if own is None else some[own]
            if not len(mine):
                continue
            for segment in stored.segments:
                segment.prepare(mine, conditions)
            if not conditions:
                for segment in stored.segments:
                    for found, rows in segment.find(mine, conditions, self._run):
                        yield segment, places[found], rows
                continue
            searches.append(
                lambda mine=mine, places=places, stored=stored: self._search_part(mine, places, stored)
            )
        for found in self.run_cells(searches) if len(searches) > 1 else run_in_turn(searches):
            yield from found

    def _search_part(
        self, boxes: Boxes, places: Ints, stored: RowSegments
    ) -> list[tuple[Segment, Ints, Ints]]:
        """Return the candidates in one part: the work of one cell."""
        found: list[tuple[Segment, Ints, Ints]] = []
        part: Found
        for segment in stored.segments:
            for part in segment.find(boxes, self._predicate.conditions, self._run):
                found.append((segment, places[part[0]], part[1]))
        return found

    def _cells(self, side: int, new: JoinRows, some: Ints) -> Iterator[tuple[Ints | None, RowSegments]]:
        """Yield the cells that new rows meet: which of the rows, and the stored part of the other side."""
        own, other = self._stored[side], self._stored[1 - side]
        if len(own) == 1:
            for stored in other:
                yield None, stored
            return
        part_of = new.buckets[some] % len(own)
        for part in range(len(own)):
            mine = np.flatnonzero(part_of == part)
            for stored in [other[part]] if self._predicate.keys is not None else other:
                yield mine, stored

    def _store(self, side: int, rows: JoinRows) -> None:
        """Store rows that may find partners, each in its part."""
        if not len(rows):
            return
        parts = self._stored[side]
        if len(parts) == 1:
            parts[0].add(rows)
            return
        part_of = rows.buckets % len(parts)
        for part, stored in enumerate(parts):
            stored.add(rows.take(np.flatnonzero(part_of == part)))

    def _expire(self, watermark: float, rows: list[Batch]) -> None:
        """Forget what the watermark has passed; rows that leave without a partner go to `rows`."""
        self.watermark = max(self.watermark, watermark)
        for side in (LEFT_SIDE, RIGHT_SIDE):
            horizon = self._bound.horizon(side, watermark)
            for part in self._stored[side]:
                for over in part.expire(horizon):
                    if self._predicate.keys is not None:
                        self._predicate.keys.release(over.codes[1])
                    if self._leaves_alone[side] and not over.paired.all():
                        rows.append(self._results.alone(side, over.take(np.flatnonzero(~over.paired))))
            for over in self._unmatchable[side].expire(horizon):
                rows.append(self._results.alone(side, over))
