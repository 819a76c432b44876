"""The events of a run, as typed data: log, metrics, progress line and tests read one stream of them.

Counted per batch, never per row, and free when nobody listens. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, field

from penstock.frozen import Frozen


class Event(Frozen):
    """Something that happened, and when (microseconds since 1970 by the run's clock)."""

    at: int

    def to_dict(self) -> dict[str, object]:
        """Return the event as plain data, with its kind: one JSON object per line makes a log."""
        return {"event": type(self).__name__, **asdict(self)}


class RunStarted(Event):
    """A run began."""

    graph: str
    engine: str
    steps: tuple[str, ...]


class BatchDone(Event):
    """A round of source batches was processed by all steps.

    parts_us    where the time went, where the engine measures it; rounds processed together share theirs
    lag_us      source -> how far its watermark trails the clock
    latency_us  sink -> time from reading the batch until its rows were committed, where that is measured
    received    bytes that the driver was sent, on Spark; rounds processed together share theirs
    """

    batch: int
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    took_us: int
    parts_us: Mapping[str, int] = field(default_factory=dict)
    lag_us: Mapping[str, int] = field(default_factory=dict)
    latency_us: Mapping[str, int] = field(default_factory=dict)
    received: int = 0


class WatermarkMoved(Event):
    """A source's watermark advanced; None means the end of the stream."""

    step: str
    watermark: int | None


class RowsLate(Event):
    """Rows arrived after all their windows had closed."""

    step: str
    rows: int


class RowsErrored(Event):
    """Rows were skipped or dead-lettered; one reason of them as an example."""

    step: str
    rows: int
    policy: str
    example: str


class StateSaved(Event):
    """A consistent snapshot was committed.

    nbytes       size of the new state, as written
    kept_nbytes  size of all saved state, before compression
    kept_rows    rows of all state: one for each slice, session or state of a key, and each waiting row
    """

    batch: int
    nbytes: int
    kept_nbytes: int = 0
    kept_rows: int = 0


class ScaleDecided(Event):
    """Threads or replicas were changed, and why."""

    step: str
    replicas_before: int
    replicas_after: int
    reason: str


class StepStalled(Event):
    """A step has been processing one batch for a long time; the run continues.

    busy_us  how long, so far
    stack    where its Python code is, outermost call first
    """

    step: str
    replica: int
    busy_us: int
    stack: tuple[str, ...]


class StepFailed(Event):
    """A step stopped the run."""

    step: str
    error: str


class RunEnded(Event):
    """A run is over: "drained", "ended", "stopped" or "failed"."""

    outcome: str
    batches: int


EventSink = Callable[[Event], None]


def ignore_event(event: object) -> None:
    """Take the events of a run that nobody listens to."""
