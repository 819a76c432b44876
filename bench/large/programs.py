"""The programs over large inputs, as a user would write them, and what their output adds up to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as ps
from bench.large.inputs import EVERY_S, LIMIT_16, SIZE_S, Totals
from penstock import col


def stateless(reader: Any, output: Path) -> ps.PipeGraph:
    """Build a filter and two columns more, all expressions; the payload passes through."""
    graph = ps.PipeGraph("stateless")
    selected = graph.source(reader, time="ts", delay="2 s", name="rows").filter(col("value") < LIMIT_16 / 16)
    more = selected.with_columns(double=col("value") * 2.0, bucket=col("key") % 10)
    more.sink(ps.write.parquet(output), name="out")
    return graph


def windows(reader: Any, output: Path) -> ps.PipeGraph:
    """Build sliding windows per key."""
    graph = ps.PipeGraph("windows")
    keyed = graph.source(reader, time="ts", delay="2 s", name="rows").key_by("key")
    sliding = keyed.window(ps.sliding(f"{SIZE_S} s", every=f"{EVERY_S} s"), name="windows")
    sliding.aggregate(total=ps.sum("value"), rows=ps.count()).sink(ps.write.parquet(output), name="out")
    return graph


@dataclass
class Balance:
    """The number of rows of a key and their total so far."""

    rows: int = 0
    total: float = 0.0


def add_to_balance(row: Any, balance: Balance) -> Balance:
    """Return the balance with a row more."""
    return Balance(balance.rows + 1, balance.total + row.value)


def keyed(reader: Any, output: Path) -> ps.PipeGraph:
    """Build a Python function with a state per key, and a row out for every row in."""
    graph = ps.PipeGraph("keyed")
    rows = graph.source(reader, time="ts", delay="2 s", name="rows").select("ts", "key", "value")
    rows.key_by("key").accumulate(add_to_balance, Balance(), name="balance").sink(
        ps.write.parquet(output), name="out"
    )
    return graph


def many_keys(reader: Any, output: Path) -> ps.PipeGraph:
    """Build the same with a state per key and value: millions of them."""
    graph = ps.PipeGraph("many keys")
    rows = graph.source(reader, time="ts", delay="2 s", name="rows").select("ts", "key", "value")
    rows.key_by("key", "value").accumulate(add_to_balance, Balance(), name="balance").select("rows").sink(
        ps.write.parquet(output), name="out"
    )
    return graph


PROGRAMS: dict[str, Callable[[Any, Path], ps.PipeGraph]] = {
    "stateless": stateless,
    "windows": windows,
    "keyed": keyed,
    "many keys": many_keys,
}


def expected_sums(program: str, totals: Totals) -> dict[str, float]:
    """Return what the output of a program must add up to."""
    per_row = SIZE_S // EVERY_S
    sums: dict[str, dict[str, float]] = {
        "stateless": {
            "rows": totals.selected,
            "value": totals.selected_total / 16,
            "double": totals.selected_total / 8,
        },
        "windows": {
            "rows": totals.windows,
            "sum of rows": totals.rows * per_row,
            "total": totals.total * per_row / 16,
        },
        "keyed": {"rows": totals.rows, "sum of rows": totals.ranks},
        "many keys": {"rows": totals.rows, "sum of rows": totals.pair_ranks},
    }
    return sums[program]


_COLUMNS: dict[str, dict[str, str]] = {
    "stateless": {"value": "value", "double": "double"},
    "windows": {"sum of rows": "rows", "total": "total"},
    "keyed": {"sum of rows": "rows"},
    "many keys": {"sum of rows": "rows"},
}
"""Program -> the name of a sum -> the column that is summed."""


def sum_output(program: str, output: Path) -> dict[str, float]:
    """Read the output of a program, a batch at a time, and add it up."""
    columns = _COLUMNS[program]
    sums: dict[str, float] = dict.fromkeys(["rows", *columns], 0)
    for path in sorted(output.rglob("*.parquet")):
        if any(part.startswith((".", "_")) for part in path.relative_to(output).parts):
            continue
        with pq.ParquetFile(path) as file:
            sums["rows"] += file.metadata.num_rows
            for batch in file.iter_batches(1 << 18, columns=list(columns.values())):
                for name, column in columns.items():
                    # Why it is exact: sixteenths below 2^53 sixteenths.
                    sums[name] += pc.sum(batch.column(column)).as_py() or 0
    return sums


def explain_sums(expected: Mapping[str, float], actual: Mapping[str, float]) -> str | None:
    """Return how the sums differ, or None."""
    wrong = [f"{n}: {actual[n]:,} instead of {expected[n]:,}" for n in expected if expected[n] != actual[n]]
    return "; ".join(wrong) or None
