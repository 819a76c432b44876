"""Rows whose fate only count windows know: they pass when the first window with them leaves.

Such a row gets a ticket. With one kind of count window tickets need not be told apart: what comes back is
counted. With several, a row waits until all have answered, and the best answer counts; then tickets are
numbers that no two rows share, also after state has moved between replicas: bucket + 256 * a running number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.frozen import dataclass
from penstock.operators.windows import ResolvedWindows
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.window.store import (
    ENDED,
    ClosedWindows,
    Decision,
    Decisions,
    InputRows,
    Outcome,
    WindowGroup,
)
from penstock.timing.bucket import BUCKETS

_COLUMNS = ("ticket", "answers", "outcome")


class PendingRows:
    """Tickets given out and taken back, for `n_kinds` kinds of count window."""

    def __init__(self, accounts: Accounts, n_kinds: int) -> None:
        self._accounts, self._n_kinds = accounts, n_kinds
        self._next = 0
        self._tickets = np.empty((0, 3), np.int64)  # ticket, answers to come, best outcome so far

    @property
    def totally_ordered(self) -> bool:
        """Whether tickets must differ, and the buckets of rows are needed to make them so."""
        return self._n_kinds > 1

    def tickets(self, taken_elsewhere: Mask, buckets: Ints) -> Ints:
        """A ticket per row; -1 for rows that another kind of window has taken."""
        numbers = np.zeros(len(taken_elsewhere), np.int64)
        if self.totally_ordered:
            numbers = (self._next + np.arange(len(numbers))) * BUCKETS + buckets
            self._next += len(numbers)
        return np.where(taken_elsewhere, -1, numbers)

    def taken(self, tickets: Ints, n_takers: Ints) -> None:
        """Rows that some count windows took, each with how many of them will answer."""
        if self.totally_ordered:
            mine = (tickets >= 0) & (n_takers > 0)
            new = np.stack([tickets[mine], n_takers[mine], np.zeros(int(mine.sum()), np.int64)], axis=1)
            self._tickets = np.concatenate([self._tickets, new])

    def settle(self, parts: list[ClosedWindows]) -> None:
        """Count what has been decided."""
        for part in parts:
            if part.settled is not None:
                tickets, outcomes = part.settled
                mine = tickets >= 0
                self._answered(tickets[mine], outcomes[mine].astype(np.int64))

    def _answered(self, tickets: Ints, outcomes: Ints) -> None:
        if not self.totally_ordered:
            self._count(outcomes)
            return
        order = np.argsort(self._tickets[:, 0])
        rows = order[np.searchsorted(self._tickets[order, 0], tickets)]
        # One ticket may come back from several kinds at once.
        np.subtract.at(self._tickets[:, 1], rows, 1)
        np.maximum.at(self._tickets[:, 2], rows, outcomes)
        done = self._tickets[:, 1] == 0
        self._count(self._tickets[done, 2])
        self._tickets = self._tickets[~done]

    def _count(self, outcomes: Ints) -> None:
        self._accounts.passed += int((outcomes == Outcome.PASSED).sum())
        self._accounts.unfinished += int((outcomes == Outcome.UNFINISHED).sum())
        self._accounts.no_window += int((outcomes == Outcome.NO_WINDOW).sum())

    def export(self, bucket: int) -> pa.RecordBatch:
        """The open tickets of a bucket."""
        mine = self._tickets[self._tickets[:, 0] % BUCKETS == bucket]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in mine.T], names=_COLUMNS)

    def load(self, saved: pa.RecordBatch) -> None:
        """Take up open tickets; new ones are given out after them."""
        tickets = np.stack([saved.column(name).to_numpy() for name in _COLUMNS], axis=1)
        self._tickets = np.concatenate([self._tickets, tickets])
        self._next = max(self._next, int(tickets[:, 0].max(initial=-1)) // BUCKETS + 1)


# What becomes of the rows of a window step: every kind of window is asked, and every row is accounted for.
#
# A row passes when some kind takes it in; it is late when none does and one says late; otherwise it lies
# in no window. Count windows are asked last: they settle the rows that nobody else has taken, and only
# when they know (`settling.py`).

Buckets = Callable[[Ints], npt.NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Which rows are late, and which no kind has taken, late or not."""

    late: Mask
    lost: Mask


class Admission:
    """Asks the shelves of a step and keeps its accounts."""

    def __init__(self, resolved: ResolvedWindows, shelves: Sequence[WindowGroup], accounts: Accounts) -> None:
        self._resolved, self._accounts = resolved, accounts
        self._sure = [shelf for shelf in shelves if not shelf.counted]
        self._counted = [shelf for shelf in shelves if shelf.counted]
        self.settling = PendingRows(accounts, sum(len(shelf.kinds) for shelf in self._counted))

    def add(self, arriving: InputRows, watermark: int, buckets: Buckets) -> Rejected | None:
        """Rows into windows; None when every kind has taken every row. `buckets` gives those of slots."""
        answers = [self._asked(shelf, arriving, watermark) for shelf in self._sure]
        n = len(arriving.slots)
        if self._sure and not self._counted and all(answer is None for answer in answers):
            self._accounts.passed += n  # the common case by far
            return None
        fates = np.full((len(self._resolved.windows), n), Decision.TAKEN, np.uint8)
        for shelf, answer in zip(self._sure, answers, strict=True):
            if answer is not None:
                fates[shelf.kinds] = answer
        if self._counted:
            self._take_counted(arriving, watermark, fates, buckets)
        return self._verdict(fates)

    def _asked(self, shelf: WindowGroup, arriving: InputRows, watermark: int) -> Decisions | None:
        judged = shelf.add(arriving, watermark)
        if judged is None:
            return None
        fates, misses = judged
        if arriving.times.min(initial=ENDED) >= watermark:
            return fates  # no window of such a time can have left
        for kind, missed in zip(shelf.kinds.tolist(), misses.sum(axis=1).tolist(), strict=True):
            if missed:
                label, window = self._resolved.windows[kind]
                # A new dict, never a changed one: another thread may be reading the accounts.
                counts, name = self._accounts.late_by_window, label or str(window)
                self._accounts.late_by_window = {**counts, name: counts.get(name, 0) + missed}
        return fates

    def _take_counted(self, arriving: InputRows, watermark: int, fates: Decisions, buckets: Buckets) -> None:
        elsewhere = (fates[self._kinds(self._sure)] == Decision.TAKEN).any(axis=0)
        homes = np.zeros(len(elsewhere), np.int64)
        if self.settling.totally_ordered:
            homes = buckets(arriving.slots).astype(np.int64)
        tickets = self.settling.tickets(elsewhere, homes)
        for shelf in self._counted:
            answer = self._asked(shelf, replace(arriving, tags=tickets), watermark)
            fates[shelf.kinds] = Decision.TAKEN if answer is None else answer
        self.settling.taken(tickets, (fates[self._kinds(self._counted)] == Decision.TAKEN).sum(axis=0))

    def _verdict(self, fates: Decisions) -> Rejected:
        taken = (fates == Decision.TAKEN).any(axis=0)
        late = ~taken & (fates == Decision.LATE).any(axis=0)
        passed = (fates[self._kinds(self._sure)] == Decision.TAKEN).any(axis=0)
        self._accounts.passed += int(passed.sum())
        self._accounts.late += int(late.sum())
        self._accounts.no_window += int((~taken & ~late).sum())
        return Rejected(np.asarray(late), np.asarray(~taken))

    def _kinds(self, shelves: Sequence[WindowGroup]) -> Ints:
        return np.concatenate([np.empty(0, np.int64), *(shelf.kinds for shelf in shelves)])
