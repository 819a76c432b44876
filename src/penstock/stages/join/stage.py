"""JoinStage: two streams in, pairs out (DP-Join, 4.3), the same for both real engines.

New rows are compared with what is stored of the other side, and then stored (Kang's procedure with a single
scan, 4.4.3: expiry is found by the watermark, not by looking through the own side). A pair is found once,
when the second of its rows comes. A failure of a user's function is charged to that row.

The rows are stored in cells (`cells.py`), where pairs are found (`pair_finder.py`). The stage has no threads:
`run_cells` may run the searches of the cells side by side.

A stage is fed a port and a batch at a time (`on_batch`) and told of watermarks, or given whole rounds
(`on_round`), in which the right goes first, so that a pair of two new rows is charged to its left row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.operators.join_predicate import LEFT, RIGHT, Equal
from penstock.operators.op import LATE, LATE_RIGHT, OUT, Stream
from penstock.operators.stream_join import HANDSHAKE, StreamJoin
from penstock.stages import policy
from penstock.stages.join.bounds import LEFT_SIDE, NONE_OVER, RIGHT_SIDE, Bound, build_bound
from penstock.stages.join.cell_places import NO_BUCKET, WHOLE, CellPlace
from penstock.stages.join.cells import CellGrid, HandshakePipeline, RunCells, run_in_turn
from penstock.stages.join.conditions import CLOCK
from penstock.stages.join.index import Boxes
from penstock.stages.join.join_rows import JoinRows
from penstock.stages.join.model import JoinLoad, JoinWork, Layout
from penstock.stages.join.pair_finder import PairFinder
from penstock.stages.join.pairs import JoinResults, RoundResults, RowQuota
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
from penstock.stages.stage import Outputs, SavedBytes, StageContext
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

PORTS = (LEFT, RIGHT)
EXPIRY_SHARE = 256
"""Rows may be stored longer than their window by one part in so many."""


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
        self.op, self.site, self.place = op, site, place
        self._terms = op.match_terms(left, right)
        has_keys = any(isinstance(term, Equal) for term in self._terms)
        self._left, self._right = left, right
        self._resolved = op.resolve(left, right)
        self._bound: Bound = build_bound(self._resolved)
        self._cells = (
            HandshakePipeline(layout[1], self._bound)
            if op.layout == HANDSHAKE
            else CellGrid(layout, has_keys=has_keys, sharing=sharing, has_copies=place.pairs_meet_twice)
        )
        self._run = policy.JitPolicy()
        self._results = JoinResults(op, left, right, self._run)
        self._snapshots = JoinSnapshots(op, left, right, site.step, site.history)
        # Which side's rows leave without a partner, and so have to be kept to the end.
        self._leaves_alone = (op.how in ("left", "full", "anti"), op.how in ("right", "full"))
        self._finder = PairFinder(op, site, place, self._results, self._run, run_cells)
        self._last_work = JoinWork()
        self._no_rows = (no_rows(left.schema), no_rows(right.schema))
        self._expires_at_once = (self._leaves_alone[0] or has_keys, self._leaves_alone[1] or has_keys)
        self._begin()

    def _begin(self) -> None:
        """Start with no rows."""
        self._predicate = JoinPredicate(self._terms, self._left, self._right, self.site)
        keys = self._predicate.keys
        # Where others are cells of the same join, the cell says by which buckets its rows are known.
        self._key_buckets = None if keys is None or self.place != WHOLE else KeyBuckets(keys.types)
        self._cells.clear()
        self._unmatchable = (RowStore(), RowStore())
        self._changes = ChangedRows()
        self._finder.begin(self._predicate, self._bound, self._cells, self._changes)
        self._n_rows, self._quota = 0, RowQuota()
        self._next_horizon, self._may_settle = [NONE_OVER, NONE_OVER], False
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

    @property
    def expected_load(self) -> JoinLoad:
        """Return the load by the rates that the user has said; no load if they are not known."""
        seconds = (self._resolved.older_left / 1e6, self._resolved.older_right / 1e6)
        return JoinLoad.of_streams(self.op.rates or (0.0, 0.0), seconds)

    def predict_latency(self, load: JoinLoad) -> float:
        """Return the average seconds from a row to its pairs, as the model has it."""
        return self._cells.predict_latency(load)

    def measure_latency(self, load: JoinLoad) -> float:
        """Return the average seconds from a row to its pairs, as it was when the load was taken."""
        if not isinstance(self._cells, HandshakePipeline):
            return load.measured_latency(self.layout)
        return self._last_work.waited_us / 1e6 / max(1, self._last_work.n_pairs)

    def take_work(self) -> JoinWork:
        """Return what the join has done since somebody looked."""
        work = self._last_work = self._finder.work
        self._finder.work = JoinWork()
        return work

    def take_load(self, seconds: float) -> JoinLoad:
        """Return what the join has had to do in the last seconds, as the model of layouts wants it."""
        is_indexed = self._cells.n_scanned <= policy.SIZES.index_rows
        return self.take_work().load(seconds, self.n_stored, is_indexed=is_indexed)

    def on_batch(self, port: str, batch: Batch, watermark: float) -> Outputs:
        """Take rows of one side in: emit late ones, and the pairs that they make with what is stored."""
        self._settle()
        leaving = RoundResults()
        is_few = 0 < batch.num_rows <= min(policy.SIZES.few_rows, self._quota.n_rows)
        at_once = self._finder.join_at_once
        if is_few and at_once(PORTS.index(port), batch, watermark, self._n_rows, leaving):
            self._n_rows += batch.num_rows
            self._quota.note(batch.num_rows, len(leaving))
            yield from self._emit(leaving)
        else:
            yield from self._take_round({port: batch}, watermark, None, {})

    def on_watermark(self, watermark: float) -> Outputs:
        """Forget the rows that are over; emit those that leave without a partner."""
        leaving = RoundResults()
        yield from self._advance(watermark, leaving)
        yield from self._emit(leaving)

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

        What leaves on the main port is in order, in batches of a bounded size.

        copies  rows whose home is another cell
        """
        if batches or copies:
            yield from self._take_round(batches, before, after, copies or {})
        else:
            yield from self.on_watermark(after)

    def _take_round(
        self, batches: Mapping[str, Batch], before: float, after: float | None, copies: Mapping[str, Batch]
    ) -> Outputs:
        """Take the rows of a round, and advance if there is a watermark to reach."""
        self._settle()
        leaving = RoundResults()
        lots = [(port, of_port) for port in (RIGHT, LEFT) for of_port in (batches, copies) if port in of_port]
        for rows, until in self._cut([of_port[port] for port, of_port in lots], before):
            n_kept = len(leaving)
            for (port, of_port), batch in zip(lots, rows, strict=True):
                yield from self._take_in(port, batch, before, leaving, is_home=of_port is batches)
            self._quota.note(sum(batch.num_rows for batch in rows), len(leaving) - n_kept)
            if until is not None:
                yield from self._emit(leaving, until)
        if after is not None:
            yield from self._advance(after, leaving)
        yield from self._emit(leaving)

    def _settle(self) -> None:
        """Let stored rows move together, if some have gone: new ones make the share of those smaller.

        Invariant: nothing that is to leave names a row by its slot.
        """
        if self._may_settle:
            self._may_settle = False
            for store in (*self._cells.parts[0], *self._cells.parts[1], *self._unmatchable):
                store.settle()

    def _cut(self, lots: list[Batch], before: float) -> Iterator[tuple[list[Batch], int | None]]:
        """Yield the rows of a round in steps, where that changes nothing but the memory of their pairs.

        In an inner join nothing leaves but pairs, and none of them before its time; where a function may
        fail, it matters which of two new rows is charged with that.
        """
        is_plain = self.op.how == "inner" and not self._predicate.tests and self._resolved.last_rows is None
        if not is_plain or isinstance(self._cells, HandshakePipeline) or before == AFTER_ALL:
            return iter([(lots, None)])
        floor = NONE_OVER if before == BEFORE_ALL else int(before) - self._resolved.lateness - 1
        return self._quota.cut(lots, floor)

    @property
    def layout(self) -> Layout:
        """Return the parts of the left and of the right."""
        return self._cells.layout

    def describe_cells(self) -> str:
        """Return the layout in words."""
        return self._cells.describe()

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
        self, saved: Mapping[int, SavedBytes], watermark: float = BEFORE_ALL, *, anew: bool = False
    ) -> None:
        """Go back to a snapshot, or take up some buckets of one that another layout took.

        watermark  how far the join had come, if that is known better than by these buckets
        anew       rows that were in one bucket may be in several cells now, so all that this one owns get
                   other numbers and buckets, and the next snapshot has all of them
        """
        restored = self._snapshots.decode(saved)
        if isinstance(self._cells, HandshakePipeline) and restored.counts[1]:
            self._cells = HandshakePipeline(int(restored.counts[1]), self._bound)
        if watermark > restored.watermark:
            restored = replace(restored, watermark=watermark)
        self._begin()
        self.watermark = restored.watermark
        self._cells.begin_at(self.watermark)
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
        """Return what is saved with the rows: the number of the next row, and of the cells of a pipeline."""
        n_cells = self.layout[1] if isinstance(self._cells, HandshakePipeline) else 0
        return np.array([self._n_rows, n_cells, 0], np.int64)

    def _has_moved(self) -> bool:
        """Return whether rows may be over since the last snapshot."""
        return self.watermark > self._saved_watermark

    def _note_saved(self) -> None:
        self._saved_watermark = self.watermark

    def _parts(self, side: int) -> list[RowStore]:
        return [*self._cells.parts[side], self._unmatchable[side]]

    def _emit(self, leaving: RoundResults, until: int | None = None) -> Outputs:
        """Emit results in order; those of later times than `until` stay."""
        for batch in self._results.emit(leaving, until):
            self.site.accounts.rows_out += batch.num_rows
            yield OUT, batch

    def _take_in(
        self, port: str, batch: Batch, watermark: float, leaving: RoundResults, *, is_home: bool = True
    ) -> Outputs:
        """Judge new rows, find their pairs, which go to `leaving`, and store them."""
        side = PORTS.index(port)
        at_once = self._finder.join_at_once
        if is_home and batch.num_rows and at_once(side, batch, watermark, self._n_rows, leaving):
            self._n_rows += batch.num_rows
            return
        accounts = self.site.accounts if is_home else Accounts()
        accounts.rows_in += batch.num_rows
        self._finder.work.n_rows[side] += batch.num_rows
        if not batch.num_rows:
            return
        admitted = self._bound.admit(batch.times, watermark)
        n_late = n_outside = 0
        if admitted.late is not None:
            n_late = int(np.count_nonzero(admitted.late))
        if admitted.no_window is not None:
            n_outside = int(np.count_nonzero(admitted.no_window))
        accounts.late += n_late
        accounts.no_window += n_outside
        accounts.passed += batch.num_rows - n_late - n_outside
        if n_late and is_home and admitted.late is not None:
            yield (LATE, LATE_RIGHT)[side], batch.where(admitted.late)
        if admitted.rows is None and self._predicate.encoder is not None:
            clocks = self._bound.ranges(side, admitted.clock)
            encoded = self._predicate.encoder.encode(side, batch, admitted.clock, clocks, self._run)
            if encoded is not None:
                codes, lows, highs = encoded
                new = self._number_rows(side, batch, None, codes, is_home=is_home)
                wanted = Boxes(lows, highs), np.arange(len(new))
                yield from self._finder.find(side, new, leaving, wanted)
                self._store_split(side, new, self._no_rows[side], leaving)
                return
        numbered = self._number_rows(
            side, batch, admitted.rows, admitted.clock.reshape(1, -1), is_home=is_home
        )
        new, unmatchable = self._split_matchable(side, numbered)
        if not is_home:
            unmatchable = self._no_rows[side]
        yield from self._finder.find(side, new, leaving)
        self._store_split(side, new, unmatchable, leaving)

    def _number_rows(
        self, side: int, batch: Batch, at: Ints | None, codes: Ints, *, is_home: bool = True
    ) -> JoinRows:
        """Return new rows, or some of them, with numbers and buckets."""
        times, order = batch.times, batch.order
        numbers = np.arange(self._n_rows, self._n_rows + batch.num_rows)
        self._n_rows += batch.num_rows
        if at is not None:
            numbers, times, order = numbers[at], times[at], tuple(column[at] for column in order)
            batch = Batch(batch.rows.take(pa.array(at)), times, order)
        keys = self._predicate.keys
        if not is_home:
            buckets = np.full(len(numbers), NO_BUCKET)
        elif keys is None or self._key_buckets is None:
            buckets = self.place.buckets(side, numbers)
        else:
            of_keys = [batch.column(name) for name in keys.names[side]]
            buckets = self._key_buckets.of(of_keys, len(numbers)).astype(np.int64)
        return JoinRows(codes, times, order, batch, buckets, numbers, np.zeros(len(numbers), np.bool_))

    def _split_matchable(self, side: int, rows: JoinRows) -> tuple[JoinRows, JoinRows]:
        """Return rows with all their codes, and those that nothing can be paired with."""
        valid = self._predicate.valid(side, rows.rows)
        unmatchable = self._no_rows[side]
        if valid is not None:
            unmatchable, rows = rows.take(np.flatnonzero(~valid)), rows.take(np.flatnonzero(valid))
        return replace(rows, codes=self._predicate.codes(side, rows.rows, rows.codes[CLOCK])), unmatchable

    def _store_split(
        self, side: int, rows: JoinRows, unmatchable: JoinRows, leaving: RoundResults | None = None
    ) -> None:
        """Store rows, those that find no partner only if they leave without one."""
        if self._predicate.keys is not None:
            self._predicate.keys.keep(rows.codes[1])
        first = self._cells.store(side, rows, self._run)
        if first is not None and leaving is not None and len(leaving) > policy.SIZES.few_rows:
            leaving.name_stored(rows, self._cells.parts[side][0], first)
        self._changes.note(side, rows.buckets)
        if self._leaves_alone[side]:
            self._unmatchable[side].add(unmatchable, self._run)
            self._changes.note(side, unmatchable.buckets)

    def _advance(self, watermark: float, leaving: RoundResults) -> Outputs:
        """Forget what the watermark has passed; rows that leave without a partner go to `leaving`."""
        self.watermark = max(self.watermark, watermark)
        if isinstance(self._cells, HandshakePipeline):
            self._may_settle = True
            yield from self._move_on(self._cells, leaving)
        for side in (LEFT_SIDE, RIGHT_SIDE):
            self._forget(side, self._bound.horizon(side, watermark), leaving)

    def _move_on(self, pipeline: HandshakePipeline, leaving: RoundResults) -> Outputs:
        """Let stored rows go on to the cells of their age, and meet those that are there."""
        for side in (LEFT_SIDE, RIGHT_SIDE):
            for cell, moved in pipeline.take_moved(side, self.watermark):
                pipeline.before = cell
                yield from self._finder.find(side, moved, leaving, is_old=True)
                pipeline.store(side, moved, self._run)
            pipeline.before = -1

    def _forget(self, side: int, horizon: int, leaving: RoundResults) -> None:
        """Let the rows of a side go that are before the horizon: a share of a window at a time, where that
        makes no difference, because no row that is over is in a box.
        """
        if horizon < self._next_horizon[side] and not self._expires_at_once[side]:
            return
        self._next_horizon[side] = horizon + self._bound.span(side) // EXPIRY_SHARE
        self._may_settle = True
        for part in self._cells.parts[side]:
            over = part.expire(horizon)
            if len(over) and self._predicate.keys is not None:
                self._predicate.keys.release(part.codes[1, over])
            if len(over) and self._leaves_alone[side]:
                alone = over[~part.has_pair[over] & (part.buckets[over] != NO_BUCKET)]
                if len(alone):
                    leaving.alone.append(self._results.leave_alone(side, part, alone))
        over = self._unmatchable[side].expire(horizon)
        if len(over):
            leaving.alone.append(self._results.leave_alone(side, self._unmatchable[side], over))
