"""A program that follows a log, copies its rows and counts them, until a stop that drains; or it dies."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.events import Event
from tests.support.file_runs import dying_at
from tests.support.input_runs import rows_in

PATIENCE_S = 60
OFTEN = ps.LocalOptions(save_every="0 s")
TEXT = "v\none\ntwo\nhalf"


class WholeLines:
    """Listens until the whole lines of the log are written."""

    def __init__(self, out: Path) -> None:
        self._out, self.written = out, threading.Event()

    def __call__(self, event: Event) -> None:
        if len(rows_in(self._out)) >= 2:
            self.written.set()


def build(log: Path, read: Any = ps.read.csv, **options: Any) -> ps.PipeGraph:
    """Copy the rows of a log, and count them in a window that only the end closes."""
    graph = ps.PipeGraph("log")
    rows = graph.source(read(log, follow=True, wait="5 ms"), time=ps.ingest_time(), name="rows", **options)
    rows.sink(ps.write.jsonl(log.parent / "out"), name="copies")
    counts = rows.window(ps.tumbling("365 d"), name="windows").aggregate(n=ps.count())
    counts.sink(ps.write.jsonl(log.parent / "counts"), name="counts")
    if options.get("on_error") == "dead_letter":
        rows.errors.sink(ps.write.jsonl(log.parent / "errors"), name="failed")
    return graph


def drain(graph: ps.PipeGraph, log: Path, engine: Any, *death: Any) -> ps.RunResult:
    """Run until the whole lines are copied, and stop with all windows closed, or die on the way."""
    lines = WholeLines(log.parent / "out")
    settings: dict[str, Any] = {"options": OFTEN} if engine == "local" else {}
    run = graph.start(engine, checkpoint=log.parent / "checkpoint", events=lines, **settings)
    while not lines.written.wait(0.01) and run.status().state == "running":
        continue
    if not death:
        run.stop(drain=True)
        return run.wait(PATIENCE_S)
    with dying_at(*death):
        run.stop(drain=True)
        return run.wait(PATIENCE_S)


def copies(log: Path) -> list[Any]:
    """The rows that are copied, in order."""
    return sorted(next(iter(row.values())) for row in rows_in(log.parent / "out"))


def counts(log: Path) -> list[int]:
    """The rows of every window that is closed."""
    return [row["n"] for row in rows_in(log.parent / "counts")]
