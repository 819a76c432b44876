"""The open sessions of all slots, as arrays: where each begins and ends, its neighbours, and its cells.

Sessions have dense numbers of their own, by which a store lays out what it keeps of each. The walk that opens
and joins them is in `kernels/windows/sessions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.windows.accumulate import RULES, Cells, Rule
from penstock.kernels.windows.sessions import NO_SESSION, assign_sessions, build_merge_loop
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.window.accumulators import (
    StoredAccumulators,
    WindowAccumulator,
    cells_to_columns,
    load_cells,
)
from penstock.stages.window.folds import CombineFailure, catch_combine
from penstock.stages.window.inputs import AccumulatorUpdate, Run
from penstock.stages.window.store import InputRows

MIN_CAPACITY = 16


class OpenSessions:
    """Sessions by number.

    slots    int64[capacity]  NO_SESSION for unused numbers
    opens    int64[capacity]  bounds in microseconds
    closes   int64[capacity]
    changed  bool[capacity]   whether rows came since the session last fired early

    Invariant: no two sessions of one slot touch; those of a slot are linked from newest to oldest.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._newest = np.empty(0, np.int64)  # by slot
        self._allocate(MIN_CAPACITY)

    def _allocate(self, capacity: int) -> None:
        """Begin with no sessions and room for this many."""
        self.slots = np.full(capacity, NO_SESSION, np.int64)
        self.opens, self.closes = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
        self.changed = np.zeros(capacity, np.bool_)
        self._older = np.full(capacity, NO_SESSION, np.int64)

    @property
    def capacity(self) -> int:
        """Session numbers are below it."""
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._newest.nbytes + 4 * self.slots.nbytes + self.changed.nbytes

    def numbers(self) -> Ints:
        """Return the numbers of the open sessions, in order."""
        return np.flatnonzero(self.slots != NO_SESSION)

    def of_slots(self, slots: Ints) -> Ints:
        """Return the open sessions of some slots."""
        return np.flatnonzero((self.slots != NO_SESSION) & np.isin(self.slots, slots))

    def has_state(self, slots: Ints) -> Mask:
        """Return which slots have an open session."""
        known = slots < len(self._newest)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self._newest[slots[known]] != NO_SESSION
        return held

    def assign(self, slots: Ints, starts: Ints, ends: Ints, *, must_touch: bool) -> tuple[Ints, Ints, Ints]:
        """Assign runs of rows to sessions, opening and merging them.

        Returns the session of each run, the sessions that were merged into others, and those others. Runs
        come by slot and start and do not touch. With `must_touch` a run that touches no session gets
        NO_SESSION. The numbers of merged sessions are free again: what is kept of them must move at once.
        """
        self._reserve(slots, len(slots))
        free = np.flatnonzero(self.slots == NO_SESSION)[: len(slots)]
        sessions = np.empty(len(slots), np.int64)
        merged, into = np.empty(self.capacity, np.int64), np.empty(self.capacity, np.int64)
        # The loop walks each slot's list from the newest session on, so runs come in reverse.
        runs = [np.ascontiguousarray(column[::-1]) for column in (slots, starts, ends)]
        lists = (self._newest, self._older, self.opens, self.closes)
        written = (sessions, merged, into)
        n_merged = self._run(assign_sessions, *runs, int(must_touch), *lists, free, *written, work=len(slots))
        sessions = sessions[::-1]
        assigned = sessions != NO_SESSION
        self.slots[sessions[assigned]] = slots[assigned]
        self.slots[merged[:n_merged]] = NO_SESSION
        self.changed[merged[:n_merged]] = False
        return sessions, merged[:n_merged], into[:n_merged]

    def remove(self, sessions: Ints) -> None:
        """Remove sessions, which are the oldest of their slots."""
        gone = np.zeros(self.capacity + 1, np.bool_)  # the last is for NO_SESSION
        gone[sessions] = True
        self._older[gone[self._older]] = NO_SESSION
        slots = self.slots[sessions]
        self._newest[slots[gone[self._newest[slots]]]] = NO_SESSION
        self.slots[sessions] = NO_SESSION
        self.changed[sessions] = False

    def pack(self) -> Ints | None:
        """Renumber the sessions when few of many numbers are used: the old number of each, or None."""
        old = self.numbers()
        if self.capacity <= MIN_CAPACITY or 4 * len(old) >= self.capacity:
            return None
        new = np.full(self.capacity + 1, NO_SESSION, np.int64)
        new[old] = np.arange(len(old))
        slots, opens, closes, changed, older = (
            column[old] for column in (self.slots, self.opens, self.closes, self.changed, self._older)
        )
        self._allocate(_round_capacity(2 * len(old)))
        n = len(old)
        self.slots[:n], self.opens[:n], self.closes[:n], self.changed[:n] = slots, opens, closes, changed
        self._older[:n] = new[older]
        self._newest = new[self._newest]
        held = np.flatnonzero(self._newest != NO_SESSION)
        self._newest = self._newest[: int(held[-1]) + 1 if len(held) else 0].copy()
        return old

    def _reserve(self, slots: Ints, n_new: int) -> None:
        """Have a list for each slot and numbers for this many new sessions."""
        n_slots = int(slots.max(initial=-1)) + 1
        if n_slots > len(self._newest):
            self._newest = _extend(self._newest, max(n_slots, 2 * len(self._newest)))
        needed = int(np.count_nonzero(self.slots != NO_SESSION)) + n_new
        if needed > self.capacity:
            capacity = _round_capacity(max(needed, 2 * self.capacity))
            self.changed = np.append(self.changed, np.zeros(capacity - self.capacity, np.bool_))
            self.opens, self.closes = _extend(self.opens, capacity), _extend(self.closes, capacity)
            self.slots, self._older = _extend(self.slots, capacity), _extend(self._older, capacity)


