"""Joins with the last rows: each row meets the last N rows of the other side before it (DP-Join, 3.3.1).

Rows wait until the watermark and the lateness have passed their time, and are then put in order: by time,
the left before the right, and inside a side by their places. The clock of a row is its rank on its side, so
what a row meets is a range of ranks, and what may be met again is the last N ranks.

Ranks are those of whole sides. A cell of several has all rows of the sides that others meet, as copies if
their home is elsewhere, and so it knows their ranks; a row looks for partners where it is at home.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.accounts import Accounts
from penstock.operators.op import LATE, LATE_RIGHT
from penstock.stages.join.bounds import ALL_OVER, LEFT_SIDE, RIGHT_SIDE, Admission
from penstock.stages.join.cell_places import NO_BUCKET
from penstock.stages.join.conditions import CLOCK
from penstock.stages.join.join_rows import JoinRows, concat_join_rows
from penstock.stages.join.pairs import RoundResults
from penstock.stages.join.stage import PORTS, JoinStage
from penstock.stages.join.state import SavedJoin, no_rows
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.order import sort_indices
from penstock.stages.stage import Outputs
from penstock.timing.windows import AFTER_ALL


class _RankBound:
    """Ranges of ranks, which the stage knows when it has put rows in order."""

    def __init__(self) -> None:
        self.met: tuple[Ints, Ints] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def admit(self, times: Ints, watermark: float) -> Admission:
        raise AssertionError("rows wait for their order before they are admitted")

    def ranges(self, side: int, clock: Ints) -> tuple[Ints, Ints]:
        return self.met

    def horizon(self, side: int, watermark: float) -> int:
        raise AssertionError("rows expire by their number")

    def span(self, side: int) -> int:
        return 0


class LastRowsJoinStage(JoinStage):
    """One join with the last rows of the other side.

    A row alone leaves at once, because no row after it may meet it: the operator allows no others.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert self._resolved.last_rows is not None, "the stage of such joins only"
        self._n_last = self._resolved.last_rows

    def _begin(self) -> None:
        self._bound = self._ranks = _RankBound()
        super()._begin()
        self._waiting: tuple[list[JoinRows], list[JoinRows]] = ([], [])
        self._n_ranked = self._saved_ranks = (0, 0)

    @property
    def nbytes(self) -> int:
        """Return the memory of all stored rows."""
        return super().nbytes + sum(rows.nbytes for waiting in self._waiting for rows in waiting)

    def _take_in(
        self, port: str, batch: Batch, watermark: float, leaving: RoundResults, *, is_home: bool = True
    ) -> Outputs:
        side, accounts = PORTS.index(port), self.site.accounts if is_home else Accounts()
        accounts.rows_in += batch.num_rows
        self._finder.work.n_rows[side] += batch.num_rows
        if not batch.num_rows:
            return
        late = self._has_passed(batch.times, watermark)
        n_late = int(late.sum())
        accounts.late += n_late
        if n_late and is_home:
            yield (LATE, LATE_RIGHT)[side], batch.where(late)
        at = np.flatnonzero(~late)
        new = self._number_rows(side, batch, at, batch.times[at].reshape(1, -1), is_home=is_home)
        if len(new):
            self._waiting[side].append(new)
            self._changes.note(side, new.buckets)

    def _has_passed(self, times: Ints, watermark: float) -> Mask:
        if math.isinf(watermark):
            return np.full(len(times), watermark > 0)
        return np.asarray(times < int(watermark) - self._resolved.lateness)

    def _advance(self, watermark: float, leaving: RoundResults) -> Outputs:
        """Put in order what the watermark has passed, and let each row meet the rows before it."""
        self.watermark = max(self.watermark, watermark)
        ready = [self._take_ready(side, watermark) for side in (LEFT_SIDE, RIGHT_SIDE)]
        n_before = self._n_ranked
        self._n_ranked = (n_before[0] + len(ready[0]), n_before[1] + len(ready[1]))
        ranked = [
            replace(part, codes=(n_before[side] + np.arange(len(part))).reshape(1, -1))
            for side, part in enumerate(ready)
        ]
        split = [self._split_matchable(side, part) for side, part in enumerate(ranked)]
        keys = self._predicate.keys
        for side, (matchable, _) in enumerate(split):
            # Why: partners are of this round too; a row's range ends before the rows that come after it.
            if self._n_last[side]:
                self._store_split(side, matchable, self._no_rows[side])
            elif keys is not None:
                keys.keep(matchable.codes[1])
        for side, of_side in enumerate(split):
            matchable, unmatchable = (_rows_at_home(part) for part in of_side)
            opposite = ready[1 - side].times
            # At one time the left comes before the right.
            n_met = np.searchsorted(opposite, matchable.times, side="left" if side == LEFT_SIDE else "right")
            past = n_before[1 - side] + n_met
            self._ranks.met = (past - self._n_last[1 - side], past - 1)
            self.site.accounts.passed += len(matchable) + len(unmatchable)
            yield from self._finder.find(side, matchable, leaving)
            if self._leaves_alone[side]:
                alone = np.flatnonzero(~matchable.has_pair)
                leaving.alone.append(self._results.leave_alone(side, matchable, alone))
                every = np.arange(len(unmatchable))
                leaving.alone.append(self._results.leave_alone(side, unmatchable, every))
        for side, (matchable, _) in enumerate(split):
            if not self._n_last[side] and keys is not None:  # no row of this side is ever met
                keys.release(matchable.codes[1])
            if self._n_last[side] and len(ready[side]):
                # Why: a cell that takes the rows of this side up must know its ranks, also without rows.
                for bucket in np.flatnonzero(self.place.own_buckets()[side])[:1].tolist():
                    self._changes.tell(side, bucket)
            is_end = watermark == AFTER_ALL
            self._expire_ranks(side, ALL_OVER if is_end else self._n_ranked[side] - self._n_last[side])

    def _expire_ranks(self, side: int, horizon: int) -> None:
        for part in self._cells.parts[side]:
            over = part.expire(horizon)
            if len(over):
                self._may_settle = True
                if self._predicate.keys is not None:
                    self._predicate.keys.release(part.codes[1, over])
                self._changes.note(side, part.buckets[over])

    def _take_ready(self, side: int, watermark: float) -> JoinRows:
        """Take the rows out that the watermark has passed, in order."""
        waiting = self._waiting[side]
        if not waiting:
            return no_rows((self._left, self._right)[side].schema)
        whole = concat_join_rows(waiting)
        ready = self._has_passed(whole.times, watermark)
        rest = whole.take(np.flatnonzero(~ready))
        waiting[:] = [rest] if len(rest) else []
        rows = whole.take(np.flatnonzero(ready))
        return rows.take(sort_indices([rows.times, *rows.order], rows.rows))

    def _saved_lots(self, side: int) -> Iterator[tuple[JoinRows, bool, Mask]]:
        for rows, waits, _ in super()._saved_lots(side):
            yield rows, waits, rows.codes[CLOCK] >= self._saved_ranks[side]
        for rows in map(_rows_at_home, self._waiting[side]):
            yield rows, True, np.zeros(len(rows), np.bool_)

    def _counts(self) -> Ints:
        return np.array([self._n_rows, *self._n_ranked], np.int64)

    def _has_moved(self) -> bool:
        return super()._has_moved() or self._n_ranked != self._saved_ranks

    def _note_saved(self) -> None:
        super()._note_saved()
        self._saved_ranks = self._n_ranked

    def _take_up(self, restored: SavedJoin, *, anew: bool) -> None:
        """Store the rows that may be met again; those that wait, wait on if they have not been ranked."""
        self._n_ranked = (int(restored.counts[1]), int(restored.counts[2]))
        for side, saved in enumerate(restored.sides):
            rows, is_ranked = self.place.take_up(side, saved.rows, (), anew=anew), ~saved.waits
            first = self._n_ranked[side] - self._n_last[side]
            of_rank = rows.take(np.flatnonzero(is_ranked & (rows.codes[CLOCK] >= first)))
            self._store_split(side, *self._split_matchable(side, of_rank))
            passed = self._has_passed(rows.times, restored.watermark)
            waiting = rows.take(np.flatnonzero(saved.waits & ~passed))
            if len(waiting):
                self._waiting[side].append(waiting)


def _rows_at_home(rows: JoinRows) -> JoinRows:
    """Return rows but for copies of what is saved elsewhere."""
    is_home = rows.buckets != NO_BUCKET
    return rows if is_home.all() else rows.take(np.flatnonzero(is_home))
