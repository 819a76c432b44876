"""The order of stored rows by their clock: few sorted runs, as in a log-structured merge tree.

New rows are a run of their own; a run is merged with the one before it unless that is much larger. So late
rows find their place, what is over is at the beginning of each run, and so is what a range of clocks holds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.frozen import Frozen
from penstock.stages.rows.batch import Ints

GROWTH = 4
"""How many times longer than the run after it a run is at least, or they are merged."""
_LAST = 2**63 - 1


class ClockRun(Frozen):
    """Rows by their clock, as they came where it is equal."""

    clock: Ints
    slots: Ints

    def __len__(self) -> int:
        return len(self.slots)


class ClockRuns:
    """The live rows of one part of one side."""

    def __init__(self) -> None:
        self._runs: list[ClockRun] = []
        self._least, self._n_rows = _LAST, 0

    def __len__(self) -> int:
        return self._n_rows

    def __iter__(self) -> Iterator[ClockRun]:
        return iter(self._runs)

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return 16 * len(self)

    def add(self, clock: Ints, first_slot: int) -> None:
        """Note the clocks of new rows, which have the slots from the first on."""
        self._n_rows += len(clock)
        run = _sort_run(clock, np.arange(first_slot, first_slot + len(clock)))
        self._least = min(self._least, int(run.clock[0]))
        runs = self._runs
        runs.append(run)
        while len(runs) > 1 and len(runs[-2]) <= GROWTH * len(runs[-1]):
            before, last = runs[-2:]
            runs[-2:] = [_merge_runs(before, last)]

    def expire(self, horizon: int) -> Ints:
        """Remove the rows whose clock is before the horizon; return their slots, by run."""
        over = []
        if self._least < horizon:
            kept = []
            for run in self._runs:
                n_over = int(np.searchsorted(run.clock, horizon))
                if n_over:
                    over.append(run.slots[:n_over])
                if n_over < len(run):
                    kept.append(ClockRun(run.clock[n_over:], run.slots[n_over:]) if n_over else run)
            self._runs = kept
            self._least = min((int(run.clock[0]) for run in kept), default=_LAST)
        if not over:
            return _NONE
        slots = over[0] if len(over) == 1 else np.concatenate(over)
        self._n_rows -= len(slots)
        return slots

    def slots(self) -> Ints:
        """Return the slots of all rows, in order."""
        return np.sort(np.concatenate([_NONE, *(run.slots for run in self._runs)]))

    def renumber(self, slots: Ints) -> None:
        """Take note that these slots, all that there are and in order, are those from 0 on from now on."""
        self._runs = [ClockRun(np.array(run.clock), np.searchsorted(slots, run.slots)) for run in self._runs]


_NONE = np.empty(0, np.int64)


def _sort_run(clock: Ints, slots: Ints) -> ClockRun:
    if (clock[1:] >= clock[:-1]).all():
        return ClockRun(clock, slots)
    order = np.argsort(clock, kind="stable")
    return ClockRun(clock[order], slots[order])


def _merge_runs(before: ClockRun, last: ClockRun) -> ClockRun:
    clock, slots = (
        np.concatenate([before.clock, last.clock]),
        np.concatenate([before.slots, last.slots]),
    )
    if before.clock[-1] <= last.clock[0]:
        return ClockRun(clock, slots)
    return _sort_run(clock, slots)
