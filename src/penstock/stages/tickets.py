"""What becomes of the rows of count windows: known when the first window with a row is full, or at the end.

Rows whose fate another kind of window has decided have no ticket (-1) and are not followed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.stages.batch import Ints
from penstock.stages.saved_rows import PLACE, ints_of, places_of
from penstock.stages.store import Fates, Outcome
from penstock.timing.windows import CountWindow

Settled = tuple[Ints, Fates]


class Tickets:
    """The tickets of rows in windows that are not full: (slot, rows the slot needs, ticket) of each."""

    def __init__(self, window: CountWindow) -> None:
        self._size, self._every = window.size, window.every
        self._open = np.empty((0, 3), np.int64)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._open.nbytes

    def add(self, slots: Ints, numbers: Ints, tickets: Ints, filled: Ints) -> list[Settled]:
        """Follow rows; gives back those in windows that are full, and those whose number is in no window.

        filled[i] is one past the last row of the last full window of row i's slot. A row's first window is
        the one that starts earliest, and is full first.
        """
        mine = tickets >= 0
        settled = []
        if self._every > self._size:
            outside = numbers % self._every >= self._size
            settled.append(_all(tickets[mine & outside], Outcome.NO_WINDOW))
            mine &= ~outside
        full = numbers < filled
        settled.append(_all(tickets[mine & full], Outcome.PASSED))
        rest = np.flatnonzero(mine & ~full)
        first = np.maximum((numbers[rest] - self._size) // self._every + 1, 0) * self._every
        new = np.stack([slots[rest], first + self._size, tickets[rest]], axis=1)
        self._open = np.concatenate([self._open, new])
        return settled

    def settle(self, placed: Ints) -> Settled:
        """The rows in windows that have become full; placed[slot] is how many rows the slot has come to."""
        full = self._open[:, 1] <= placed[self._open[:, 0]]
        settled = _all(self._open[full, 2], Outcome.PASSED)
        self._open = self._open[~full]
        return settled

    def end(self, outcome: Outcome) -> Settled:
        """All other rows, at the end of the stream."""
        settled = _all(self._open[:, 2], outcome)
        self._open = self._open[:0].copy()
        return settled

    def export(self, slots: Ints) -> pa.RecordBatch:
        """The tickets of these slots."""
        rows = self._open[np.isin(self._open[:, 0], slots)]
        arrays = [places_of(rows[:, 0], slots), rows[:, 1], rows[:, 2]]
        return pa.RecordBatch.from_arrays([pa.array(each) for each in arrays], names=[PLACE, "due", "ticket"])

    def load(self, saved: pa.RecordBatch, slots: Ints) -> None:
        """Take up exported tickets: what was at place i now belongs to slots[i]."""
        columns = [slots[ints_of(saved, PLACE)], ints_of(saved, "due"), ints_of(saved, "ticket")]
        self._open = np.concatenate([self._open, np.stack(columns, axis=1)])


def joined_settled(parts: list[Settled]) -> Settled:
    """Several lots as one."""
    tickets, outcomes = zip(*parts, strict=True)
    return np.concatenate(tickets), np.concatenate(outcomes)


def _all(tickets: Ints, outcome: Outcome) -> Settled:
    return tickets, np.full(len(tickets), outcome, np.uint8)
