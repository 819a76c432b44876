"""Rows whose fate only count windows know: they pass when the first window with them leaves.

Such a row gets a ticket. With one kind of count window tickets need not be told apart: what comes back is
counted. With several, a row waits until all have answered, and the best answer counts; then tickets are
numbers that no two rows share, also after state has moved between replicas: bucket + 256 * a running number.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.stages.batch import Ints, Mask
from penstock.stages.site import Accounts
from penstock.stages.store import Left, Outcome
from penstock.timing.bucket import BUCKETS

_COLUMNS = ("ticket", "answers", "outcome")


class Settling:
    """Tickets given out and taken back, for `n_kinds` kinds of count window."""

    def __init__(self, accounts: Accounts, n_kinds: int) -> None:
        self._accounts, self._n_kinds = accounts, n_kinds
        self._next = 0
        self._tickets = np.empty((0, 3), np.int64)  # ticket, answers to come, best outcome so far

    @property
    def numbered(self) -> bool:
        """Whether tickets must differ, and the buckets of rows are needed to make them so."""
        return self._n_kinds > 1

    def tickets(self, taken_elsewhere: Mask, buckets: Ints) -> Ints:
        """A ticket per row; -1 for rows that another kind of window has taken."""
        numbers = np.zeros(len(taken_elsewhere), np.int64)
        if self.numbered:
            numbers = (self._next + np.arange(len(numbers))) * BUCKETS + buckets
            self._next += len(numbers)
        return np.where(taken_elsewhere, -1, numbers)

    def taken(self, tickets: Ints, n_takers: Ints) -> None:
        """Rows that some count windows took, each with how many of them will answer."""
        if self.numbered:
            mine = (tickets >= 0) & (n_takers > 0)
            new = np.stack([tickets[mine], n_takers[mine], np.zeros(int(mine.sum()), np.int64)], axis=1)
            self._tickets = np.concatenate([self._tickets, new])

    def settle(self, parts: list[Left]) -> None:
        """Count what has been decided."""
        for part in parts:
            if part.settled is not None:
                tickets, outcomes = part.settled
                mine = tickets >= 0
                self._answered(tickets[mine], outcomes[mine].astype(np.int64))

    def _answered(self, tickets: Ints, outcomes: Ints) -> None:
        if not self.numbered:
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
