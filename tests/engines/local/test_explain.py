"""What explain() says of a program in process."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock import col


def lines_of(graph: ps.PipeGraph) -> list[str]:
    """The engine's part of the text."""
    text = graph.explain("local")
    return [line.strip() for line in text[text.index("Engine") :].splitlines()]


def shout(row: Any) -> dict[str, str]:
    """A row function that Numba does not take: it works on strings."""
    return {"k": row.k.upper()}


def test_it_says_what_is_fused_what_is_replicated_and_what_the_gil_holds() -> None:
    graph = ps.PipeGraph("views")
    reader = ps.read.rows([], schema={"t": "int64", "k": "string", "v": "int64"})
    rows = graph.source(reader, time="t", time_unit="s", delay="0 s", name="rows")
    kept = rows.filter(col("v") > 0, name="kept").map(v=col("v") * 2, name="doubled")
    sums = kept.key_by("k").window(ps.tumbling("10 s"), name="sums", parallelism=3).aggregate(s=ps.sum("v"))
    sums.map(shout, schema={"k": "string"}, name="loud", parallelism=2).sink(ps.write.memory(), name="out")
    lines = lines_of(graph)
    assert "rows + kept + doubled: one node, fused" in lines
    assert "sums: 3 replicas, rows by key (k)" in lines
    assert "scale on threads (kernels, Arrow, compiled functions): kept, doubled, sums" in lines
    assert "plain Python, one thread at a time (the GIL): loud" in lines


def test_it_says_how_windows_without_a_key_are_spread() -> None:
    graph = ps.PipeGraph("global")
    reader = ps.read.rows([], schema={"t": "int64", "v": "int64"})
    rows = graph.source(reader, time="t", time_unit="s", delay="0 s", name="rows")
    windows = rows.window(ps.sliding("10 s", every="1 s"), name="w", parallelism=4, pattern="paned")
    windows.aggregate(s=ps.sum("v")).sink(ps.write.memory(), name="out")
    lines = lines_of(graph)
    assert any(line.startswith("w: 4 replicas, PLQ + WLQ: slices go to replicas in turn") for line in lines)
    assert any("put the parts together" in line for line in lines)
