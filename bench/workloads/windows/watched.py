"""The stage watched while it works: how long each batch takes, what is held, how many slices are pending.

A batch's work is over when the windows that its watermark let go have left. A slice is pending while it has
rows and the watermark has not passed its end (SPRINGALD, VI-E); that is counted from the rows, since the
stage holds slices until no open window needs them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.workloads.windows.answer import Answer, Given
from bench.workloads.windows.ours import Fed, steps
from bench.workloads.windows.shape import Flow

PER_BATCH, SLOWEST, WAITED = "median per batch (s)", "99th of 100 batches (s)", "arrival to result (s)"
PENDING, HELD = "pending slices", "held at most (bytes)"


@dataclass(frozen=True, slots=True)
class Watched:
    """An answer, and what was seen on the way to it: one number per batch."""

    given: Given
    flow: Flow
    batch_ns: tuple[int, ...]
    held_bytes: tuple[int, ...]

    def __call__(self) -> Answer:
        """Return the answer itself."""
        return self.given()


def through_stage_watched(fed: Fed) -> Watched:
    """All batches and watermarks through the stage, with a look at the clock and at its size after each."""
    taken: list[int] = []
    held: list[int] = []
    running = steps(fed)
    begun = time.perf_counter_ns()
    while True:
        try:
            next(running)
        except StopIteration as ended:
            return Watched(ended.value, fed.flow, tuple(taken), tuple(held))
        taken.append(time.perf_counter_ns() - begun)
        held.append(fed.stage.nbytes)
        begun = time.perf_counter_ns()


def notes_of(seen: Watched) -> Mapping[str, float]:
    """Return what was seen, as the notes of a run."""
    seconds = np.array(seen.batch_ns) / 1e9
    median = float(np.median(seconds))
    shape = seen.flow.shape
    to_fill = shape.batch / shape.per_slice * shape.every / 1e6
    return {
        PER_BATCH: median,
        SLOWEST: float(np.quantile(seconds, 0.99)),
        # A row waits half the time that its batch takes to fill, on average, and then for the work.
        WAITED: to_fill / 2 + median,
        PENDING: pending_slices(seen.flow),
        HELD: float(max(seen.held_bytes)),
    }


def pending_slices(flow: Flow) -> float:
    """Slices of all keys together with rows and an end beyond the watermark, after a batch, on average."""
    every, at, counts = flow.shape.every, 0, []
    slices = flow.times // every
    waiting = np.empty(0, np.int64)
    for watermark in flow.watermarks:
        waiting = np.union1d(waiting, slices[at : at + flow.shape.batch])
        waiting = waiting[(waiting + 1) * every > watermark]
        counts.append(len(waiting))
        at += flow.shape.batch
    return float(np.mean(counts))
