"""A row at a time: map, filter and a count per key, all three plain Python, rows in and rows out.

Bytewax does the same with the same functions; without it installed it is left out. A batch of the reader is
also what sinks commit and watermarks wait for, which Bytewax does by the clock, every ten seconds unless
told. Both are tried with batches of 1,000 as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import penstock as ps
from bench.workload import Case, Way
from bench.workloads.runtime.told import Told

CASE = "a row at a time"
OURS, BYTEWAX = "penstock, batches of 1", "Bytewax, batches of 1"
LARGER, BYTEWAX_LARGER = "penstock, batches of 1,000", "Bytewax, batches of 1,000"
N_KEYS = 100
SCHEMA = {"key": "int64", "value": "int64"}

Row = dict[str, int]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in hand."""

    rows: list[Row]

    def right(self) -> list[tuple[int, int]]:
        """(key, how many of it so far) for every row that stays; order between keys is nobody's promise."""
        counts: dict[int, int] = {}
        found = []
        for row in self.rows:
            if (row["value"] * 2 + 1) % 3:
                counts[row["key"]] = counts.get(row["key"], 0) + 1
                found.append((row["key"], counts[row["key"]]))
        return sorted(found)


def has_bytewax() -> bool:
    """Return whether the peer is installed."""
    return find_spec("bytewax") is not None


def case(n_rows: int) -> Case:
    """So many rows of a hundred keys."""
    rows = [{"key": at % N_KEYS, "value": at} for at in range(n_rows)]
    return Case(CASE, lambda seed: Rows(rows), units={"rows": n_rows}, group="rows")


def ways() -> list[Way]:
    """Ours, ours with larger batches, and Bytewax if it is there."""
    ours = [
        Way(OURS, partial(by_penstock, batch=1), only=(CASE,)),
        Way(LARGER, partial(by_penstock, batch=1_000), only=(CASE,)),
    ]
    theirs = [
        Way(BYTEWAX, partial(by_bytewax, batch=1), only=(CASE,)),
        Way(BYTEWAX_LARGER, partial(by_bytewax, batch=1_000), only=(CASE,)),
    ]
    return ours + theirs if has_bytewax() else ours


def by_penstock(data: Rows, *, batch: int) -> Told:
    """Return one thread: what Python does does not become faster with two."""
    graph, out = ps.PipeGraph("rows"), ps.write.memory()
    (
        graph.source(ps.read.iterable(data.rows, schema=SCHEMA, batch=batch))
        .map(doubled, schema=SCHEMA)
        .filter(stays)
        .key_by("key")
        .accumulate(one_more, 0, schema={"n": "int64"})
        .sink(out)
    )
    graph.run(engine="local", options=ps.LocalOptions(threads=1))
    return Told(lambda: sorted((row["key"], row["n"]) for row in out.rows()))


def doubled(row: ps.Row) -> dict[str, Any]:
    """Return a new row."""
    return {"key": row.key, "value": row.value * 2 + 1}  # type: ignore[operator]  # columns are objects to mypy


def stays(row: ps.Row) -> bool:
    """Return two of three."""
    return row.value % 3 != 0  # type: ignore[operator]  # columns are objects to mypy


def one_more(row: ps.Row, state: int) -> int:
    """Rows of a key so far."""
    return state + 1


def by_bytewax(data: Rows, *, batch: int) -> Told:
    """Return the same chain in Bytewax, as its manual writes it."""
    op, testing = import_module("bytewax.operators"), import_module("bytewax.testing")
    found: list[tuple[str, int]] = []
    flow = import_module("bytewax.dataflow").Dataflow("rows")
    rows = op.input("rows", flow, testing.TestingSource(data.rows, batch_size=batch))
    rows = op.map("map", rows, lambda row: {"key": row["key"], "value": row["value"] * 2 + 1})
    rows = op.filter("filter", rows, lambda row: row["value"] % 3 != 0)
    keyed = op.key_on("key", rows, lambda row: str(row["key"]))
    counted = op.stateful_map("count", keyed, lambda state, row: ((state or 0) + 1, (state or 0) + 1))
    op.output("out", counted, testing.TestingSink(found))
    testing.run_main(flow)
    return Told(lambda: sorted((int(key), n) for key, n in found))
