"""Rounds of source batches: when one is due, what it takes, and how many make a micro-batch."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from penstock.clock import Clock
from penstock.connect.protocol import SourcePosition
from penstock.engines.deadlines import Deadlines
from penstock.engines.ends import SourceReader
from penstock.engines.protocol import RunOptions
from penstock.engines.spark.driver.background import BackgroundSourceReader
from penstock.engines.spark.driver.read_ahead import ReadBatch
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
    positions: dict[str, SourcePosition]
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
        n_batches = self.positions[source].batches
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
    continue beside it. A round without rows is due when a deadline has passed. Where the run has a trigger,
    it is planned when Spark asks for the next micro-batch, and not before.

    deadlines  when the clock asks for a round; told of every round that is planned
    """

    def __init__(
        self, plan: Plan, readers: Sequence[SourceReader], clock: Clock, stopping: threading.Event
    ) -> None:
        self._readers, self._clock, self._stopping = readers, clock, stopping
        self._background = [reader for reader in readers if isinstance(reader, BackgroundSourceReader)]
        self._arrived = threading.Condition()
        self.deadlines = Deadlines(plan, clock.now())

    def begin(self) -> None:
        """Start to read the sources that may wait."""
        for reader in self._background:
            reader.begin(self._arrived)
            reader.stamp = self._clock.now

    @property
    def ready(self) -> bool:
        """Return whether every source has a batch that need not be waited for, or has ended."""
        return not any(reader.silent for reader in self._background)

    def wait(self) -> list[str] | None:
        """Wait until a round is due; return the sources that give a batch, or None if the run is to stop.

        No source gives a batch to a round that the clock asks for.
        """
        waited_since: float | None = None
        for reader in self._background:
            reader.hand_on(self._clock.now())
        while silent := [reader for reader in self._background if reader.silent]:
            if self._stopping.is_set():
                return None
            if self.deadlines.next is not None and self.deadlines.next <= self._clock.now():
                break
            if any(not reader.ended and reader not in silent for reader in self._readers):
                waited_since = waited_since or time.monotonic()
                if time.monotonic() - waited_since >= OTHERS_S:
                    break
            with self._arrived:
                self._arrived.wait(_CLOCK_POLL_S)
            for reader in silent:
                reader.hand_on(self._clock.now())
        return [reader.step.name for reader in self._readers if reader not in silent]
