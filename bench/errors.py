"""What can go wrong in a benchmark: an unknown name, an unreadable result, a wrong answer."""

from __future__ import annotations

from penstock.errors import PenstockError


class BenchError(PenstockError):
    """A benchmark cannot be run, read or compared as asked."""


class WayFailed(BenchError):
    """A way raised while it was being timed."""


class WrongAnswer(WayFailed):
    """A way gave an answer that the oracle does not accept, so its time means nothing."""
