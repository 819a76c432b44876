"""The pairs of new rows of a join: stored rows are searched, cell by cell, and candidates are tested.

For new rows of inner joins of bands within a time, in one cell, there is a quick way. All work on them is one
call of a loop (`kernels/join/few_rows.py`); the rows are stored where others are, and the pairs are the same.
What is not as usual (a null, a NaN, a late row, very many rows) goes the usual way: then nothing has happened
here. With one row at a time the stage is 2 to 3 times quicker by it (`python -m bench join`, latency).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from time import perf_counter
from typing import NamedTuple

import numpy as np

from penstock.kernels.join.boxes import MOST_CELLS
from penstock.kernels.join.few_rows import NOT_DONE, join_brief, join_few
from penstock.operators.op import ERRORS
from penstock.operators.stream_join import StreamJoin
from penstock.stages import policy
from penstock.stages.join.bounds import LEFT_SIDE, RIGHT_SIDE, Bound, WithinBound
from penstock.stages.join.cell_places import NO_BUCKET, WHOLE, CellPlace
from penstock.stages.join.cells import Cell, CellGrid, HandshakePipeline, RunCells, Search, run_in_turn
from penstock.stages.join.conditions import CLOCK, BandEncoder
from penstock.stages.join.index import Boxes
from penstock.stages.join.join_rows import JoinRows, RowsOfSide
from penstock.stages.join.model import JoinWork
from penstock.stages.join.pairs import JoinResults, Pairs, RoundResults, keys_of_pairs
from penstock.stages.join.predicate import FailedPairs, JoinPredicate, select_at_home
from penstock.stages.join.row_store import RowStore
from penstock.stages.join.state import ChangedRows
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.stage import Outputs, RowErrors, StageContext
from penstock.timing.windows import AFTER_ALL

ROOM = 512
"""Pairs that there is room for at first, and at least."""


class FewPairs(NamedTuple):
    """What became of a few rows.

    attributes  int64[a, n]  their buckets, numbers, times and places
    begin       the first of their slots
    rows        which of them, pair by pair
    slots       with which stored rows
    """

    attributes: Ints
    begin: int
    rows: Ints
    slots: Ints


class FewRows:
    """Finds the pairs of a few rows, and stores them.

    bound  which rows can meet
    """

    def __init__(self, encoder: BandEncoder, bound: WithinBound) -> None:
        self._encoder, self.bound = encoder, bound
        self._n_rows = self._room = 0
        self._make_room(policy.SIZES.few_rows, ROOM)

    def _make_room(self, n_rows: int, n_pairs: int) -> None:
        """Have memory for so many new rows and pairs, at least."""
        if n_rows > self._n_rows:
            self._n_rows = n_rows
            self._open = *np.empty((2, MOST_CELLS * n_rows), np.int64), np.empty(1 + n_rows, np.int64)
        if n_pairs > self._room:
            self._room = n_pairs
            self._pairs = *np.empty((2, n_pairs), np.int64), np.empty(n_pairs, np.bool_)

    def load(self, run: policy.JitPolicy) -> None:
        """Load the loop where others run compiled already, so that no row waits for it."""
        if run.compiles(0):
            for loop in (join_brief, join_few):
                loop.version(compiled=True)

    def join(
        self,
        side: int,
        batch: Batch,
        first: int,
        least: int,
        own: RowStore,
        stored: RowStore,
        run: policy.JitPolicy,
    ) -> FewPairs | None:
        """Store new rows; return their pairs with stored ones, or None: then nothing has happened.

        first  the number of the first row
        least  the least of their times
        """
        if not stored.is_searched_as_is(batch.num_rows):
            return None
        plain = batch.plain is not None
        times, order = batch.plain_times_and_order() if plain else (batch.times, batch.order)
        attributes = np.array([*[times] * 3, *order])
        clock = attributes[2]
        codes = self._encoder.read(side, batch, clock)
        if codes is None:
            return None
        n_codes, n_rows = codes.shape
        values = codes[1:].copy()
        begin = own.reserve(n_rows, n_codes, len(attributes))
        lows, highs = np.empty((2, n_codes, n_rows), np.int64)
        self._make_room(n_rows, ROOM)
        loop = join_brief if n_rows <= policy.SIZES.few_rows else join_few
        while True:
            n_pairs = run(
                loop,
                codes,
                codes.view(np.float64),
                attributes,
                *self._encoder.settings,
                *self.bound.reach(side),
                first,
                *own.list_own_arrays(begin),
                *stored.list_searched_arrays(n_codes),
                lows,
                highs,
                *self._open,
                *self._pairs,
                work=n_rows * 32,
            )
            if n_pairs >= 0:
                break
            if n_pairs == NOT_DONE:
                return None
            self._make_room(n_rows, -2 * n_pairs)
            codes[1:] = values  # of floats, codes are in their place
        own.keep_reserved(begin, clock, least, batch)
        new_at, stored_at, _ = self._pairs
        pairs = FewPairs(attributes, begin, new_at[:n_pairs].copy(), stored_at[:n_pairs].copy())
        if self._room > policy.SIZES.results_at_once:  # that was an exception
            self._room = 0
        return pairs

    def build_pairs(self, side: int, batch: Batch, few: FewPairs, own: RowStore, stored: RowStore) -> Pairs:
        """Return pairs as results are made of them; of an inner join nobody asks whether rows have one."""
        new: RowsOfSide = own
        if len(few.rows) > policy.SIZES.few_rows:
            new_at = few.rows + few.begin
        else:  # they are at hand
            buckets, numbers, times, *order = few.attributes
            new_at, codes = few.rows, few.attributes[2:3]
            new = JoinRows(codes, times, tuple(order), batch, buckets, numbers, _NO_PAIRS)
        if side == LEFT_SIDE:
            return Pairs(new, new_at, stored, few.slots)
        return Pairs(stored, few.slots, new, new_at)


_NO_PAIRS = np.zeros(0, np.bool_)


def build_few_rows(how: str, predicate: JoinPredicate, bound: Bound) -> FewRows | None:
    """Return the quick way for a join; None if it is not one of bands alone, within a time."""
    if how != "inner" or predicate.encoder is None or predicate.tests or not isinstance(bound, WithinBound):
        return None
    return FewRows(predicate.encoder, bound)


class PairFinder:
    """Finds the pairs of new rows with stored ones, and builds what leaves the join for them.

    work  what it has done
    """

    def __init__(
        self,
        op: StreamJoin,
        site: StageContext,
        place: CellPlace,
        results: JoinResults,
        run: policy.JitPolicy,
        run_cells: RunCells,
    ) -> None:
        self._how, self._site, self._place, self._results = op.how, site, place, results
        self._run, self._run_cells = run, run_cells
        self._errors = RowErrors(site, op.on_error, results.schema)
        # Of which side's rows it matters whether they have found a partner.
        self._notes_pairs = (op.how in ("left", "full", "anti", "semi"), op.how in ("right", "full"))
        self.work = JoinWork()

    def begin(self, predicate: JoinPredicate, bound: Bound, cells: CellGrid, changes: ChangedRows) -> None:
        """Search these cells from here on."""
        self._predicate, self._bound, self._cells, self._changes = predicate, bound, cells, changes
        self._few = build_few_rows(self._how, predicate, bound)

    def join_at_once(
        self, side: int, batch: Batch, watermark: float, first: int, leaving: RoundResults
    ) -> bool:
        """Store new rows the quick way; their pairs go to `leaving`. Return False if nothing has happened.

        first  the number of the first row
        """
        few, n_rows = self._few, batch.num_rows
        if few is None or n_rows > policy.SIZES.loop_rows:
            return False
        if self._cells.n_cells > 1 or self._place is not WHOLE:
            return False
        least, _ = batch.time_range()
        if not few.bound.admits_all(least, watermark):
            return False
        own, stored = self._cells.parts[side][0], self._cells.parts[1 - side][0]
        started_at = perf_counter()
        pairs = few.join(side, batch, first, least, own, stored, self._run)
        if pairs is None:
            return False
        self.work.count(n_rows, n_rows * stored.n_scanned, perf_counter() - started_at)
        self.work.n_rows[side] += n_rows
        self._site.accounts.rows_in += n_rows
        self._site.accounts.passed += n_rows
        self._changes.note(side, pairs.attributes[0])
        if len(pairs.rows):
            leaving.pairs.append(few.build_pairs(side, batch, pairs, own, stored))
        return True

    def find(
        self,
        side: int,
        new: JoinRows,
        leaving: RoundResults,
        wanted: tuple[Boxes, Ints] | None = None,
        *,
        is_old: bool = False,
    ) -> Outputs:
        """Find the pairs of new rows with stored ones, which go to `leaving`, and emit those that failed.

        wanted  what the rows look for, and which rows do; None if it is not known yet
        is_old  the rows are not new, but meet others than before
        """
        errors: list[FailedPairs] = []
        if wanted is None and len(new):
            clocks = self._bound.ranges(side, new.codes[CLOCK])
            wanted = self._predicate.boxes(new.codes, clocks)
        for stored, at, stored_at in () if wanted is None else self._search(side, new, *wanted):
            if side == LEFT_SIDE:
                pairs = Pairs(new, at, stored, stored_at)
            else:
                pairs = Pairs(stored, stored_at, new, at)
            pairs, failures = self._predicate.select(pairs, self._run, stops=self._errors.stops)
            if failures and self._errors.stops:
                failed, contexts = failures[0]
                self._errors.handle(self._results.join(failed), np.ones(len(failed), np.bool_), contexts)
            errors += failures
            if len(pairs):
                leaving.alone += self._note_pairs(pairs, None if is_old else side)
                if self._place.pairs_meet_twice:
                    pairs = pairs.where(pairs.left.buckets[pairs.left_at] != NO_BUCKET)
                if len(pairs) and self._how not in ("semi", "anti"):
                    leaving.pairs.append(pairs)
                    self._count_wait(pairs)
        yield from self._handle_errors(
            side, select_at_home(side, errors) if self._place.pairs_meet_twice else errors
        )

    def _count_wait(self, pairs: Pairs) -> None:
        """Count how long after the later of their rows pairs meet in a pipeline."""
        if isinstance(self._cells, HandshakePipeline) and abs(self._cells.watermark) < AFTER_ALL:
            times = keys_of_pairs(pairs)[0]
            self.work.n_pairs += len(pairs)
            self.work.waited_us += int(np.maximum(self._cells.watermark - times, 0).sum())

    def _handle_errors(self, side: int, errors: Iterable[FailedPairs]) -> Outputs:
        """Count the new rows of which pairs failed, each once, and emit the pairs."""
        charged = set[tuple[int, int]]()
        for pairs, contexts in errors:
            rows, at = (pairs.left, pairs.left_at) if side == LEFT_SIDE else (pairs.right, pairs.right_at)
            n_before = len(charged)
            # A row of several windows is there several times, with one number. Rows that other cells numbered
            # and that were taken up here may share a number, but then not a bucket.
            charged.update(zip(rows.numbers[at].tolist(), rows.buckets[at].tolist(), strict=True))
            failed = self._errors.handle(
                self._results.join(pairs),
                np.ones(len(pairs), np.bool_),
                contexts,
                counted=len(charged) - n_before,
            )
            if failed is not None:
                yield ERRORS, failed
        self._site.accounts.passed -= len(charged)

    def _note_pairs(self, pairs: Pairs, side: int | None) -> list[Batch]:
        """Note which rows have found a partner; return those that leave alone for that, in a semi join.

        side  that of the new rows; None if none are
        """
        leaves = []
        for own, rows, at in (
            (LEFT_SIDE, pairs.left, pairs.left_at),
            (RIGHT_SIDE, pairs.right, pairs.right_at),
        ):
            if not self._notes_pairs[own]:
                continue
            first = np.unique(at[~rows.has_pair[at]])
            rows.has_pair[first] = True
            if own != side:
                self._changes.note_paired(own, rows, first)
            if self._place.pairs_meet_twice:
                first = first[rows.buckets[first] != NO_BUCKET]
            if own == LEFT_SIDE and self._how == "semi" and len(first):
                leaves.append(self._results.leave_alone(LEFT_SIDE, rows, first))
        return leaves

    def _search(
        self, side: int, new: JoinRows, boxes: Boxes, places: Ints
    ) -> Iterator[tuple[RowStore, Ints, Ints]]:
        """Yield where candidates of new rows are stored: the store, and the places of both."""
        conditions = self._predicate.conditions
        searches: list[Search] = []
        prepared: RowStore | None = None
        for cell in self._cells.cells(side, new, places):
            cell_boxes = boxes if cell.rows is None else boxes.take(cell.rows)
            cell_places = places if cell.rows is None else places[cell.rows]
            if cell.stored is not prepared:  # once for all that share it
                prepared = cell.stored
                prepared.prepare(cell_boxes, conditions, self._run)
                if self._few is not None:
                    self._few.load(self._run)
                self.work.n_compared += len(cell_boxes) * prepared.n_scanned
            search = partial(self._search_cell, cell_boxes, cell_places, cell)
            if conditions:
                searches.append(lambda search=search: list(search()))  # type: ignore[misc]
            else:  # all that is near in time is a candidate, and a function decides
                yield from search()
        started_at = perf_counter()
        lots = list(self._run_cells(searches) if len(searches) > 1 else run_in_turn(searches))
        seconds = (perf_counter() - started_at) * max(1, len(searches))
        self.work.count(len(boxes), 0, seconds)
        yield from chain.from_iterable(lots)

    def _search_cell(self, boxes: Boxes, places: Ints, cell: Cell) -> Iterator[tuple[RowStore, Ints, Ints]]:
        """Yield the candidates in one cell."""
        for box, row in cell.stored.find(boxes, self._predicate.conditions, self._run, cell.share):
            yield cell.stored, places[box], row
