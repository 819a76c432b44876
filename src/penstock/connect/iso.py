"""Times and dates as text: ISO 8601, the same in csv and jsonl."""

from __future__ import annotations

from datetime import date, datetime

from penstock.expr.failure import RowFailure


def parse_time(text: str) -> datetime:
    """A moment; digits beyond microseconds are cut off, which floors it."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise RowFailure(f"{text!r:.80} is not an ISO 8601 time such as 2026-01-31T12:00:00Z") from None


def parse_date(text: str) -> date:
    """A day."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise RowFailure(f"{text!r:.80} is not an ISO 8601 date such as 2026-01-31") from None
