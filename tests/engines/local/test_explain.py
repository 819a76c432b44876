"""What explain() says of a program in process."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock import col
from penstock.clock import WallClock
from penstock.engines.local.options import Settings
from penstock.engines.local.run import build_runtime
from penstock.engines.local.tasks.task import InputTask
from penstock.engines.protocol import RunOptions
from penstock.events import ignore_event


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
    filtered = rows.filter(col("v") > 0, name="kept").with_columns(v=col("v") * 2, name="doubled")
    sums = (
        filtered.key_by("k").window(ps.tumbling("10 s"), name="sums", parallelism=3).aggregate(s=ps.sum("v"))
    )
    sums.map(shout, schema={"k": "string"}, name="loud", parallelism=2).sink(ps.write.memory(), name="out")
    lines = lines_of(graph)
    assert "rows + kept + doubled: one task, fused" in lines
    assert any(line.startswith("sums: 3 replicas, rows by key (k);") for line in lines)
    assert "scale on threads (kernels, Arrow, compiled functions): kept, doubled, sums" in lines
    assert "plain Python, one thread at a time (the GIL): loud" in lines


def test_a_step_with_a_thread_of_its_own_shares_its_task_with_nobody() -> None:
    graph = ps.PipeGraph("own")
    rows = graph.source(ps.read.rows([], schema={"k": "string"}), name="rows")
    loud = rows.filter(col("k") != "", name="kept").map(
        shout, schema={"k": "string"}, name="loud", dedicated=True
    )
    loud.filter(col("k") != "A", name="rest").sink(ps.write.memory(), name="out")
    lines = lines_of(graph)
    assert "rows + kept: one task, fused" in lines
    assert "rest + out: one task, fused" in lines
    assert "with a thread of their own, as written: loud" in lines


def test_it_says_how_windows_without_a_key_are_spread() -> None:
    graph = ps.PipeGraph("global")
    reader = ps.read.rows([], schema={"t": "int64", "v": "int64"})
    rows = graph.source(reader, time="t", time_unit="s", delay="0 s", name="rows")
    windows = rows.window(ps.sliding("10 s", every="1 s"), name="w", parallelism=4, pattern="paned")
    windows.aggregate(s=ps.sum("v")).sink(ps.write.memory(), name="out")
    lines = lines_of(graph)
    assert any(line.startswith("w: 4 replicas, PLQ + WLQ: slices go to replicas in turn") for line in lines)
    assert any("merge the partial results" in line for line in lines)


def pipeline_graph(degree: Any) -> ps.PipeGraph:
    """Three steps that stay apart, each with as many replicas as the one before; a fourth with one more."""
    graph = ps.PipeGraph("pipelined", chaining=False)
    reader = ps.read.rows([], schema={"t": "int64", "k": "string", "v": "int64"})
    rows = graph.source(reader, time="t", time_unit="s", delay="0 s", name="rows")
    filtered = rows.filter(col("v") > 0, name="kept", parallelism=degree)
    more = filtered.with_columns(v=col("v") + 1, name="more", parallelism=degree)
    sums = (
        more.key_by("k").window(ps.tumbling("10 s"), name="sums", parallelism=degree).aggregate(v=ps.sum("v"))
    )
    again = sums.with_columns(v=col("v") * 2, name="again", parallelism=degree)
    again.with_columns(v=col("v") - 1, name="less", parallelism=3).sink(ps.write.memory(), name="out")
    return graph


def test_it_says_where_rows_go_from_replica_to_replica_without_a_shuffle() -> None:
    lines = lines_of(pipeline_graph(2))
    assert (
        "kept: 2 replicas, forward from equally many, else batches round-robin, in order again behind them"
        in lines
    )
    assert "more: 2 replicas, each fed by the replica before it: no shuffle" in lines
    assert any(line.startswith("sums: 2 replicas, rows by key (k)") for line in lines)
    assert "again: 2 replicas, each fed by the replica before it: no shuffle" in lines


def test_it_says_what_elastic_steps_may_have_and_that_state_rescaler() -> None:
    lines = lines_of(pipeline_graph((1, 4)))
    range_ = "1 to 4 replicas with elastic=ps.Elastic(), else 1"
    assert f"more: {range_}; each fed by the replica before it: no shuffle" in lines
    assert f"sums: {range_}; rows by key (k), and state moves with its keys" in lines
    assert f"again: {range_}; each fed by the replica before it: no shuffle" in lines


def test_it_is_so_that_a_forward_edge_between_as_many_has_one_channel_per_replica() -> None:
    run = build_runtime(
        pipeline_graph(2).plan(), Settings(), RunOptions(), clock=WallClock(), events=ignore_event
    )
    channels = {(n.steps[0].name, n.replica): n.channels for n in run.graph.tasks if isinstance(n, InputTask)}
    fed_by = {
        name: [(item.writer.steps[0].name, item.writer.replica) for item in writers]
        for name, writers in channels.items()
    }
    assert [fed_by["more", replica] for replica in (0, 1)] == [[("kept", 0)], [("kept", 1)]]
    assert [fed_by["again", replica] for replica in (0, 1)] == [[("sums", 0)], [("sums", 1)]]
    assert [len(fed_by["sums", replica]) for replica in (0, 1)] == [2, 2]
