"""Parquet files with everything that can go wrong in a column, and two engines side by side on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.engines.protocol import Engine, RunResult
from penstock.testing.assertions import difference

Build = Callable[[ps.PipeGraph], Sequence[ps.MultiPipe]]
SECOND = 1_000_000


def columns(n_rows: int, seed: int, begin: int = 0) -> pa.Table:
    """Rows of ten seconds from `begin` seconds on, up to three seconds out of order."""
    rng = np.random.default_rng(seed)
    times = begin * SECOND + rng.integers(0, 10 * SECOND, n_rows) - rng.integers(0, 3 * SECOND, n_rows)

    def some() -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return rng.random(n_rows) < 0.1

    odd = np.array([np.nan, -0.0, 0.0, 1.5, -2.25, 1e15], np.float64)
    texts = np.array(["a", "b", "", "żółć"])
    return pa.table(
        {
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "key": pa.array(texts[rng.integers(0, 4, n_rows)].tolist(), mask=some()),
            "f": pa.array(odd[rng.integers(0, 6, n_rows)], mask=some(), from_pandas=False),
            "x": pa.array(rng.normal(0, 100, n_rows), mask=some()),
            "big": pa.array(rng.integers(-(2**48), 2**48, n_rows), mask=some()),
            "small": pa.array(rng.integers(-100, 100, n_rows).astype(np.int32), mask=some()),
            "day": pa.array(rng.integers(-9, 9, n_rows).astype(np.int32), pa.date32(), mask=some()),
            "flag": pa.array(rng.random(n_rows) < 0.5, mask=some()),
        }
    )


def write_files(folder: Path, tables: Sequence[pa.Table], **options: object) -> Path:
    """One file per table, read in this order."""
    for number, table in enumerate(tables):
        file = folder / f"{number:03d}.parquet"
        pq.write_table(table, file, **options)
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
    return folder


def run(engine: str | Engine, build: Build, **options: object) -> tuple[list[pa.Table], RunResult]:
    """Returns what the pipes of a graph give on an engine."""
    graph = ps.PipeGraph("feeds")
    pipes = build(graph)
    memories = [ps.write.memory() for _ in pipes]
    for pipe, memory in zip(pipes, memories, strict=True):
        pipe.sink(memory)
    result = graph.run(engine, clock=ps.ManualClock(), **options)  # type: ignore[arg-type]  # as given
    return [memory.table() for memory in memories], result


def same_as_reference(build: Build, engine: str | Engine) -> RunResult:
    """Asserts that an engine gives the rows and the accounts of the reference engine."""
    expected, wanted = run("reference", build)
    rows_in, got = run(engine, build)
    for ours, theirs in zip(rows_in, expected, strict=True):
        wrong = difference(ours, theirs)
        assert wrong is None, wrong
    for name, accounts in wanted.accounts.items():
        assert got.accounts[name] == accounts, name
    return got
