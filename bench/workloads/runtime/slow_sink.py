"""Flat memory: a source ten times as fast as the sink, for as long as it is let.

The source gives a batch whenever it is asked; the sink sleeps for ten times what a batch took to make. What
waits between them is bounded, so the memory of the process must not grow once the channels are full. The
first run of a measurement is the long one, so that ten minutes pass once and not in every round; what it grew
by stays in the notes of all.
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
from bench.workload import Case, Way
from bench.workloads.runtime.told import Told, notes_of

CASE, WAY = "the source ten times faster than the sink", "back-pressure"
GROWTH, HELD, SLEPT = "growth (bytes)", "held (bytes)", "sink asleep"
BATCH, BATCH_SECONDS = 10_000, 0.0005
SCHEMA = pa.schema({"a": pa.int64(), "b": pa.float64()})


@dataclass(slots=True)
class Stretch:
    """How long the source goes on: first, and in later runs; and the most that a run has grown by."""

    first: float
    later: float
    n_runs: int = 0
    most: float = 0.0

    def right(self) -> bool:
        """Return every row that left the source has arrived."""
        return True


@dataclass(slots=True)
class Watch:
    """What the two ends have seen."""

    until: float
    rows_out: int = 0
    rows_in: int = 0
    slept: float = 0.0
    memory: list[int] = field(default_factory=list)


def case(first: float, later: float) -> Case:
    """So many seconds."""
    return Case(CASE, lambda seed: Stretch(first, later), group="memory")


def ways() -> list[Way]:
    """Return the only one."""
    return [Way(WAY, run, notes=notes_of, only=(CASE,))]


def run(data: Stretch) -> Told:
    """Return the program: a source, two steps, and a sink that is slow."""
    before, begun = resident(), time.monotonic()
    watch = Watch(begun + (data.later if data.n_runs else data.first))
    data.n_runs += 1
    graph = ps.PipeGraph("slow-sink", chaining=False)
    pipe: Any = graph.source(ps.read.generator(partial(hasty, watch), schema=SCHEMA, bounded=False))
    pipe = pipe.with_columns(b=ps.col("b") + 1).filter(ps.col("a") >= 0)
    pipe.sink(ps.write.callback(partial(lazy, watch)))
    graph.run(engine="local")
    n = len(watch.memory)
    settled, last = max(watch.memory[: max(n // 2, 1)]), max(watch.memory[n // 2 :])
    data.most = max(data.most, float(last - settled))
    notes = {
        GROWTH: data.most,
        HELD: float(max(last - before, 0)),
        SLEPT: watch.slept / (time.monotonic() - begun),
    }
    return Told(lambda: watch.rows_in == watch.rows_out > 0, notes)


def hasty(watch: Watch) -> Iterator[pa.RecordBatch]:
    """Batches as fast as they are wanted."""
    while time.monotonic() < watch.until:
        numbers = np.arange(watch.rows_out, watch.rows_out + BATCH)
        watch.rows_out += BATCH
        yield pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(numbers * 0.5)], schema=SCHEMA)


def lazy(watch: Watch, rows: pa.RecordBatch) -> None:
    """Take a batch, and ten times as long as it took to make."""
    watch.rows_in += rows.num_rows
    watch.memory.append(resident())
    begun = time.perf_counter()
    time.sleep(10 * BATCH_SECONDS)
    watch.slept += time.perf_counter() - begun


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0
