"""The open sessions of all slots, as arrays: where each begins and ends, and which are neighbours.

Sessions have dense numbers of their own, by which stores lay out what they keep of each. The walk that opens
and joins them is in `kernels/windows/sessions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.windows.accumulate import RULES, Cells, Rule
from penstock.kernels.windows.sessions import NO_SESSION, assign_sessions, build_merge_loop
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.folds import CombineFailure, catch_combine
from penstock.stages.window.inputs import AccumulatorUpdate, Run, to_counts
from penstock.stages.window.store import InputRows

SMALLEST = 16


class OpenSessions:
    """Sessions by number. Invariant: no two of one slot touch; unused numbers have slot NONE."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run
        self._newest = np.empty(0, np.int64)
        self._set(SMALLEST)

    def _set(self, capacity: int) -> None:
        """No sessions, and room for so many."""
        self.slots = np.full(capacity, NO_SESSION, np.int64)
        self.opens, self.closes = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
        self._older = np.full(capacity, NO_SESSION, np.int64)

    @property
    def capacity(self) -> int:
        """Session numbers are below it."""
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._newest.nbytes + 4 * self.slots.nbytes

    def used(self) -> Ints:
        """The sessions that are open, in order of number."""
        return np.flatnonzero(self.slots != NO_SESSION)

    def of_slots(self, slots: Ints) -> Ints:
        """The open sessions of some slots."""
        return np.flatnonzero((self.slots != NO_SESSION) & np.isin(self.slots, slots))

    def has_state(self, slots: Ints) -> Mask:
        """Which slots have an open session."""
        known = slots < len(self._newest)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self._newest[slots[known]] != NO_SESSION
        return held

    def place(self, slots: Ints, starts: Ints, ends: Ints, *, must_touch: bool) -> tuple[Ints, Ints, Ints]:
        """Runs into sessions: (the session of each run, sessions that were joined, the sessions they are in).

        Runs come by slot and start and do not touch. With `must_touch` a run that touches no session gets
        NONE. The numbers of joined sessions are free again: what is kept of them must move at once.
        """
        self._reserve(slots, len(slots))
        free = np.flatnonzero(self.slots == NO_SESSION)[: len(slots)]
        homes = np.empty(len(slots), np.int64)
        lost, kept = np.empty(self.capacity, np.int64), np.empty(self.capacity, np.int64)
        backwards = [np.ascontiguousarray(each[::-1]) for each in (slots, starts, ends)]
        lists = (self._newest, self._older, self.opens, self.closes)
        written = (homes, lost, kept)
        n_lost = self._run(
            assign_sessions, *backwards, int(must_touch), *lists, free, *written, work=len(slots)
        )
        homes = homes[::-1]
        found = homes != NO_SESSION
        self.slots[homes[found]] = slots[found]
        self.slots[lost[:n_lost]] = NO_SESSION
        return homes, lost[:n_lost], kept[:n_lost]

    def remove(self, gone: Ints) -> None:
        """Let sessions go; they are the oldest of their slots."""
        left = np.zeros(self.capacity + 1, np.bool_)  # the last is for NONE
        left[gone] = True
        self._older[left[self._older]] = NO_SESSION
        slots = self.slots[gone]
        self._newest[slots[left[self._newest[slots]]]] = NO_SESSION
        self.slots[gone] = NO_SESSION

    def packed(self) -> Ints | None:
        """Renumber the sessions when few of many numbers are used: the old number of each, or None."""
        old = self.used()
        if self.capacity <= SMALLEST or 4 * len(old) >= self.capacity:
            return None
        new = np.full(self.capacity + 1, NO_SESSION, np.int64)
        new[old] = np.arange(len(old))
        slots, opens, closes, older = (
            each[old] for each in (self.slots, self.opens, self.closes, self._older)
        )
        self._set(_room(2 * len(old)))
        n = len(old)
        self.slots[:n], self.opens[:n], self.closes[:n], self._older[:n] = slots, opens, closes, new[older]
        self._newest = new[self._newest]
        self._trim()
        return old

    def _reserve(self, slots: Ints, n_new: int) -> None:
        """Have a list for each slot and numbers for so many new sessions."""
        n_slots = int(slots.max(initial=-1)) + 1
        if n_slots > len(self._newest):
            self._newest = _longer(self._newest, max(n_slots, 2 * len(self._newest)))
        needed = int(np.count_nonzero(self.slots != NO_SESSION)) + n_new
        if needed > self.capacity:
            capacity = _room(max(needed, 2 * self.capacity))
            self.slots, self._older = _longer(self.slots, capacity), _longer(self._older, capacity)
            self.opens, self.closes = _longer(self.opens, capacity), _longer(self.closes, capacity)

    def _trim(self) -> None:
        """No lists for slots beyond the last that has one."""
        held = np.flatnonzero(self._newest != NO_SESSION)
        self._newest = self._newest[: int(held[-1]) + 1 if len(held) else 0].copy()


