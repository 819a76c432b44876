"""A graph of joins that is run again and again after it has died, and what it must give.

`python -m tests.support.joining_graph FOLDER LAYOUT` runs it in process, and says every crash point that it
comes by.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import penstock as ps
from penstock import crash_points
from penstock.engines.protocol import Engine, RunResult
from tests.support.crashing_graph import read_rows

SINKS = ("pairs", "alone", "last", "counts", "late", "greatest", "ratios", "failed", "before")
SCHEMA = {"t": "int64", "key": "string", "v": "int64"}


def draw_batches(seed: int, n_batches: int = 14) -> list[list[dict[str, Any]]]:
    """Batches in disorder, a few rows of them late."""
    chance = random.Random(seed)
    return [
        [
            {"t": 4 * n + chance.randint(-9, 3), "key": chance.choice("abc"), "v": chance.randint(0, 40)}
            for _ in range(6)
        ]
        for n in range(n_batches)
    ]


def graph_of(folder: Path, layout: Any) -> ps.PipeGraph:
    """Bands, outer joins, anti joins, last rows, pairs that fail, a window behind a join, and late rows."""
    graph = ps.PipeGraph("joining")

    def join(name: str, **options: Any) -> ps.MultiPipe:
        left, right = sources(graph, name)
        return left.join(right, suffix="_right", layout=layout, name=name, **options)

    pairs = join("band", on=ps.band("v", 5), within="9 s")
    pairs.sink(ps.write.jsonl(folder / "pairs"), name="pairs")
    pairs.late.sink(ps.write.jsonl(folder / "late"), name="late")
    counts = pairs.key_by("key").window(ps.tumbling("10 s"), name="counted").aggregate(n=ps.count())
    counts.sink(ps.write.jsonl(folder / "counts"), name="counts")
    alone = join("outer", on=["key", ps.band("v", 3)], within="5 s", how="full")
    alone.sink(ps.write.jsonl(folder / "alone"), name="alone")
    greatest = join("none is greater", on=ps.left("v") < ps.right("v"), within="1 s", how="anti")
    greatest.sink(ps.write.jsonl(folder / "greatest"), name="greatest")
    last = join("last rows", on=ps.left("v") > ps.right("v"), last_rows=(2, 3))
    last.sink(ps.write.jsonl(folder / "last"), name="last")
    divides = ps.left("v") // ps.right("v") > 8
    ratios = join("ratios", on=divides, within="2 s", how="full", on_error="dead_letter")
    ratios.sink(ps.write.jsonl(folder / "ratios"), name="ratios out")
    ratios.errors.sink(ps.write.jsonl(folder / "failed"), name="failed")
    before = join("before", on="key", last_rows=(0, 2), how="left")
    before.sink(ps.write.jsonl(folder / "before"), name="before out")
    return graph


def sources(graph: ps.PipeGraph, name: str) -> tuple[ps.MultiPipe, ps.MultiPipe]:
    """The two sides of a join."""
    left, right = (
        graph.source(
            ps.read.batches(draw_batches(seed), schema=SCHEMA),
            time="t",
            time_unit="s",
            delay="6 s",
            name=f"{side} of {name}",
        )
        for seed, side in ((1, "left"), (2, "right"))
    )
    return left, right


def run(folder: Path, layout: Any, engine: str | Engine = "local", **options: Any) -> RunResult:
    """Begin, or go on."""
    return graph_of(folder, layout).run(
        engine, checkpoint=str(folder / "checkpoint"), **{"drain": True, **options}
    )


def read_sinks(folder: Path) -> dict[str, Any]:
    """What every sink shows, as multisets."""
    return {sink: read_rows(folder / sink) for sink in SINKS}


def expected_sinks(folder: Path) -> dict[str, Any]:
    """What the judge gives, who never dies."""
    graph_of(folder, "auto").run("reference")
    result = read_sinks(folder)
    assert all(result.values()), "every sink must have something to lose"
    return result


def say(point: str) -> None:
    """Print a point, in one piece, whichever thread comes by it."""
    os.write(1, f"{point}\n".encode())


if __name__ == "__main__":
    m, n = map(int, sys.argv[2].split("x"))
    crash_points.listener = say
    run(Path(sys.argv[1]), (m, n), options=ps.LocalOptions(save_every="0 s", threads=2, queue_size=2))
