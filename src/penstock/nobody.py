"""Who listens to a run that nobody watches: apart from `events.py`, which such a run need not load."""

from __future__ import annotations


def nobody(event: object) -> None:
    """The sink of events that nobody hears."""
