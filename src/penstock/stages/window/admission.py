"""What becomes of the rows of a window step: every kind of window decides, every row is accounted for.

A row passes when some kind admits it; it is late when none does and one says late; otherwise it lies in no
window. Time and session windows know at once. Count windows decide last, and only over the rows that nobody
else has admitted: such a row is *pending* until the first window with it closes.

Invariant: rows_in = passed + late + no_window + unfinished + errors + pending, at every moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.frozen import dataclass
from penstock.operators.windows import ResolvedWindows
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import ENDED, InputRows
from penstock.stages.window.store import ClosedWindows, Decided, Decision, Decisions, Outcome
from penstock.timing.slices import closed_windows_of
from penstock.timing.windows import TimeWindow

if TYPE_CHECKING:
    from penstock.stages.window.groups import WindowGroup
from penstock.stages.rows.store import PLACE, ints_of, places_of
from penstock.timing.windows import CountWindow

BucketsOf = Callable[[Ints], npt.NDArray[np.uint8]]
_COLUMNS = ("tag", "answers", "outcome")


@dataclass(frozen=True, slots=True)
class Rejection:
    """Which rows of a batch are late, and which no kind has admitted, late or not."""

    late: Mask
    unplaced: Mask


class Admission:
    """Asks the groups of a step about rows and keeps its accounts."""

    def __init__(self, resolved: ResolvedWindows, groups: Sequence[WindowGroup], accounts: Accounts) -> None:
        self._resolved, self._accounts = resolved, accounts
        self._certain = [group for group in groups if not group.counted]
        self._counted = [group for group in groups if group.counted]
        self.pending = PendingRows(accounts, sum(len(group.kinds) for group in self._counted))

    def admit(self, rows: InputRows, watermark: int, buckets_of: BucketsOf) -> Rejection | None:
        """Add rows to windows; None when every kind has admitted every row. `buckets_of` is of slots."""
        decided = [group.store.add(rows, watermark) for group in self._certain]
        n_rows = len(rows.slots)
        if self._certain and not self._counted and all(answer is None for answer in decided):
            self._accounts.passed += n_rows  # the common case by far
            return None
        decisions = np.full((len(self._resolved.windows), n_rows), Decision.ADMITTED, np.uint8)
        for group, answer in zip(self._certain, decided, strict=True):
            self._note(group, answer, rows, watermark, decisions)
        passed = self._is_admitted(self._certain, decisions)
        if self._counted:
            self._admit_counted(rows, watermark, decisions, passed, buckets_of)
        admitted = (decisions == Decision.ADMITTED).any(axis=0)
        late = ~admitted & (decisions == Decision.LATE).any(axis=0)
        self._accounts.passed += int(passed.sum())
        self._accounts.late += int(late.sum())
        self._accounts.no_window += int((~admitted & ~late).sum())
        return Rejection(np.asarray(late), np.asarray(~admitted))

    def _admit_counted(
        self, rows: InputRows, watermark: int, decisions: Decisions, passed: Mask, buckets_of: BucketsOf
    ) -> None:
        buckets = np.zeros(len(passed), np.int64)
        if self.pending.needs_ids:
            buckets = buckets_of(rows.slots).astype(np.int64)
        tags = self.pending.tag(passed, buckets)
        for group in self._counted:
            answer = group.store.add(replace(rows, tags=tags), watermark)
            self._note(group, answer, rows, watermark, decisions)
        kinds = np.concatenate([group.kinds for group in self._counted])
        self.pending.expect(tags, (decisions[kinds] == Decision.ADMITTED).sum(axis=0))

    def _note(
        self, group: WindowGroup, answer: Decided | None, rows: InputRows, watermark: int, all_: Decisions
    ) -> None:
        """Write a group's decisions among all, and count the windows that rows have missed."""
        if answer is None:
            return
        decisions, misses = answer
        all_[group.kinds] = decisions
        if rows.times.min(initial=ENDED) >= watermark:
            return  # no window of such a time can have closed
        for kind, missed in zip(group.kinds.tolist(), misses.sum(axis=1).tolist(), strict=True):
            if missed:
                label, window = self._resolved.windows[kind]
                # Invariant: a new dict, never a changed one, because another thread may be reading it.
                counts, name = self._accounts.late_by_window, label or str(window)
                self._accounts.late_by_window = {**counts, name: counts.get(name, 0) + missed}

    def _is_admitted(self, groups: Sequence[WindowGroup], decisions: Decisions) -> Mask:
        """Return which rows some kind of these groups has admitted."""
        kinds = np.concatenate([np.empty(0, np.int64), *(group.kinds for group in groups)])
        return np.asarray((decisions[kinds] == Decision.ADMITTED).any(axis=0))


