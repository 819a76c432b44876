"""What a run tells: its answer, which is looked at outside the clock, and notes beside its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Told:
    """An answer still to be read, and notes by name (`Way.notes`)."""

    answer: Callable[[], Any]
    notes: Mapping[str, float] = field(default_factory=dict)


class Data(Protocol):
    """The input of a case."""

    def right(self) -> Any:
        """Return the right answer."""


def right(data: Data) -> Any:
    """Return the right answer of a case."""
    return data.right()


def wrong(expected: Any, told: Told) -> str | None:
    """Return what is wrong with an answer, or None."""
    found = told.answer()
    if found == expected:
        return None
    return f"expected {_short(expected)}, got {_short(found)}"


def notes_of(told: Told) -> Mapping[str, float]:
    """Return the notes of a run."""
    return told.notes


def _short(value: Any, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
