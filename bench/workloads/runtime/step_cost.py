"""The cost of a step that does nothing: ten functions that return the batch they get.

A graph with ten of them and one with none run many times for a short while, and the least time of each
counts: the difference is the cost of the steps, without source and sink. Few long runs would not do: each
would include other activity of the machine, which exceeds the cost of a step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Case, Outcome, Way, outcome_notes

CASE = "ten steps that pass batches on"
CHAINED, APART = "chained", "a node each"
PER_STEP = "per step and batch (s)"
N_STEPS = 10
REPEATS = 12
SCHEMA = pa.schema({"a": pa.int64()})


@dataclass(frozen=True, slots=True)
class Batches:
    """A table that is read a row at a time, so that every batch has one row."""

    table: pa.Table

    def expected_answer(self) -> int:
        """Return the number of rows that each run delivers."""
        return int(self.table.num_rows)


def build_case(n_batches: int) -> Case:
    """Build the case with that many batches."""
    table = pa.table({"a": np.arange(n_batches)}, schema=SCHEMA)
    return Case(CASE, lambda seed: Batches(table), units={"batches": n_batches}, group="chain")


def build_ways() -> list[Way]:
    """Build the ways: all steps in one task, and each in its own behind a channel; on one thread."""
    return [
        Way(CHAINED, partial(_run, chaining=True), notes=outcome_notes, only=(CASE,)),
        Way(APART, partial(_run, chaining=False), notes=outcome_notes, only=(CASE,)),
    ]


def _run(data: Batches, *, chaining: bool) -> Outcome:
    least: dict[int, float] = {}
    arrived = []
    for _ in range(REPEATS):
        for n_steps in (0, N_STEPS):
            seconds, n_rows = _run_once(data.table, n_steps, chaining=chaining)
            least[n_steps] = min(seconds, least.get(n_steps, seconds))
            arrived.append(n_rows)
    per_step = (least[N_STEPS] - least[0]) / N_STEPS / data.table.num_rows
    n_rows = arrived[0] if len(set(arrived)) == 1 else -1
    return Outcome(lambda: n_rows, {PER_STEP: max(per_step, 0.0)})


def _run_once(table: pa.Table, n_steps: int, *, chaining: bool) -> tuple[float, int]:
    graph = ps.PipeGraph("chain", chaining=chaining)
    pipe: Any = graph.source(ps.read.table(table, batch=1))
    for _ in range(n_steps):
        pipe = pipe.map(ps.batch(pass_on, schema=SCHEMA))
    counted = pipe.sink(ps.write.callback(ignore), name="out")
    assert counted is not None, "a sink gives a handle"
    options = ps.LocalOptions(threads=1)
    # Why: one thread works, so CPU time leaves out what else the machine does.
    started = time.process_time()
    result = graph.run(engine="local", options=options)
    return time.process_time() - started, result.accounts["out"].rows_in


def pass_on(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch unchanged."""
    return rows


def ignore(rows: pa.RecordBatch) -> None:
    """Drop the rows."""
