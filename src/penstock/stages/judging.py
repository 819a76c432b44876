"""What becomes of the rows of a window step: every kind of window is asked, and every row is accounted for.

A row passes when some kind takes it in; it is late when none does and one says late; otherwise it lies in no
window. Count windows are asked last: they settle the rows that nobody else has taken, and only when they
know (`settling.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.frozen import dataclass
from penstock.operators.windows import ResolvedWindows
from penstock.stages.batch import Ints, Mask
from penstock.stages.settling import Settling
from penstock.stages.shelf import Shelf
from penstock.stages.site import Accounts
from penstock.stages.store import ENDED, Arriving, Fate, Fates

Buckets = Callable[[Ints], npt.NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which rows are late, and which no kind has taken, late or not."""

    late: Mask
    lost: Mask


class Judging:
    """Asks the shelves of a step and keeps its accounts."""

    def __init__(self, resolved: ResolvedWindows, shelves: Sequence[Shelf], accounts: Accounts) -> None:
        self._resolved, self._accounts = resolved, accounts
        self._sure = [shelf for shelf in shelves if not shelf.counted]
        self._counted = [shelf for shelf in shelves if shelf.counted]
        self.settling = Settling(accounts, sum(len(shelf.kinds) for shelf in self._counted))

    def take(self, arriving: Arriving, watermark: int, buckets: Buckets) -> Verdict | None:
        """Rows into windows; None when every kind has taken every row. `buckets` gives those of slots."""
        answers = [self._asked(shelf, arriving, watermark) for shelf in self._sure]
        n = len(arriving.slots)
        if self._sure and not self._counted and all(answer is None for answer in answers):
            self._accounts.passed += n  # the common case by far
            return None
        fates = np.full((len(self._resolved.windows), n), Fate.TAKEN, np.uint8)
        for shelf, answer in zip(self._sure, answers, strict=True):
            if answer is not None:
                fates[shelf.kinds] = answer
        if self._counted:
            self._take_counted(arriving, watermark, fates, buckets)
        return self._verdict(fates)

    def _asked(self, shelf: Shelf, arriving: Arriving, watermark: int) -> Fates | None:
        judged = shelf.take(arriving, watermark)
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

    def _take_counted(self, arriving: Arriving, watermark: int, fates: Fates, buckets: Buckets) -> None:
        elsewhere = (fates[self._kinds(self._sure)] == Fate.TAKEN).any(axis=0)
        homes = np.zeros(len(elsewhere), np.int64)
        if self.settling.numbered:
            homes = buckets(arriving.slots).astype(np.int64)
        tickets = self.settling.tickets(elsewhere, homes)
        for shelf in self._counted:
            answer = self._asked(shelf, replace(arriving, tickets=tickets), watermark)
            fates[shelf.kinds] = Fate.TAKEN if answer is None else answer
        self.settling.taken(tickets, (fates[self._kinds(self._counted)] == Fate.TAKEN).sum(axis=0))

    def _verdict(self, fates: Fates) -> Verdict:
        taken = (fates == Fate.TAKEN).any(axis=0)
        late = ~taken & (fates == Fate.LATE).any(axis=0)
        passed = (fates[self._kinds(self._sure)] == Fate.TAKEN).any(axis=0)
        self._accounts.passed += int(passed.sum())
        self._accounts.late += int(late.sum())
        self._accounts.no_window += int((~taken & ~late).sum())
        return Verdict(np.asarray(late), np.asarray(~taken))

    def _kinds(self, shelves: Sequence[Shelf]) -> Ints:
        return np.concatenate([np.empty(0, np.int64), *(shelf.kinds for shelf in shelves)])
