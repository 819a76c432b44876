"""What a stage is: an operator's work as a small state machine, the same for every engine.

Batch or watermark in, batches out; no threads and no I/O. Engines own both, carry batches to stages,
and keep the snapshots that stages make of themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from penstock.clock import Clock
from penstock.errors import Where
from penstock.frozen import dataclass
from penstock.stages.rows.batch import Batch


class Stage(Protocol):
    """One replica of one operator."""

    def on_batch(self, batch: Batch, watermark: float) -> Iterator[tuple[str, Batch]]:
        """Take rows in, judged by the watermark; give (port, rows) out."""

    def on_watermark(self, watermark: float) -> Iterator[tuple[str, Batch]]:
        """Let go what the watermark has passed, as (port, rows)."""

    def drain(self) -> Iterator[tuple[str, Batch]]:
        """The stream has ended: let go everything, as (port, rows)."""

    def snapshot(self) -> Mapping[int, bytes]:
        """The state per bucket, only what changed since the last snapshot; no pickle."""

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Go back to a snapshot, also one made by another number of replicas."""


# A stage's place: the step it works for, and what it reports to.


class Accounts(Protocol):
    """What became of the rows of a step (`accounts.py` has the whole of it)."""

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
