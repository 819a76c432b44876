"""Rounds of source batches: when one is due, what it takes, and how many make a micro-batch."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

from penstock.clock import Clock
from penstock.engines.ends import SourceReader
from penstock.engines.protocol import RunOptions
from penstock.engines.spark.driver.read_ahead import ReadBatch
from penstock.engines.spark.driver.sources import BackgroundSourceReader
from penstock.engines.spark.file_splits import RemoteBatch, UnreadBatch
from penstock.frozen import dataclass
from penstock.options import SparkOptions
from penstock.plan.plan import Plan

MAX_ROUNDS = 512
MAX_ROWS = 1_000_000
"""A micro-batch ends after so many rounds, or so many rows."""
_CLOCK_POLL_S = 0.02
"""Seconds between checks of the clock."""
OTHERS_S = 0.1
"""Seconds that rows of one source wait for those of another."""


@dataclass(slots=True)
class SourceRound:
    """The batches of a round, before anything is known of their rows.

    number     of the round
    now        what the clock said
    batches    source -> its batch
    positions  source -> the number of batches taken from it, and of the rows in them
    ended      the sources that have no more batches
    last       it closes everything
    idle       the idle sources, if it is known already
    """

    number: int
    now: int
    batches: dict[str, Any]
    positions: dict[str, tuple[int, int]]
    ended: frozenset[str]
    last: bool = False
    idle: Sequence[str] | None = None

    @property
    def size(self) -> Size:
        """Return how much input it is; rows are counted by how much there is to do for them."""
        unread = [batch for batch in self.batches.values() if isinstance(batch, RemoteBatch | UnreadBatch)]
        n_read = sum(
            batch.n_rows if isinstance(batch, ReadBatch) else batch.num_rows
            for batch in self.batches.values()
            if not isinstance(batch, RemoteBatch | UnreadBatch)
        )
        n_rows, n_bytes = sum(batch.load for batch in unread), sum(batch.n_bytes for batch in unread)
        return 1, n_read + n_rows, n_bytes, sum(len(batch.files) for batch in unread)

    def batch_number(self, source: str) -> int:
        """Return the number of a source's batch; a batch that was pushed by hand has the round's."""
        n_batches, _ = self.positions[source]
        batch = self.batches[source]
        if isinstance(batch, ReadBatch):
            return batch.number
        return n_batches - 1 if n_batches else self.number


Size = tuple[int, ...]
"""An amount of input: rounds, rows, bytes of files, files."""


def max_size(options: RunOptions) -> Size:
    """Return how much input a micro-batch takes at most, but for the round in which it gets there."""
    asked = options.engine if isinstance(options.engine, SparkOptions) else SparkOptions()
    return (
        MAX_ROUNDS,
        asked.max_rows_per_batch or MAX_ROWS,
        asked.max_bytes_per_batch or sys.maxsize,
        asked.max_files_per_batch or sys.maxsize,
    )


class SourcePolling:
    """Decides when a round is due, and which sources give a batch to it. `stopping` ends the wait.

    A round takes a batch of every source. One that is silent is waited for, but not for ever: the others
    continue beside it. Where idle sources or early firings are asked for, a round without rows is due when
    the clock says so, once for every such moment.
    """

    def __init__(
        self,
        plan: Plan,
        readers: Sequence[SourceReader],
        clock: Clock,
        stopping: threading.Event,
        early: Collection[int],
    ) -> None:
        self._readers, self._clock, self._stopping = readers, clock, stopping
        self._background = [reader for reader in readers if isinstance(reader, BackgroundSourceReader)]
        self._arrived = threading.Condition()
        self._early = min(early, default=None)
        times = {step.name: step.as_source.resolve() for step in plan.sources}
        self._idle = {name: at.idle for name, at in times.items() if at is not None and at.idle is not None}
        self._deadlines: dict[str, int] = {}

    def begin(self) -> None:
        """Start to read the sources that do not end by themselves."""
        for reader in self._background:
            reader.begin(self._arrived)
        self.end_round(self._clock.now(), self._idle, ())

    def end_round(self, now: int, batches: Collection[str], idle: Collection[str]) -> None:
        """Set the deadlines for the next round, after one with batches of these sources."""
        self._deadlines = {name: at for name, at in self._deadlines.items() if at > now}
        if batches and self._early is not None:
            self._deadlines["early results"] = now + self._early
        for name, after in self._idle.items():
            if name in batches:
                self._deadlines[name] = now + after
            elif name in idle:
                self._deadlines.pop(name, None)

    @property
    def ready(self) -> bool:
        """Return whether every source has a batch that need not be waited for, or has ended."""
        return not any(reader.silent for reader in self._background)

    def wait(self) -> list[str] | None:
        """Wait until a round is due; return the sources that give a batch, or None if the run is to stop.

        No source gives a batch to a round that the clock asks for.
        """
        waited_since: float | None = None
        while silent := [reader for reader in self._background if reader.silent]:
            if self._stopping.is_set():
                return None
            if any(at <= self._clock.now() for at in self._deadlines.values()):
                break
            if any(not reader.ended and reader not in silent for reader in self._readers):
                waited_since = waited_since or time.monotonic()
                if time.monotonic() - waited_since >= OTHERS_S:
                    break
            with self._arrived:
                self._arrived.wait(_CLOCK_POLL_S)
        return [reader.step.name for reader in self._readers if reader not in silent]
