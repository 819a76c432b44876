"""The failure of one row: not null, and not the end of the batch.

An expression that overflows, divides by zero or cannot cast fails its row only; the step's `on_error`
says what becomes of that row. Imports nothing of ours.
"""

from __future__ import annotations


class RowFailure(Exception):
    """Why one row has no value, in words for the user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
