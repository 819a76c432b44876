"""The failure of one row: not null, and not the end of the batch.

An expression that overflows, divides by zero or cannot cast fails its row only; the step's `on_error`
says what becomes of that row. Imports nothing of ours.
"""

from __future__ import annotations

_LONGEST = 1_000  # characters of an exception's text that an error repeats


class RowFailure(Exception):
    """Why one row has no value, in words for the user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def reason_of(cause: BaseException) -> str:
    """Why a row failed, in words: a user's exception by its type and text, however odd or long that is."""
    if isinstance(cause, RowFailure):
        return cause.reason
    try:
        text = str(cause)
    except Exception as worse:  # a user's __str__ must not hide that there was a failure
        text = f"(its text cannot be shown: {type(worse).__name__})"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text):,} characters)"
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__
