"""What a step costs that does nothing: ten functions that hand on the batch they get.

A graph with ten of them and one with none take many short turns, and the least time of each counts: the
difference is what the steps cost, without source and sink. Few long turns would not do: each would have its
share of what else goes on, and that is more than what is looked for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Case, Way
from bench.workloads.runtime.told import Told, notes_of

CASE = "ten steps that pass batches on"
CHAINED, APART = "chained", "a node each"
PER_STEP = "per step and batch (s)"
N_STEPS = 10
TURNS = 12
SCHEMA = pa.schema({"a": pa.int64()})


@dataclass(frozen=True, slots=True)
class Batches:
    """A table that is read a row at a time, so that every batch has one row."""

    table: pa.Table

    def right(self) -> int:
        """Return all rows arrive, however often."""
        return int(self.table.num_rows)


def case(n_batches: int) -> Case:
    """So many batches through ten steps."""
    table = pa.table({"a": np.arange(n_batches)}, schema=SCHEMA)
    return Case(CASE, lambda seed: Batches(table), units={"batches": n_batches}, group="chain")


def ways() -> list[Way]:
    """In one node, and each in its own behind a channel; one thread, so that no core helps."""
    return [
        Way(CHAINED, partial(_run, chaining=True), notes=notes_of, only=(CASE,)),
        Way(APART, partial(_run, chaining=False), notes=notes_of, only=(CASE,)),
    ]


def _run(data: Batches, *, chaining: bool) -> Told:
    least: dict[int, float] = {}
    arrived = []
    for _ in range(TURNS):
        for n_steps in (0, N_STEPS):
            seconds, n_rows = _once(data.table, n_steps, chaining=chaining)
            least[n_steps] = min(seconds, least.get(n_steps, seconds))
            arrived.append(n_rows)
    per_step = (least[N_STEPS] - least[0]) / N_STEPS / data.table.num_rows
    n_rows = arrived[0] if len(set(arrived)) == 1 else -1
    return Told(lambda: n_rows, {PER_STEP: max(per_step, 0.0)})


def _once(table: pa.Table, n_steps: int, *, chaining: bool) -> tuple[float, int]:
    graph = ps.PipeGraph("chain", chaining=chaining)
    pipe: Any = graph.source(ps.read.table(table, batch=1))
    for _ in range(n_steps):
        pipe = pipe.map(ps.batch(same, schema=SCHEMA))
    counted = pipe.sink(ps.write.callback(ignore), name="out")
    assert counted is not None, "a sink gives a handle"
    options = ps.LocalOptions(threads=1)
    begun = time.process_time()  # one thread works: whoever else is on the machine does not count
    result = graph.run(engine="local", options=options)
    return time.process_time() - begun, result.accounts["out"].rows_in


def same(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return what it was given."""
    return rows


def ignore(rows: pa.RecordBatch) -> None:
    """A sink that keeps nothing."""
