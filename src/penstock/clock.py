"""Clocks: an interface, so that tests and simulations can control time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time in microseconds since 1970, UTC."""

    def now(self) -> int:
        """Return the current time."""


class WallClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return the current time."""
        return time.time_ns() // 1_000


class HeldClock:
    """A clock that can be held, so that it stands still.

    us  what it says then; None while it goes
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.us: int | None = None

    def now(self) -> int:
        """Return the time at which it is held, or the current time."""
        return self._clock.now() if self.us is None else self.us


class ManualClock:
    """A clock that stands still until it is moved: for tests.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    >>> clock.now()
    1500
    """

    def __init__(self, now: int = 0) -> None:
        self._now = now

    def now(self) -> int:
        """Return the current time."""
        return self._now

    def advance(self, us: int) -> None:
        """Move the clock forward by microseconds, or back: engines must cope with that too."""
        self._now += us
