"""A program that watches a folder, dies, and goes on: on whichever engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock as ps
from penstock import crash_points
from penstock.engines.protocol import Engine, RunResult

SCHEMA = {"t": "int64", "k": "string", "v": "int64"}


class Died(Exception):
    """The run ends here."""


def put(folder: Path, name: str, *rows: tuple[int, str, int]) -> None:
    """A file that appears whole."""
    hidden = folder / f".{name}"
    hidden.write_text("".join(json.dumps(dict(zip(SCHEMA, row, strict=True))) + "\n" for row in rows))
    hidden.rename(folder / name)


def to_both(row: ps.Row) -> tuple[int, int]:
    """Every row goes to both branches."""
    return 0, 1


def build(files: Path, folder: Path, **options: Any) -> ps.PipeGraph:
    """Rows as they came, and their sums by window, into two sinks."""
    graph = ps.PipeGraph("watching")
    time: dict[str, Any] = {"time": "t", "time_unit": "s", "delay": "0 s"} | options
    rows = graph.source(
        ps.read.jsonl(files, schema=SCHEMA, follow=True, wait="5 ms"),
        name="rows",
        **time,
    )
    both = rows.split(to_both, 2)
    both[0].sink(ps.write.jsonl(folder / "rows"), name="seen")
    windows = both[1].key_by("k").window(ps.tumbling("10 s"), lateness="1000 s", name="windows")
    windows.aggregate(v=ps.sum("v")).sink(ps.write.jsonl(folder / "sums"), name="sums")
    return graph


def run(files: Path, folder: Path, engine: str | Engine, **options: Any) -> RunResult:
    """Begin, or go on."""
    settings = {"drain": True, **options}
    return build(files, folder).run(engine, checkpoint=str(folder / "checkpoint"), **settings)


def read_rows(folder: Path) -> Counter[tuple[Any, ...]]:
    """Every row that a sink's folder shows, and how often."""
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return Counter(tuple(json.loads(line).values()) for line in lines)


@contextmanager
def dying_at(point: str, times: int = 1) -> Iterator[None]:
    """The run dies the n-th time it comes by a point."""
    left = [times]

    def heard(reached: str) -> None:
        left[0] -= reached == point
        if left[0] == 0 and reached == point:
            raise Died

    crash_points.listener = heard
    try:
        yield
    finally:
        crash_points.listener = None
