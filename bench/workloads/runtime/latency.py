"""From a row's stamp to the sink: ten thousand rows a second through five steps, each row a batch of its own.

A row is stamped with the moment at which it was due, so a source that falls behind makes rows late and not
fewer. The source waits by looking at the clock, on a thread of its own, as the sender of a stream would; to
sleep, be it for no time at all, would take 50 us and more, and would be counted as latency of the engine.
The breakdown is WindFlow's (5.4): what the users' functions take, measured by calling them alone, and what
the system adds, which is the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Case, Way
from bench.workloads.runtime.told import Told, notes_of

CASE = "10,000 rows/s through five steps"
CHAINED, APART = "latency, chained", "latency, a node each"
P50, P99, USER, SYSTEM = "p50 (s)", "p99 (s)", "user (s)", "system (s)"
RATE = 10_000
SCHEMA = {"at": "int64", "value": "int64"}
UNCOUNTED = RATE // 10
"""Rows at the start that are not judged: threads begin, caches are cold."""


@dataclass(frozen=True, slots=True)
class Paced:
    """So many rows at the pace."""

    n_rows: int

    def right(self) -> list[int]:
        """Return what the five steps make of each row's number."""
        return [three for number in range(self.n_rows) if (three := number * 2 + 3) % 5]


def case(n_seconds: int) -> Case:
    """So many seconds of rows."""
    n_rows = n_seconds * RATE
    return Case(CASE, lambda seed: Paced(n_rows), units={"rows": n_rows}, group="latency")


def ways() -> list[Way]:
    """Return all steps in the source's node, and each in its own."""
    return [
        Way(CHAINED, partial(through, chaining=True), notes=notes_of, only=(CASE,)),
        Way(APART, partial(through, chaining=False), notes=notes_of, only=(CASE,)),
    ]


def through(data: Paced, *, chaining: bool) -> Told:
    """Return the program: three maps and two filters."""
    graph, out = ps.PipeGraph("latency", chaining=chaining), Stamped()
    pipe: Any = graph.source(
        ps.read.generator(partial(paced, data.n_rows), schema=SCHEMA, batch=1, bounded=False)
    )
    for step in STEPS:
        pipe = pipe.filter(step) if step is in_fifths else pipe.map(step, schema=SCHEMA)
    pipe.sink(out)
    graph.run(engine="local", options=ps.LocalOptions(scheduler="latency"))
    return Told(lambda: out.values, _notes(out.delays))


def _give_way() -> None:
    """Let others have the core, if they want it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


def paced(n_rows: int) -> Iterator[list[dict[str, int]]]:
    """Yield a row whenever one is due."""
    gap, begun = 1_000_000_000 // RATE, time.perf_counter_ns() + 1_000_000
    for number in range(n_rows):
        due = begun + number * gap
        while time.perf_counter_ns() < due:
            _give_way()
        yield [{"at": due, "value": number}]


def doubled(row: Any) -> dict[str, int]:
    """Twice the number."""
    return {"at": row.at, "value": row.value * 2}


def one_more(row: Any) -> dict[str, int]:
    """Return the number after it."""
    return {"at": row.at, "value": row.value + 1}


def two_more(row: Any) -> dict[str, int]:
    """Return the number after that."""
    return {"at": row.at, "value": row.value + 2}


def in_fifths(row: Any) -> bool:
    """Four of five stay."""
    return bool(row.value % 5)


STEPS = (doubled, one_more, two_more, in_fifths, in_fifths)


class Stamped:
    """A sink that looks at the clock when a row arrives."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.delays: list[int] = []

    @property
    def delivery(self) -> Any:
        """As rows in memory: gone with the process."""
        return ps.write.memory().delivery

    @property
    def accepts_updates(self) -> bool:
        """Whatever comes."""
        return True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> Stamped:
        """Nothing to open."""
        return self

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Rows as columns."""
        self.write_plain(batch, rows.to_pylist(), rows.schema)

    def write_plain(self, batch: int, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
        """Rows as they are."""
        now = time.perf_counter_ns()
        for row in rows:
            self.values.append(row["value"])
            self.delays.append(now - row["at"])

    def commit(self, batch: int) -> None:
        """Rows were judged when they came."""

    def close(self) -> None:
        """Nothing is held."""

    def describe(self) -> str:
        """For explain()."""
        return "a stop-watch"


@dataclass(slots=True)
class _Same:
    """A row as functions see it, to call them alone."""

    at: int = 0
    value: int = field(default=7)


def _notes(delays: list[int]) -> dict[str, float]:
    judged = np.array(delays[UNCOUNTED:] or [0]) / 1e9
    p50, p99 = (float(each) for each in np.percentile(judged, (50, 99)))
    user = min(_functions_alone() for _ in range(5))
    return {P50: p50, P99: p99, USER: user, SYSTEM: max(p50 - user, 0.0)}


def _functions_alone(n_calls: int = 200) -> float:
    row, begun = _Same(), time.perf_counter()
    for _ in range(n_calls):
        for step in STEPS:
            step(row)
    return (time.perf_counter() - begun) / n_calls
