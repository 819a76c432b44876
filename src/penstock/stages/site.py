"""A stage's place: the step it works for, and what it reports to."""

from __future__ import annotations

from typing import Protocol

from penstock.clock import Clock
from penstock.errors import Where
from penstock.frozen import dataclass


class Accounts(Protocol):
    """What became of the rows of a step (`plan/accounts.py` has the whole of it)."""

    rows_in: int
    rows_out: int
    passed: int
    late: int
    late_by_window: dict[str, int]
    filtered: int
    no_window: int
    unfinished: int
    unmatched: int
    unrouted: int
    errors: int


@dataclass(frozen=True, slots=True)
class Site:
    """Where a stage stands.

    step      the step's name, for errors and for saved state
    where     the user's line that wrote it
    accounts  counted up as rows go by; one stage, one writer
    clock     for early results, and for the times of a source
    read      the output ports that somebody reads; None when all are read
    reasons   where one reason is left why rows failed, to be taken by whoever tells of them; or None
    """

    step: str
    where: Where | None
    accounts: Accounts
    clock: Clock
    read: frozenset[str] | None = None
    reasons: list[str] | None = None

    def is_read(self, port: str) -> bool:
        """Whether rows on this output port go anywhere."""
        return self.read is None or port in self.read