def _extend(array: Ints, length: int) -> Ints:
    return np.concatenate([array, np.full(length - len(array), NO_SESSION, np.int64)])


def _round_capacity(needed: int) -> int:
    """Return the next power of two."""
    return max(MIN_CAPACITY, 1 << (needed - 1).bit_length()) if needed else MIN_CAPACITY


class SessionAccumulators:
    """The cells of some accumulators, by the number of the session. Invariant: unused cells are neutral."""

    def __init__(self, accumulators: Sequence[WindowAccumulator], run: Run) -> None:
        self._run, self._accumulators = run, StoredAccumulators(accumulators)
        self._cells: list[Cells] = [rule.neutral_cells(0) for rule in self._accumulators.rules]

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(cells.nbytes for cells in self._cells)

    def reserve(self, capacity: int) -> None:
        """Have cells for the numbers below `capacity`."""
        self.pack(np.arange(len(self._cells[0])), capacity)

    def update(self, numbers: Ints, rows: InputRows) -> None:
        """Add each row to the cells of its number."""
        order = rows.order[0] if rows.order else np.zeros(len(rows.slots), np.int64)
        update = AccumulatorUpdate(self._run, np.ascontiguousarray(numbers), rows.times, order, rows.values)
        for accumulator, cells in zip(self._accumulators.stored, self._cells, strict=True):
            update.apply(accumulator, cells)

    def merge(self, sources: Ints, into: Ints) -> None:
        """Merge the cells of some numbers into those of others."""
        if len(sources):
            for rule, cells in zip(self._accumulators.rules, self._cells, strict=True):
                self._merge(rule, cells, sources, into)
            self.clear(sources)

    def _merge(self, rule: Rule, cells: Cells, sources: Ints, into: Ints) -> None:
        """Merge the cells of one accumulator; where a user's combine fails, again pair by pair to find it."""
        before = None if rule in RULES else (cells[sources], cells[into])
        at = np.zeros(1, np.int64)
        try:
            with catch_combine(rule, at):
                self._run(build_merge_loop(rule), into, sources, cells)
        except CombineFailure:
            assert before is not None, "only users' rules fail"
            cells[sources], cells[into] = before
            with catch_combine(rule, at):
                for at[0] in range(len(sources)):
                    self._run(build_merge_loop(rule), into[at], sources[at], cells)
            raise

    def read(self, numbers: Ints) -> tuple[Cells, ...]:
        """Return the cells of the requested accumulators."""
        return self._accumulators.results([cells[numbers] for cells in self._cells])

    def clear(self, numbers: Ints) -> None:
        """Make the cells of numbers neutral that are not in use any more."""
        for rule, cells in zip(self._accumulators.rules, self._cells, strict=True):
            cells[numbers] = rule.neutral

    def pack(self, old: Ints, capacity: int) -> None:
        """Give what had the number old[i] the number i."""
        more = capacity - len(old)
        if more > 0 or len(old) < len(self._cells[0]):
            pairs = zip(self._accumulators.rules, self._cells, strict=True)
            self._cells = [
                np.concatenate([cells[old], rule.neutral_cells(max(more, 0))]) for rule, cells in pairs
            ]

    def export(self, numbers: Ints) -> dict[str, pa.Array]:
        """Return the cells of some numbers as Arrow columns."""
        return cells_to_columns(self._cells, numbers)

    def load(self, saved: pa.RecordBatch, numbers: Ints) -> None:
        """Take over saved cells, in their order, under other numbers."""
        load_cells(saved, self._cells, numbers)
