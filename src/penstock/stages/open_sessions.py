"""The open sessions of all slots, as arrays: where each begins and ends, and which are neighbours.

Sessions have dense numbers of their own, by which stores lay out what they keep of each. The walk that opens
and joins them is in `kernels/runs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.kernels.runs import NONE, place_runs
from penstock.stages.batch import Ints, Mask

SMALLEST = 16


class OpenSessions:
    """Sessions by number. Invariant: no two of one slot touch; unused numbers have slot NONE."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run
        self._newest = np.empty(0, np.int64)
        self._set(SMALLEST)

    def _set(self, capacity: int) -> None:
        """No sessions, and room for so many."""
        self.slots = np.full(capacity, NONE, np.int64)
        self.opens, self.closes = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
        self._older = np.full(capacity, NONE, np.int64)

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
        return np.flatnonzero(self.slots != NONE)

    def of_slots(self, slots: Ints) -> Ints:
        """The open sessions of some slots."""
        return np.flatnonzero((self.slots != NONE) & np.isin(self.slots, slots))

    def holds(self, slots: Ints) -> Mask:
        """Which slots have an open session."""
        known = slots < len(self._newest)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self._newest[slots[known]] != NONE
        return held

    def place(self, slots: Ints, starts: Ints, ends: Ints, *, must_touch: bool) -> tuple[Ints, Ints, Ints]:
        """Runs into sessions: (the session of each run, sessions that were joined, the sessions they are in).

        Runs come by slot and start and do not touch. With `must_touch` a run that touches no session gets
        NONE. The numbers of joined sessions are free again: what is kept of them must move at once.
        """
        self._reserve(slots, len(slots))
        free = np.flatnonzero(self.slots == NONE)[: len(slots)]
        homes = np.empty(len(slots), np.int64)
        lost, kept = np.empty(self.capacity, np.int64), np.empty(self.capacity, np.int64)
        backwards = [np.ascontiguousarray(each[::-1]) for each in (slots, starts, ends)]
        lists = (self._newest, self._older, self.opens, self.closes)
        written = (homes, lost, kept)
        n_lost = self._run(place_runs, *backwards, int(must_touch), *lists, free, *written, work=len(slots))
        homes = homes[::-1]
        found = homes != NONE
        self.slots[homes[found]] = slots[found]
        self.slots[lost[:n_lost]] = NONE
        return homes, lost[:n_lost], kept[:n_lost]

    def remove(self, gone: Ints) -> None:
        """Let sessions go; they are the oldest of their slots."""
        left = np.zeros(self.capacity + 1, np.bool_)  # the last is for NONE
        left[gone] = True
        self._older[left[self._older]] = NONE
        slots = self.slots[gone]
        self._newest[slots[left[self._newest[slots]]]] = NONE
        self.slots[gone] = NONE

    def packed(self) -> Ints | None:
        """Renumber the sessions when few of many numbers are used: the old number of each, or None."""
        old = self.used()
        if self.capacity <= SMALLEST or 4 * len(old) >= self.capacity:
            return None
        new = np.full(self.capacity + 1, NONE, np.int64)
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
        needed = int(np.count_nonzero(self.slots != NONE)) + n_new
        if needed > self.capacity:
            capacity = _room(max(needed, 2 * self.capacity))
            self.slots, self._older = _longer(self.slots, capacity), _longer(self._older, capacity)
            self.opens, self.closes = _longer(self.opens, capacity), _longer(self.closes, capacity)

    def _trim(self) -> None:
        """No lists for slots beyond the last that has one."""
        held = np.flatnonzero(self._newest != NONE)
        self._newest = self._newest[: int(held[-1]) + 1 if len(held) else 0].copy()


def _longer(array: Ints, length: int) -> Ints:
    return np.concatenate([array, np.full(length - len(array), NONE, np.int64)])


def _room(needed: int) -> int:
    """The capacity for so many: a power of two."""
    return max(SMALLEST, 1 << (needed - 1).bit_length()) if needed else SMALLEST
