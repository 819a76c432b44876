"""A row at a time: map, filter and a count per key, all three plain Python, rows in and rows out.

Bytewax runs the same functions; it is left out if it is not installed. A batch of the reader is also the unit
of sink commits and watermarks; Bytewax does those by the clock, every ten seconds by default. Both are also
tried with batches of 1,000.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import penstock as ps
from bench.workload import Case, Outcome, Way

CASE = "a row at a time"
OURS, BYTEWAX = "penstock, batches of 1", "Bytewax, batches of 1"
LARGER, BYTEWAX_LARGER = "penstock, batches of 1,000", "Bytewax, batches of 1,000"
N_KEYS = 100
SCHEMA = {"key": "int64", "value": "int64"}

Row = dict[str, int]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in memory."""

    rows: list[Row]

    def expected_answer(self) -> list[tuple[int, int]]:
        """Return (key, count so far) for every row that stays, sorted: keys have no order among them."""
        counts: dict[int, int] = {}
        answer = []
        for row in self.rows:
            if (row["value"] * 2 + 1) % 3:
                counts[row["key"]] = counts.get(row["key"], 0) + 1
                answer.append((row["key"], counts[row["key"]]))
        return sorted(answer)


def has_bytewax() -> bool:
    """Return whether Bytewax is installed."""
    return find_spec("bytewax") is not None


def build_case(n_rows: int) -> Case:
    """Build the case with that many rows of a hundred keys."""
    rows = [{"key": at % N_KEYS, "value": at} for at in range(n_rows)]
    return Case(CASE, lambda seed: Rows(rows), units={"rows": n_rows}, group="rows")


def build_ways() -> list[Way]:
    """Build the ways: ours and, if it is installed, Bytewax, each with two sizes of batch."""
    ours = [
        Way(OURS, partial(run_penstock, batch=1), only=(CASE,)),
        Way(LARGER, partial(run_penstock, batch=1_000), only=(CASE,)),
    ]
    theirs = [
        Way(BYTEWAX, partial(run_bytewax, batch=1), only=(CASE,)),
        Way(BYTEWAX_LARGER, partial(run_bytewax, batch=1_000), only=(CASE,)),
    ]
    return ours + theirs if has_bytewax() else ours


def run_penstock(data: Rows, *, batch: int) -> Outcome:
    """Run the chain on one thread; plain Python gains nothing from a second one."""
    graph, out = ps.PipeGraph("rows"), ps.write.memory()
    (
        graph.source(ps.read.iterable(data.rows, schema=SCHEMA, batch=batch))
        .map(double, schema=SCHEMA)
        .filter(is_kept)
        .key_by("key")
        .accumulate(count_row, 0, schema={"n": "int64"})
        .sink(out)
    )
    graph.run(engine="local", options=ps.LocalOptions(threads=1))
    return Outcome(lambda: sorted((row["key"], row["n"]) for row in out.rows()))


def double(row: ps.Row) -> dict[str, Any]:
    """Return a new row with the value doubled and one added."""
    return {"key": row.key, "value": row.value * 2 + 1}


def is_kept(row: ps.Row) -> bool:
    """Return whether the row is one of the two in three that stay."""
    return row.value % 3 != 0  # type: ignore[no-any-return]  # a call of bool() would be measured


def count_row(row: ps.Row, state: int) -> int:
    """Return the number of rows of a key up to this one."""
    return state + 1


def run_bytewax(data: Rows, *, batch: int) -> Outcome:
    """Run the same chain in Bytewax, written as in its manual."""
    op, testing = import_module("bytewax.operators"), import_module("bytewax.testing")
    counts: list[tuple[str, int]] = []
    flow = import_module("bytewax.dataflow").Dataflow("rows")
    rows = op.input("rows", flow, testing.TestingSource(data.rows, batch_size=batch))
    rows = op.map("map", rows, lambda row: {"key": row["key"], "value": row["value"] * 2 + 1})
    rows = op.filter("filter", rows, lambda row: row["value"] % 3 != 0)
    keyed = op.key_on("key", rows, lambda row: str(row["key"]))
    counted = op.stateful_map("count", keyed, lambda state, row: ((state or 0) + 1, (state or 0) + 1))
    op.output("out", counted, testing.TestingSink(counts))
    testing.run_main(flow)
    return Outcome(lambda: sorted((int(key), n) for key, n in counts))
