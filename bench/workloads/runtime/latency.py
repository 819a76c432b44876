"""Latency from source to sink: 10,000 rows a second through five steps, each row a batch of its own.

A row is stamped with the moment at which it was due, so a source that falls behind makes rows late, not
fewer. The source waits by polling the clock on a thread of its own: sleeping, even for no time, takes 50 us
and more, which would count as latency of the engine. The breakdown is WindFlow's (5.4): the time of the
users' functions, measured by calling them alone, and the time that the system adds, which is the rest.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Case, Outcome, Way, outcome_notes

CASE = "10,000 rows/s through five steps"
CHAINED, APART = "latency, chained", "latency, a node each"
SAVED = "latency, chained, with checkpoint= and events="
P50, P99, USER, SYSTEM = "p50 (s)", "p99 (s)", "user (s)", "system (s)"
RATE = 10_000
SCHEMA = {"at": "int64", "value": "int64"}
UNCOUNTED = RATE // 10
"""Rows at the start that are not counted: threads start, caches are cold."""


@dataclass(frozen=True, slots=True)
class PacedRows:
    """The number of rows to send at the fixed rate."""

    n_rows: int

    def expected_answer(self) -> list[int]:
        """Return the values that the five steps compute."""
        return [three for number in range(self.n_rows) if (three := number * 2 + 3) % 5]


def build_case(n_seconds: int) -> Case:
    """Build the case with that many seconds of rows."""
    n_rows = n_seconds * RATE
    return Case(CASE, lambda seed: PacedRows(n_rows), units={"rows": n_rows}, group="latency")


def build_ways() -> list[Way]:
    """Build the ways: all steps chained to the source, each in a task of its own, and what users run."""
    return [
        Way(CHAINED, partial(run, chaining=True), notes=outcome_notes, only=(CASE,)),
        Way(APART, partial(run, chaining=False), notes=outcome_notes, only=(CASE,)),
        Way(SAVED, partial(run, chaining=True, is_saved=True), notes=outcome_notes, only=(CASE,)),
    ]


def run(data: PacedRows, *, chaining: bool, is_saved: bool = False) -> Outcome:
    """Run three maps and two filters, and note the latency; `is_saved` with a checkpoint every second."""
    graph, out = ps.PipeGraph("latency", chaining=chaining), LatencySink()
    pipe: Any = graph.source(
        ps.read.generator(partial(generate_rows, data.n_rows), schema=SCHEMA, batch=1, bounded=False)
    )
    for step in STEPS:
        pipe = pipe.filter(step) if step is is_kept else pipe.map(step, schema=SCHEMA)
    pipe.sink(out)
    options = ps.LocalOptions(scheduler="latency", save_every="1 s")
    if not is_saved:
        graph.run(engine="local", options=options)
    else:
        events: deque[ps.events.Event] = deque(maxlen=1)
        with tempfile.TemporaryDirectory() as folder:
            graph.run(engine="local", options=options, checkpoint=folder, events=events.append, drain=True)
    return Outcome(lambda: out.values, _notes(out.delays))


def _yield_core() -> None:
    """Yield the core to other threads."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


def generate_rows(n_rows: int) -> Iterator[list[dict[str, int]]]:
    """Yield a row whenever one is due."""
    gap, started = 1_000_000_000 // RATE, time.perf_counter_ns() + 1_000_000
    for number in range(n_rows):
        due = started + number * gap
        while time.perf_counter_ns() < due:
            _yield_core()
        yield [{"at": due, "value": number}]


def double(row: Any) -> dict[str, int]:
    """Return the row with twice the value."""
    return {"at": row.at, "value": row.value * 2}


def add_one(row: Any) -> dict[str, int]:
    """Return the row with the value plus one."""
    return {"at": row.at, "value": row.value + 1}


def add_two(row: Any) -> dict[str, int]:
    """Return the row with the value plus two."""
    return {"at": row.at, "value": row.value + 2}


def is_kept(row: Any) -> bool:
    """Return whether the row is one of the four in five that stay."""
    return bool(row.value % 5)


STEPS = (double, add_one, add_two, is_kept, is_kept)


class LatencySink:
    """A sink that reads the clock when a row arrives."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.delays: list[int] = []

    @property
    def delivery(self) -> Any:
        """Return the delivery guarantee of rows in memory."""
        return ps.write.memory().delivery

    @property
    def accepts_updates(self) -> bool:
        """Return True: updates are rows like any others."""
        return True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> LatencySink:
        """Return itself: there is nothing to open."""
        return self

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Write rows from columns."""
        self.write_plain(batch, rows.to_pylist(), rows.schema)

    def write_plain(self, batch: int, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
        """Write rows and record how late they are."""
        now = time.perf_counter_ns()
        for row in rows:
            self.values.append(row["value"])
            self.delays.append(now - row["at"])

    def commit(self, batch: int) -> None:
        """Do nothing: latency is recorded on arrival."""

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def describe(self) -> str:
        """Return the text for `explain()`."""
        return "a stop-watch"


@dataclass(slots=True)
class _PlainRow:
    """A row as the functions see it, to call them outside a graph."""

    at: int = 0
    value: int = field(default=7)


def _notes(delays: list[int]) -> dict[str, float]:
    counted = np.array(delays[UNCOUNTED:] or [0]) / 1e9
    p50, p99 = (float(percentile) for percentile in np.percentile(counted, (50, 99)))
    user = min(_time_functions() for _ in range(5))
    return {P50: p50, P99: p99, USER: user, SYSTEM: max(p50 - user, 0.0)}


def _time_functions(n_calls: int = 200) -> float:
    row, started = _PlainRow(), time.perf_counter()
    for _ in range(n_calls):
        for step in STEPS:
            step(row)
    return (time.perf_counter() - started) / n_calls
