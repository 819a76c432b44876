"""A program of which all can be changed between two runs of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock as ps
from tests.support.spark_in_process import InProcessSparkEngine

SCHEMA = {"t": "int64", "k": "string", "v": "int64"}
ROWS = [
    [(0, "a", 1), (5, "b", 2), (9, "a", 3)],
    [(11, "a", 4), (14, "b", 5), (8, "b", 9)],
    [(21, "b", 6), (17, "a", 7)],
    [(33, "a", 8), (29, "b", 1), (30, "b", 3)],
    [(47, "a", 2), (41, "b", 4)],
]
ENGINES: dict[str, Callable[[], Any]] = {
    "local": lambda: "local",
    "fragments": InProcessSparkEngine,
    "spark": lambda: "spark",
}


@dataclass(frozen=True)
class Program:
    """A program of which all can be changed."""

    source: str = "rows"
    delay: str = "2 s"
    lateness: str = "0 s"
    window: Any = field(default_factory=lambda: ps.tumbling("10 s"))
    aggregates: Any = field(default_factory=lambda: {"s": ps.sum("v")})
    columns: Any = field(default_factory=lambda: dict(SCHEMA))
    key: str = "k"
    step: str = "sums"
    sinks: tuple[str, ...] = ("out",)
    more: Callable[[ps.MultiPipe], ps.MultiPipe] = lambda pipe: pipe
    degree: int = 1
    rows: Any = field(default_factory=lambda: ROWS)

    def build(self, folder: Path) -> ps.PipeGraph:
        """Build it, over the same rows, with null in columns that they have not."""
        graph = ps.PipeGraph("changing")
        batches = [
            [dict.fromkeys(self.columns) | dict(zip(SCHEMA, row, strict=True)) for row in part]
            for part in self.rows
        ]
        reader = ps.read.batches(batches, schema=self.columns)
        rows = graph.source(reader, time="t", time_unit="s", delay=self.delay, name=self.source)
        windows = (
            self.more(rows)
            .key_by(self.key)
            .window(self.window, lateness=self.lateness, name=self.step, parallelism=self.degree)
        )
        results = windows.aggregate(**self.aggregates)
        for number, sink in enumerate(self.sinks):
            results.sink(ps.write.jsonl(folder / f"out{number}"), name=sink)
        return graph

    def run(self, folder: Path, who: str, **options: Any) -> Any:
        """Begin, or go on."""
        return self.build(folder).run(ENGINES[who](), checkpoint=folder / "checkpoint", **options)


FIRST = Program()


def read_rows(folder: Path, sink: int = 0) -> list[dict[str, Any]]:
    """The rows that were written, by window and key."""
    lines = [
        line for file in (folder / f"out{sink}").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    return sorted(map(json.loads, lines), key=lambda row: (row["window_start"], str(row["k"])))


def whole(folder: Path, program: Program) -> list[dict[str, Any]]:
    """What a program writes that was so from the beginning."""
    program.build(folder / "whole").run("reference")
    return read_rows(folder / "whole")