def _longer(array: Ints, length: int) -> Ints:
    return np.concatenate([array, np.full(length - len(array), NO_SESSION, np.int64)])


def _room(needed: int) -> int:
    """The capacity for so many: a power of two."""
    return max(SMALLEST, 1 << (needed - 1).bit_length()) if needed else SMALLEST


# Registers of numbered things: a cell per register and number, for stores that do not cut time in slices.


class SessionAccumulators:
    """The cells of some registers. Invariant: cells that are not in use are neutral."""

    def __init__(self, registers: Sequence[WindowAccumulator], run: Run) -> None:
        self._asked, self._run = tuple(registers), run
        # COUNT is kept as the number of nulls, so the rows are counted in any case.
        others = dict.fromkeys(
            register for register in registers if register.kind is not AccumulatorKind.ROWS
        )
        self._kept = (WindowAccumulator(AccumulatorKind.ROWS), *others)
        self._cells: list[Cells] = [register.rule.neutral_cells(0) for register in self._kept]

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(cells.nbytes for cells in self._cells)

    def fit(self, capacity: int) -> None:
        """Have cells for the numbers below `capacity`."""
        more = capacity - len(self._cells[0])
        if more > 0:
            pairs = zip(self._kept, self._cells, strict=True)
            self._cells = [np.concatenate([cells, each.rule.neutral_cells(more)]) for each, cells in pairs]

    def fill(self, numbers: Ints, rows: InputRows) -> None:
        """Add each row to the cells of its number."""
        order = rows.order[0] if rows.order else np.zeros(len(rows.slots), np.int64)
        filling = AccumulatorUpdate(self._run, np.ascontiguousarray(numbers), rows.times, order, rows.values)
        for register, cells in zip(self._kept, self._cells, strict=True):
            filling.fill(register, cells)

    def join(self, lost: Ints, kept: Ints) -> None:
        """Put the cells of lost numbers into those they were joined to."""
        if len(lost):
            for register, cells in zip(self._kept, self._cells, strict=True):
                self._join(register.rule, cells, lost, kept)
            self.clear(lost)

    def _join(self, rule: Rule, cells: Cells, lost: Ints, kept: Ints) -> None:
        """Join the cells of one register; where a user's combine fails, it is done again pair by pair."""
        before = None if rule in RULES else (cells[lost], cells[kept])
        at = np.zeros(1, np.int64)
        try:
            with catch_combine(rule, at):
                self._run(build_merge_loop(rule), kept, lost, cells)
        except CombineFailure:
            assert before is not None, "only users' rules fail"
            cells[lost], cells[kept] = before
            with catch_combine(rule, at):
                for at[0] in range(len(lost)):
                    self._run(build_merge_loop(rule), kept[at], lost[at], cells)
            raise

    def read(self, numbers: Ints) -> tuple[Cells, ...]:
        """The cells of the registers that were asked for."""
        held = dict(zip(self._kept, self._cells, strict=True))
        n_rows = self._cells[0][numbers]
        return tuple(to_counts(register, held[register][numbers], n_rows) for register in self._asked)

    def clear(self, numbers: Ints) -> None:
        """These numbers are not in use any more."""
        for register, cells in zip(self._kept, self._cells, strict=True):
            cells[numbers] = register.rule.neutral

    def pack(self, old: Ints, capacity: int) -> None:
        """What had the number old[i] now has the number i."""
        pairs = zip(self._kept, self._cells, strict=True)
        self._cells = [
            np.concatenate([cells[old], each.rule.neutral_cells(capacity - len(old))])
            for each, cells in pairs
        ]

    def saved(self, numbers: Ints) -> dict[str, pa.Array]:
        """The cells of some numbers as Arrow columns."""
        return {
            f"{place}.{part}": pa.array(cells[numbers, part], from_pandas=False)
            for place, cells in enumerate(self._cells)
            for part in range(cells.shape[1])
        }

    def load(self, saved: pa.RecordBatch, numbers: Ints) -> None:
        """Take up saved cells, in their order, under other numbers."""
        for place, cells in enumerate(self._cells):
            for part in range(cells.shape[1]):
                cells[numbers, part] = saved.column(f"{place}.{part}").to_numpy()
