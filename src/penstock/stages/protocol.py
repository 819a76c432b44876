"""What a stage is: an operator's work as a small state machine, the same for every engine.

Batch or watermark in, batches out; no threads and no I/O. Engines own both, carry batches to stages,
and keep the snapshots that stages make of themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from penstock.stages.batch import Batch


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
