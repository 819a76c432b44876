"""Constant memory: a source ten times as fast as the sink, for a given time.

The source produces a batch whenever it is asked; the sink sleeps for ten times what a batch took to make. The
queues between them are bounded, so the memory of the process must not grow once the channels are full. Only
the first run of a measurement is long, so that its ten minutes pass once; its growth stays in the notes of
all runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Case, Outcome, Way, outcome_notes

CASE, WAY = "the source ten times faster than the sink", "back-pressure"
GROWTH, HELD, SLEPT = "growth (bytes)", "held (bytes)", "sink asleep"
BATCH, BATCH_SECONDS = 10_000, 0.0005
SCHEMA = pa.schema({"a": pa.int64(), "b": pa.float64()})


@dataclass(slots=True)
class RunLengths:
    """The seconds of the first run and of later ones, and the most that the memory of a run has grown."""

    first: float
    later: float
    n_runs: int = 0
    most: float = 0.0

    def expected_answer(self) -> bool:
        """Return that every row of the source has arrived."""
        return True


@dataclass(slots=True)
class Observations:
    """The rows, sleep and memory that source and sink observed."""

    until: float
    rows_out: int = 0
    rows_in: int = 0
    slept: float = 0.0
    memory: list[int] = field(default_factory=list)


def build_case(first: float, later: float) -> Case:
    """Build the case with the seconds of the first run and of later ones."""
    return Case(CASE, lambda seed: RunLengths(first, later), group="memory")


def build_ways() -> list[Way]:
    """Build the only way."""
    return [Way(WAY, run, notes=outcome_notes, only=(CASE,))]


def run(data: RunLengths) -> Outcome:
    """Run a source, two steps and a slow sink, and note the memory."""
    before, started = resident_bytes(), time.monotonic()
    observed = Observations(started + (data.later if data.n_runs else data.first))
    data.n_runs += 1
    graph = ps.PipeGraph("slow-sink", chaining=False)
    pipe: Any = graph.source(
        ps.read.generator(partial(generate_batches, observed), schema=SCHEMA, bounded=False)
    )
    pipe = pipe.with_columns(b=ps.col("b") + 1).filter(ps.col("a") >= 0)
    pipe.sink(ps.write.callback(partial(write_slowly, observed)))
    graph.run(engine="local")
    n = len(observed.memory)
    settled, last = max(observed.memory[: max(n // 2, 1)]), max(observed.memory[n // 2 :])
    data.most = max(data.most, float(last - settled))
    notes = {
        GROWTH: data.most,
        HELD: float(max(last - before, 0)),
        SLEPT: observed.slept / (time.monotonic() - started),
    }
    return Outcome(lambda: observed.rows_in == observed.rows_out > 0, notes)


def generate_batches(observed: Observations) -> Iterator[pa.RecordBatch]:
    """Yield batches as fast as they are requested."""
    while time.monotonic() < observed.until:
        numbers = np.arange(observed.rows_out, observed.rows_out + BATCH)
        observed.rows_out += BATCH
        yield pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(numbers * 0.5)], schema=SCHEMA)


def write_slowly(observed: Observations, rows: pa.RecordBatch) -> None:
    """Take a batch, and sleep ten times as long as it took to make."""
    observed.rows_in += rows.num_rows
    observed.memory.append(resident_bytes())
    started = time.perf_counter()
    time.sleep(10 * BATCH_SECONDS)
    observed.slept += time.perf_counter() - started


def resident_bytes() -> int:
    """Return the bytes of this process in memory; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0