class PendingRows:
    """Rows whose outcome only count windows know, for `n_kinds` kinds of count window.

    A pending row has a tag. With one kind of count window tags need not differ: what comes back is counted.
    With several, a row is pending until all have answered, and the best answer counts; then tags are ids that
    no two rows share, also after state has moved between replicas: bucket + 256 * a running number.
    """

    def __init__(self, accounts: Accounts, n_kinds: int) -> None:
        self._accounts, self._n_kinds = accounts, n_kinds
        self._next = 0
        self._rows = np.empty((0, 3), np.int64)  # tag, answers to come, best outcome so far

    @property
    def needs_ids(self) -> bool:
        """Return whether tags must differ, and the buckets of rows are needed to make them so."""
        return self._n_kinds > 1

    def tag(self, passed: Mask, buckets: Ints) -> Ints:
        """Return a tag per row; -1 for rows that have passed already."""
        tags = np.zeros(len(passed), np.int64)
        if self.needs_ids:
            tags = (self._next + np.arange(len(tags))) * BUCKETS + buckets
            self._next += len(tags)
        return np.where(passed, -1, tags)

    def expect(self, tags: Ints, n_answers: Ints) -> None:
        """Note how many kinds will answer for each row."""
        if self.needs_ids:
            new = (tags >= 0) & (n_answers > 0)
            rows = np.stack([tags[new], n_answers[new], np.zeros(int(new.sum()), np.int64)], axis=1)
            self._rows = np.concatenate([self._rows, rows])

    def settle(self, closed: Sequence[ClosedWindows]) -> None:
        """Count the rows whose outcome is known now."""
        for part in closed:
            if part.settled is not None:
                tags, outcomes = part.settled
                known = tags >= 0
                self._answer(tags[known], outcomes[known].astype(np.int64))

    def _answer(self, tags: Ints, outcomes: Ints) -> None:
        if not self.needs_ids:
            self._count(outcomes)
            return
        order = np.argsort(self._rows[:, 0])
        places = order[np.searchsorted(self._rows[order, 0], tags)]
        # Why `.at`: one tag may come back from several kinds at once.
        np.subtract.at(self._rows[:, 1], places, 1)
        np.maximum.at(self._rows[:, 2], places, outcomes)
        done = self._rows[:, 1] == 0
        self._count(self._rows[done, 2])
        self._rows = self._rows[~done]

    def _count(self, outcomes: Ints) -> None:
        self._accounts.passed += int((outcomes == Outcome.PASSED).sum())
        self._accounts.unfinished += int((outcomes == Outcome.UNFINISHED).sum())
        self._accounts.no_window += int((outcomes == Outcome.NO_WINDOW).sum())

    def export(self, bucket: int) -> pa.RecordBatch:
        """Return the pending rows of a bucket, to be saved."""
        rows = self._rows[self._rows[:, 0] % BUCKETS == bucket]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in rows.T], names=_COLUMNS)

    def load(self, saved: pa.RecordBatch) -> None:
        """Take over saved pending rows; new tags come after theirs."""
        rows = np.stack([saved.column(name).to_numpy() for name in _COLUMNS], axis=1)
        self._rows = np.concatenate([self._rows, rows])
        self._next = max(self._next, int(rows[:, 0].max(initial=-1)) // BUCKETS + 1)


SettledRows = tuple[Ints, Decisions]
"""(tags, outcomes), as in `ClosedWindows.settled`."""


class OpenRows:
    """The rows of a kind of count window whose first window is not full: (slot, rows it needs, tag) of each.

    Rows that another kind of window has admitted have the tag -1 and are not followed.
    """

    def __init__(self, window: CountWindow) -> None:
        self._size, self._every = window.size, window.every
        self._open = np.empty((0, 3), np.int64)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._open.nbytes

    def add(self, slots: Ints, numbers: Ints, tags: Ints, filled: Ints) -> list[SettledRows]:
        """Follow rows; return those in windows that are full, and those whose number is in no window.

        filled[i] is one past the last row of the last full window of row i's slot. A row's first window is
        the one that starts earliest, and is full first.
        """
        pending = tags >= 0
        settled = []
        if self._every > self._size:
            outside = numbers % self._every >= self._size
            settled.append(_settle_all(tags[pending & outside], Outcome.NO_WINDOW))
            pending &= ~outside
        full = numbers < filled
        settled.append(_settle_all(tags[pending & full], Outcome.PASSED))
        rest = np.flatnonzero(pending & ~full)
        first = np.maximum((numbers[rest] - self._size) // self._every + 1, 0) * self._every
        rows = np.stack([slots[rest], first + self._size, tags[rest]], axis=1)
        self._open = np.concatenate([self._open, rows])
        return settled

    def settle(self, n_numbered: Ints) -> SettledRows:
        """Return the rows in windows that have become full; n_numbered[slot] rows of a slot are numbered."""
        full = self._open[:, 1] <= n_numbered[self._open[:, 0]]
        settled = _settle_all(self._open[full, 2], Outcome.PASSED)
        self._open = self._open[~full]
        return settled

    def end(self, outcome: Outcome) -> SettledRows:
        """Return all other rows, at the end of the stream."""
        settled = _settle_all(self._open[:, 2], outcome)
        self._open = self._open[:0].copy()
        return settled

    def export(self, slots: Ints) -> pa.RecordBatch:
        """Return the open rows of these slots."""
        rows = self._open[np.isin(self._open[:, 0], slots)]
        columns = [places_of(rows[:, 0], slots), rows[:, 1], rows[:, 2]]
        return pa.RecordBatch.from_arrays(
            [pa.array(column) for column in columns], names=[PLACE, "due", "tag"]
        )

    def load(self, saved: pa.RecordBatch, slots: Ints) -> None:
        """Take over exported rows: what was at place i now belongs to slots[i]."""
        columns = [slots[ints_of(saved, PLACE)], ints_of(saved, "due"), ints_of(saved, "tag")]
        self._open = np.concatenate([self._open, np.stack(columns, axis=1)])


def concat_settled(parts: Sequence[SettledRows]) -> SettledRows:
    """Return several lots as one."""
    tags, outcomes = zip(*parts, strict=True)
    return np.concatenate(tags), np.concatenate(outcomes)


def _settle_all(tags: Ints, outcome: Outcome) -> SettledRows:
    return tags, np.full(len(tags), outcome, np.uint8)


def decide_rows(
    windows: Sequence[TimeWindow], lateness: int, times: Ints, watermark: int, least: int | None = None
) -> Decided | None:
    """Decide what each kind of time window says to each row; None when all are admitted, none missed.

    `least` is the least time, if it is known. Only rows before the watermark can have missed a window.
    """
    behind = np.empty(0, np.int64)
    if (times.min(initial=watermark) if least is None else least) < watermark - lateness:
        behind = np.flatnonzero(times < watermark - lateness)
    elif not any(window.every > window.size for window in windows):
        return None
    decisions = np.full((len(windows), len(times)), Decision.ADMITTED, np.uint8)
    misses = np.zeros((len(windows), len(times)), np.int64)
    for kind, window in enumerate(windows):
        if len(behind):
            old = times[behind]
            misses[kind, behind] = missed = closed_windows_of(window, old, watermark, lateness)
            n_windows = old // window.every - (old - window.size) // window.every
            decisions[kind, behind[missed == n_windows]] = Decision.LATE
        if window.every > window.size:
            decisions[kind, np.mod(times, window.every) >= window.size] = Decision.GAP
    return decisions, misses
