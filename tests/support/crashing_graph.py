"""A graph with file sinks that is run again and again after it has died, and what it must give.

The graph has windows behind windows, late rows, a join and a split, so that rows of several steps are under
way at every moment. `run(folder, engine)` goes on from whatever lies in the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock as ps
from penstock import col
from penstock.engines.protocol import Engine, RunResult

ROWS = [
    [{"t": t, "key": "abc"[(t * 7 + n) % 3], "v": t * n} for t in (4 * n, 4 * n + 3, 4 * n - 9)]
    for n in range(1, 7)
]
SINKS = ("totals", "late", "great", "near")
ROOT = Path(__file__).parents[2]


def graph_of(folder: Path) -> ps.PipeGraph:
    """Sums per key, sums of those, rows that were late, rows that are great, and rows near each other."""
    graph = ps.PipeGraph("dying")
    reader = ps.read.batches(ROWS, schema={"t": "int64", "key": "string", "v": "int64"})
    rows = graph.source(reader, time="t", time_unit="s", delay="2 s", name="rows")
    windows = rows.key_by("key").window(ps.sliding("10 s", every="5 s"), name="sums")
    sums = windows.aggregate(s=ps.sum("v"), vs=ps.collect("v"))
    ends = sums.key_by(odd=col("s") % 2 == 1).window(ps.tumbling("20 s"), name="totals of sums")
    totals = ends.aggregate(total=ps.sum("s"))
    totals.sink(ps.write.jsonl(folder / "totals"), name="totals")
    sums.late.sink(ps.write.jsonl(folder / "late"), name="late")
    counted = rows.key_by("key").accumulate(lambda row, n: n + row.v, 0, schema={"value": int}, name="so far")
    counted.filter(col("value") > 60).sink(ps.write.jsonl(folder / "great"), name="great")
    near = rows.join(rows, on=ps.band("v", 9), within="9 s", how="full", suffix="_right", name="pairs")
    near.sink(ps.write.jsonl(folder / "near"), name="near")
    return graph


def run(folder: Path, engine: str | Engine, **options: Any) -> RunResult:
    """Begin, or go on."""
    return graph_of(folder).run(engine, checkpoint=str(folder / "checkpoint"), **{"drain": True, **options})


def program(module: str, folder: Path, *args: str) -> subprocess.Popen[str]:
    """A program that runs it, in a session of its own, so that all of it can be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", module, str(folder), *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_sinks(folder: Path) -> dict[str, Counter[str]]:
    """What every sink shows, as multisets."""
    return {sink: read_rows(folder / sink) for sink in SINKS}


def expected_sinks(folder: Path) -> dict[str, Counter[str]]:
    """What the judge gives, who never dies."""
    graph_of(folder).run("reference")
    result = read_sinks(folder)
    assert all(result.values()), "every sink must have something to lose"
    return result


def dying_at(number: int, end: Callable[[], None]) -> Callable[..., None]:
    """A listener that ends the process at the n-th thing it is told of, counted from 1."""
    seen = 0

    def heard(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            end()

    return heard


def read_rows(folder: Path) -> Counter[str]:
    """What a sink shows, as a multiset."""
    lines = [line for file in folder.glob("part-*") for line in file.read_text().splitlines()]
    return Counter(json.dumps(json.loads(line), sort_keys=True) for line in lines)
