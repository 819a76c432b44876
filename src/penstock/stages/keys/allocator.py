"""Which slots are in use: dense numbers from 0, handed out, given back and handed out again.

The free slots lie on a stack, lowest on top at first, so slots stay dense while keys come and go. Kernels
pop from the stack themselves and report how many are left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MIN_SLOTS = 64  # slots to begin with; capacities are powers of two
WORTH_TRIMMING = 1024


class SlotAllocator:
    """Slots below `capacity`, some live, the others free."""

    def __init__(self, capacity: int = MIN_SLOTS) -> None:
        self.capacity = self.n_free = capacity
        self.stack: Ints = np.arange(capacity - 1, -1, -1, dtype=np.int64)
        self._live = np.zeros(capacity, np.bool_)
        self._n_released = 0  # since the last trim

    @property
    def n_live(self) -> int:
        """Return the number of slots are in use."""
        return self.capacity - self.n_free

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self.stack.nbytes + self._live.nbytes

    def live(self) -> Ints:
        """Return the slots in use, in order."""
        return np.flatnonzero(self._live)

    def take(self) -> int:
        """Return one free slot; there must be one."""
        self.n_free -= 1
        slot = int(self.stack[self.n_free])
        self._live[slot] = True
        return slot

    def set_free_count(self, n_free: int) -> None:
        """Someone took slots off the stack and left `n_free`."""
        assert n_free >= 0, "a slot was taken that was not there"
        self._live[self.stack[n_free : self.n_free]] = True
        self.n_free = n_free

    def release(self, slots: Ints) -> None:
        """Free some live slots, each named once."""
        assert self._live[slots].all(), "a slot was freed that is not in use"
        self._live[slots] = False
        after = self.n_free + len(slots)
        assert np.count_nonzero(self._live) == self.capacity - after, "a slot was freed twice at once"
        self.stack[self.n_free : after] = slots[::-1]
        self.n_free = after
        self._n_released += len(slots)

    def grow(self) -> None:
        """Twice as many slots; the new ones are handed out after the free ones of before."""
        old = self.capacity
        self.capacity = 2 * old
        fresh = np.arange(2 * old - 1, old - 1, -1, dtype=np.int64)
        used = np.empty(old - self.n_free, dtype=np.int64)  # room for slots to come back
        self.stack = np.concatenate([fresh, self.stack[: self.n_free], used])
        self.n_free += old
        self._live = np.concatenate([self._live, np.zeros(old, dtype=np.bool_)])

    def trim(self) -> bool:
        """Give memory back when less than a quarter is in use and nothing high; whether it did.

        Looks only after half the capacity was given back since last time, so it costs little per slot.
        """
        worth = self.capacity > WORTH_TRIMMING and self.n_live < self.capacity // 4
        if not worth or self._n_released < self.capacity // 2:
            return False
        self._n_released = 0
        live = self.live()
        highest = int(live[-1]) if len(live) else 0
        capacity = max(MIN_SLOTS, 1 << (2 * highest).bit_length())
        smaller = capacity < self.capacity
        self._settle(min(capacity, self.capacity))
        return smaller

    def _settle(self, capacity: int) -> None:
        """Keep `capacity` slots, and let the lowest free ones be next: so high ones fall empty in time."""
        self.capacity = capacity
        self._live = self._live[:capacity].copy()
        free = np.flatnonzero(~self._live)[::-1]
        self.n_free = len(free)
        self.stack = np.zeros(capacity, dtype=np.int64)
        self.stack[: self.n_free] = free
