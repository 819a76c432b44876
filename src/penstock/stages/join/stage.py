"""JoinStage: two streams in, pairs out (DP-Join, 4.3), the same for both real engines.

New rows are compared with what is stored of the other side, and then stored (Kang's procedure with a single
scan, 4.4.3: expiry is found by the watermark, not by looking through the own side). A pair is found once,
when the second of its rows comes. A failure of a user's function is charged to that row.

The rows are stored in cells (`cells.py`). The stage has no threads: `run_cells` may run the searches of the
cells side by side.

A stage is fed a port and a batch at a time (`on_batch`) and told of watermarks, or given whole rounds
(`on_round`), in which the right goes first, so that a pair of two new rows is charged to its left row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from time import perf_counter

import numpy as np
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.operators.join_predicate import LEFT, RIGHT, Equal
from penstock.operators.op import ERRORS, LATE, LATE_RIGHT, OUT, Stream
from penstock.operators.stream_join import StreamJoin
from penstock.stages import policy
from penstock.stages.join.bounds import LEFT_SIDE, RIGHT_SIDE, Bound, build_bound
from penstock.stages.join.cell_places import NO_BUCKET, WHOLE, CellPlace
from penstock.stages.join.cells import Cell, CellGrid, RunCells, Search, run_in_turn
from penstock.stages.join.index import CLOCK, Boxes
from penstock.stages.join.join_rows import JoinRows
from penstock.stages.join.model import JoinLoad, JoinWork, Layout
from penstock.stages.join.pairs import JoinResults, Pairs
from penstock.stages.join.predicate import JoinPredicate
from penstock.stages.join.row_store import RowStore
from penstock.stages.join.state import (
    ChangedRows,
    JoinSnapshots,
    SavedJoin,
    count_by_bucket,
    no_rows,
    number_anew,
)
from penstock.stages.keys.slots import KeyBuckets
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.stage import ErrorContext, Outputs, RowErrors, StageContext
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

PORTS = (LEFT, RIGHT)


class JoinStage:
    """One join within bounds of time, or by windows.

    layout     (m, n): parts of the left and of the right
    sharing    the number of workers that share a cell; several in one cell are the centralised form
    run_cells  runs the searches of the cells
    place      which cell it is, if others are stages elsewhere
    watermark  how far it has come
    """

    def __init__(
        self,
        op: StreamJoin,
        left: Stream,
        right: Stream,
        site: StageContext,
        *,
        layout: Layout = (1, 1),
        sharing: int = 1,
        run_cells: RunCells = run_in_turn,
        place: CellPlace = WHOLE,
    ) -> None:
        self.op, self.site, self.run_cells, self.place = op, site, run_cells, place
        self._terms = op.match_terms(left, right)
        has_keys = any(isinstance(term, Equal) for term in self._terms)
        self._cells = CellGrid(layout, has_keys=has_keys, sharing=sharing)
        self._left, self._right = left, right
        self._how = op.how
        self._resolved = op.resolve(left, right)
        self._bound: Bound = build_bound(self._resolved)
        self._results = JoinResults(op, left, right)
        self._errors = RowErrors(site, op.on_error, self._results.schema)
        self._snapshots = JoinSnapshots(op, left, right, site.step)
        # Which side's rows leave without a partner, and so have to be kept to the end.
        self._leaves_alone = (op.how in ("left", "full", "anti"), op.how in ("right", "full"))
        # Of which side's rows it matters whether they have found a partner.
        self._notes_pairs = (op.how in ("left", "full", "anti", "semi"), op.how in ("right", "full"))
        self._run = policy.JitPolicy()
        self._work = JoinWork()
        self._no_rows = (no_rows(left.schema), no_rows(right.schema))
        self._is_alone = True  # rows of one side only are processed: their pairs are all that leave
        self._begin()

    def _begin(self) -> None:
        """Start with no rows."""
        self._predicate = JoinPredicate(self._terms, self._left, self._right, self.site)
        keys = self._predicate.keys
        self._key_buckets = None if keys is None else KeyBuckets(keys.types)
        self._cells.clear()
        self._unmatchable = (RowStore(), RowStore())
        self._changes = ChangedRows()
        self._n_rows = 0
        self.watermark: float = BEFORE_ALL
        self._saved_watermark: float = BEFORE_ALL

    @property
    def nbytes(self) -> int:
        """Return the memory of all stored rows."""
        return sum(part.nbytes for side in (LEFT_SIDE, RIGHT_SIDE) for part in self._parts(side))

    @property
    def n_stored(self) -> tuple[int, int]:
        """Return the number of stored rows of the left and of the right."""
        left, right = (sum(map(len, self._parts(side))) for side in (LEFT_SIDE, RIGHT_SIDE))
        return left, right

    def take_load(self, seconds: float) -> JoinLoad:
        """Return what the join has had to do in the last seconds, as the model of layouts wants it."""
        work, self._work = self._work, JoinWork()
        return work.load(seconds, self.n_stored, policy.SIZES.index_rows)

    def on_batch(self, port: str, batch: Batch, watermark: float) -> Outputs:
        """Take rows of one side in: emit late ones, and the pairs that they make with what is stored."""
        rows: list[Batch] = []
        self._is_alone = True
        yield from self._take_in(port, batch, watermark, rows)
        yield from self._emit(rows)

    def on_watermark(self, watermark: float) -> Outputs:
        """Forget the rows that are over; emit those that leave without a partner."""
        rows: list[Batch] = []
        yield from self._advance(watermark, rows)
        yield from self._emit(rows)

    def drain(self) -> Outputs:
        """Emit what is left, because both streams have ended."""
        yield from self.on_watermark(AFTER_ALL)

    def on_round(
        self,
        batches: Mapping[str, Batch],
        before: float,
        after: float,
        copies: Mapping[str, Batch] | None = None,
    ) -> Outputs:
        """Take a round: rows by port, the watermark that judges them, and the one that is reached.

        What leaves on the main port is one batch, in order.

        copies  rows whose home is another cell
        """
        rows: list[Batch] = []
        self._is_alone = sum(batch.num_rows > 0 for batch in batches.values()) == 1
        for port in (RIGHT, LEFT):
            if port in batches:
                yield from self._take_in(port, batches[port], before, rows)
            if copies and port in copies:
                yield from self._take_in(port, copies[port], before, rows, is_home=False)
        yield from self._advance(after, rows)
        yield from self._emit(rows)

    @property
    def layout(self) -> Layout:
        """Return the parts of the left and of the right."""
        return self._cells.layout

    def change_layout(self, layout: Layout) -> None:
        """Spread the stored rows over other cells, between two batches."""
        self._cells.rearrange(layout, self._run)

    def snapshot(self) -> dict[int, bytes]:
        """Return the state per side and bucket: all of it at first, then what changed."""
        return self.snapshot_changes(())

    def snapshot_changes(self, buckets: Collection[int]) -> dict[int, bytes]:
        """Return the state that has changed; of these buckets only its changes since the last snapshot.

        buckets  as they are numbered in snapshots: those of the right from 256
        """
        lots = [list(self._saved_lots(side)) for side in (LEFT_SIDE, RIGHT_SIDE)]
        pieces = self._snapshots.encode_changes(
            lots, self._changes, buckets, self.watermark, self._counts(), has_moved=self._has_moved()
        )
        self._note_saved()
        return pieces

    def restore(
        self, saved: Mapping[int, bytes], watermark: float = BEFORE_ALL, *, anew: bool = False
    ) -> None:
        """Go back to a snapshot, or take up some buckets of one that another layout took.

        watermark  how far the join had come, if that is known better than by these buckets
        anew       rows that were in one bucket may be in several cells now, so all that this one owns get
                   other numbers and buckets, and the next snapshot has all of them
        """
        restored = self._snapshots.decode(saved)
        if watermark > restored.watermark:
            restored = replace(restored, watermark=watermark)
        self._begin()
        self.watermark = restored.watermark
        self._n_rows = int(restored.counts[0])
        if anew:
            restored, self._n_rows = number_anew(restored)
        self._take_up(restored, anew=anew)
        if anew:
            self._changes.start_over(self.place.own_buckets())
            return
        lots = [list(self._saved_lots(side)) for side in (LEFT_SIDE, RIGHT_SIDE)]
        self._changes.start(count_by_bucket(lots) > 0, self._n_rows)
        self._note_saved()

    def _take_up(self, restored: SavedJoin, *, anew: bool) -> None:
        """Store the rows of a snapshot that are not over, and belong here."""
        for side, saved in enumerate(restored.sides):
            horizon = self._bound.horizon(side, restored.watermark)
            live = saved.rows.take(np.flatnonzero(saved.rows.codes[CLOCK] >= horizon))
            rows, unmatchable = self._split_matchable(side, live)
            rows = self.place.take_up(side, rows, self._predicate.conditions, anew=anew)
            self._store_split(side, rows, self.place.take_up_unmatchable(side, unmatchable, anew=anew))

    def _saved_lots(self, side: int) -> Iterator[tuple[JoinRows, bool, Mask]]:
        """Yield all rows of a side, whether they wait, and which of them changed although they are old."""
        for part in self._parts(side):
            rows = part.rows_at_home()
            if rows is not None:
                yield rows, False, np.zeros(len(rows), np.bool_)

    def _counts(self) -> Ints:
        """Return the numbers that are saved with the rows; the first is that of the next row."""
        return np.array([self._n_rows, 0, 0], np.int64)

    def _has_moved(self) -> bool:
        """Return whether rows may be over since the last snapshot."""
        return self.watermark > self._saved_watermark

    def _note_saved(self) -> None:
        self._saved_watermark = self.watermark

    def _parts(self, side: int) -> list[RowStore]:
        return [*self._cells.parts[side], self._unmatchable[side]]

    def _emit(self, rows: list[Batch]) -> Outputs:
        rows = [batch for batch in rows if batch.num_rows]
        if rows:
            whole = self._results.merge(rows)
            self.site.accounts.rows_out += whole.num_rows
            yield OUT, whole

    def _take_in(
        self, port: str, batch: Batch, watermark: float, rows: list[Batch], *, is_home: bool = True
    ) -> Outputs:
        """Judge new rows, find their pairs, and store them; what leaves on the main port goes to `rows`."""
        side = PORTS.index(port)
        accounts = self.site.accounts if is_home else Accounts()
        accounts.rows_in += batch.num_rows
        self._work.n_rows[side] += batch.num_rows
        if not batch.num_rows:
            return
        admitted = self._bound.admit(batch.times, watermark)
        n_late, n_outside = (
            0 if mask is None else int(np.count_nonzero(mask)) for mask in (admitted.late, admitted.no_window)
        )
        accounts.late += n_late
        accounts.no_window += n_outside
        accounts.passed += batch.num_rows - n_late - n_outside
        if n_late and is_home and admitted.late is not None:
            yield (LATE, LATE_RIGHT)[side], batch.where(admitted.late)
        numbered = self._number_rows(side, batch, admitted.rows, admitted.clock)
        if not is_home:
            numbered = replace(numbered, buckets=np.full(len(numbered), NO_BUCKET))
        new, unmatchable = self._split_matchable(side, numbered)
        yield from self._match(side, new, rows)
        self._store_split(side, new, unmatchable)

    def _number_rows(self, side: int, batch: Batch, at: Ints | None, clock: Ints) -> JoinRows:
        """Return new rows, or some of them, with numbers and buckets; their clock is their only code yet."""
        columns, times, order = batch.rows, batch.times, batch.order
        numbers = np.arange(self._n_rows, self._n_rows + batch.num_rows)
        self._n_rows += batch.num_rows
        if at is not None:
            numbers, times, order = numbers[at], times[at], tuple(column[at] for column in order)
            columns = columns.take(pa.array(at))
        keys = self._predicate.keys
        if keys is None or self._key_buckets is None:
            buckets = self.place.buckets(side, numbers)
        else:
            of_keys = [columns.column(name) for name in keys.names[side]]
            buckets = self._key_buckets.of(of_keys, len(numbers)).astype(np.int64)
        paired = np.zeros(len(numbers), np.bool_)
        return JoinRows(clock.reshape(1, -1), times, order, columns, buckets, numbers, paired)

    def _split_matchable(self, side: int, rows: JoinRows) -> tuple[JoinRows, JoinRows]:
        """Return rows with all their codes, and those that nothing can be paired with."""
        valid = self._predicate.valid(side, rows.rows)
        unmatchable = self._no_rows[side]
        if valid is not None:
            unmatchable, rows = rows.take(np.flatnonzero(~valid)), rows.take(np.flatnonzero(valid))
        return replace(rows, codes=self._predicate.codes(side, rows.rows, rows.codes[CLOCK])), unmatchable

    def _store_new(self, side: int, rows: JoinRows) -> None:
        self._store_split(side, *self._split_matchable(side, rows))

    def _store_split(
        self, side: int, rows: JoinRows, unmatchable: JoinRows
    ) -> list[tuple[RowStore, slice, Ints | slice]]:
        """Store rows, those that find no partner only if they leave without one; return where they are."""
        if self._predicate.keys is not None:
            self._predicate.keys.keep(rows.codes[1])
        places = self._cells.store(side, rows, self._run)
        self._changes.note(side, rows.buckets)
        if self._leaves_alone[side]:
            self._unmatchable[side].add(unmatchable, self._run)
            self._changes.note(side, unmatchable.buckets)
        return places

    def _match(self, side: int, new: JoinRows, rows: list[Batch]) -> Outputs:
        """Find the pairs of new rows with stored ones, and emit those that failed."""
        errors: list[tuple[Pairs, list[ErrorContext]]] = []
        lots: list[Pairs] = []
        for stored, at, stored_at in self._search(side, new):
            if side == LEFT_SIDE:
                pairs = Pairs(new, at, stored, stored_at)
            else:
                pairs = Pairs(stored, stored_at, new, at)
            pairs, failures = self._predicate.select(pairs, stops=self._errors.stops)
            if failures and self._errors.stops:
                failed, contexts = failures[0]
                self._errors.handle(self._results.join([failed]), np.ones(len(failed), np.bool_), contexts)
            errors += failures
            if len(pairs):
                rows += self._note_pairs(pairs, side)
                if self.place.pairs_meet_twice:
                    pairs = pairs.where(pairs.left.buckets[pairs.left_at] != NO_BUCKET)
                lots += [pairs] if len(pairs) else []
        if lots and self._how not in ("semi", "anti"):
            rows.append(self._results.join(lots, in_order=self._is_alone))
        yield from self._handle_errors(side, errors)

    def _handle_errors(self, side: int, errors: Sequence[tuple[Pairs, list[ErrorContext]]]) -> Outputs:
        """Count the new rows of which pairs failed, each once, and emit the pairs."""
        charged = set[int]()
        for pairs, contexts in errors:
            rows, at = (pairs.left, pairs.left_at) if side == LEFT_SIDE else (pairs.right, pairs.right_at)
            n_before = len(charged)
            charged.update(rows.numbers[at].tolist())
            failed = self._errors.handle(
                self._results.join([pairs]),
                np.ones(len(pairs), np.bool_),
                contexts,
                counted=len(charged) - n_before,
            )
            if failed is not None:
                yield ERRORS, failed
        self.site.accounts.passed -= len(charged)

    def _note_pairs(self, pairs: Pairs, side: int) -> list[Batch]:
        """Note which rows have found a partner; return those that leave alone for that, in a semi join.

        side  that of the new rows
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
            if own == LEFT_SIDE and self._how == "semi" and len(first):
                leaves.append(self._results.leave_alone(LEFT_SIDE, rows, first))
        return leaves

    def _search(self, side: int, new: JoinRows) -> Iterator[tuple[RowStore, Ints, Ints]]:
        """Yield where candidates of new rows are stored: the store, and the places of both."""
        if not len(new):
            return
        clocks = self._bound.ranges(side, new.codes[CLOCK])
        boxes, places = self._predicate.boxes(new.codes, clocks)
        conditions = self._predicate.conditions
        searches: list[Search] = []
        prepared: RowStore | None = None
        for cell in self._cells.cells(side, new.buckets[places]):
            cell_boxes = boxes if cell.rows is None else boxes.take(cell.rows)
            cell_places = places if cell.rows is None else places[cell.rows]
            if cell.stored is not prepared:  # once for all that share it
                prepared = cell.stored
                prepared.prepare(cell_boxes, conditions, self._run)
                self._work.n_compared += len(cell_boxes) * prepared.n_scanned
            search = partial(self._search_cell, cell_boxes, cell_places, cell)
            if conditions:
                searches.append(lambda search=search: list(search()))  # type: ignore[misc]
            else:  # all that is near in time is a candidate, and a function decides
                yield from search()
        started_at = perf_counter()
        lots = list(self.run_cells(searches) if len(searches) > 1 else run_in_turn(searches))
        self._work.n_searches += len(boxes)
        self._work.busy_seconds += (perf_counter() - started_at) * max(1, len(searches))
        yield from chain.from_iterable(lots)

    def _search_cell(self, boxes: Boxes, places: Ints, cell: Cell) -> Iterator[tuple[RowStore, Ints, Ints]]:
        """Yield the candidates in one cell."""
        for box, row in cell.stored.find(boxes, self._predicate.conditions, self._run, cell.share):
            yield cell.stored, places[box], row

    def _advance(self, watermark: float, rows: list[Batch]) -> Outputs:
        """Forget what the watermark has passed; rows that leave without a partner go to `rows`."""
        self.watermark = max(self.watermark, watermark)
        for side in (LEFT_SIDE, RIGHT_SIDE):
            self._forget(side, self._bound.horizon(side, watermark), rows)
        yield from ()

    def _forget(self, side: int, horizon: int, rows: list[Batch]) -> None:
        for part in self._cells.parts[side]:
            over = part.expire(horizon)
            if len(over) and self._predicate.keys is not None:
                self._predicate.keys.release(part.codes[1, over])
            if len(over) and self._leaves_alone[side]:
                alone = over[~part.has_pair[over] & (part.buckets[over] != NO_BUCKET)]
                if len(alone):
                    rows.append(self._results.leave_alone(side, part, alone))
        over = self._unmatchable[side].expire(horizon)
        if len(over):
            rows.append(self._results.leave_alone(side, self._unmatchable[side], over))
