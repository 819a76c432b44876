"""Where rows of one source meet again, each round is judged as a whole, whoever was faster."""

from __future__ import annotations

import random
from typing import Any

import pytest

import penstock as ps
from penstock import col

SCHEMA = {"t": "int64", "v": "int64"}
SEEDS = range(6)


def batches(n: int) -> list[list[dict[str, int]]]:
    """Rows of which many come too late."""
    chance = random.Random(n)
    return [
        [{"t": 6 * n + chance.randint(-14, 6), "v": chance.randint(0, 99)} for _ in range(8)]
        for n in range(12)
    ]


def source(graph: ps.PipeGraph, n: int, **options: Any) -> Any:
    reader = ps.read.batches(batches(n), schema=SCHEMA)
    return graph.source(reader, time="t", time_unit="s", delay="6 s", **options)


def diamond(window: Any) -> tuple[ps.PipeGraph, Any, Any]:
    """A branch with a step and one without meet in front of windows."""
    graph = ps.PipeGraph("diamond")
    one, other = source(graph, 1).split(lambda row: row.v % 2, 2)
    windows = one.with_columns(v=col("v") + 1).merge(other).window(window)
    pipe = windows.aggregate(n=ps.count(), s=ps.sum("v"))
    return graph, pipe, pipe.late


def in_pieces(window: Any) -> tuple[ps.PipeGraph, Any, Any]:
    """A round comes as batches of one row."""
    graph = ps.PipeGraph("pieces", chaining=False)
    windows = source(graph, 2).filter(col("v") >= 0, batch_size=1).window(window)
    pipe = windows.aggregate(n=ps.count(), s=ps.sum("v"))
    return graph, pipe, pipe.late


@pytest.mark.parametrize("shape", [diamond, in_pieces])
@pytest.mark.parametrize("window", [ps.tumbling("5 s"), ps.session("2 s"), ps.count_window(3)])
def test_windows_and_late_rows_do_not_depend_on_who_was_faster(shape: Any, window: Any) -> None:
    expected = collect_rows(shape, window, engine="reference")
    assert expected[1], "some rows must be late"
    for seed in SEEDS:
        for size in (1, 16):
            options = ps.LocalOptions(seed=seed, queue_size=size)
            assert collect_rows(shape, window, engine="local", options=options) == expected
    assert collect_rows(shape, window, engine="local") == expected


def collect_rows(shape: Any, window: Any, **how: Any) -> list[list[str]]:
    graph, pipe, late = shape(window)
    return [sorted(map(repr, table.to_pylist())) for table in graph.collect(pipe, late, **how)]


def pass_on(row: Any) -> dict[str, Any]:
    return {"t": row.t, "v": row.v}


def test_single_rows_of_streams_with_different_histories_may_meet_in_windows() -> None:
    # Results of windows have no places among rows of equal time, and rows of the other branch have one.
    graph = ps.PipeGraph("histories")
    reader = ps.read.rows([{"t": t, "v": t % 5} for t in range(30)], batch=4)
    one, other = graph.source(reader, time="t", time_unit="s", delay="2 s").split(lambda row: row.v % 2, 2)
    counts = one.window(ps.tumbling("5 s")).aggregate(v=ps.count()).select("v", t=col("window_start"))
    rows = counts.select("t", "v").merge(other).map(pass_on, schema=SCHEMA)
    windows = rows.window(ps.tumbling("10 s")).aggregate(n=ps.count(), vs=ps.sum("v"), first=ps.first("v"))
    expected = windows.collect(engine="reference").to_pylist()
    assert [row["n"] for row in expected] == [6, 6, 6]
    assert windows.collect(engine="local").to_pylist() == expected


@pytest.mark.parametrize("on", ["reference", "local"])
def test_a_late_row_is_saved_by_one_that_comes_behind_it_in_its_round(on: str) -> None:
    # After 100 the watermark is 100: 98 alone would be late for a gap of 2 s, with 99 it is in a session.
    rows_in = [[{"t": 100, "k": "b"}], [{"t": 98, "k": "a"}, {"t": 99, "k": "a"}]]
    graph = ps.PipeGraph("saved", chaining=False)
    reader = ps.read.batches(rows_in, schema={"t": "int64", "k": "string"})
    rows = graph.source(reader, time="t", time_unit="s", delay="0 s").filter(col("t") > 0, batch_size=1)
    pipe = rows.key_by("k").window(ps.session("2 s")).aggregate(ts=ps.collect("t"))
    sessions, late = graph.collect(pipe, pipe.late, engine=on)
    assert sorted(sessions.column("ts").to_pylist()) == [[98, 99], [100]]
    assert late.num_rows == 0


class Counts(ps.ProcessOperator):
    """Says with every row how many have come back before it."""

    control = ("back",)
    outputs = {"out": {"v": "int64", "seen": "int64"}}  # noqa: RUF012  # as users write it

    def __init__(self) -> None:
        self.seen = 0

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_all({"in": 1}):
            row: Any = ctx.inputs["in"].pop()
            await ctx.outputs["out"].push({"v": row.v, "seen": self.seen})

    def on_control(self, port: str, row: ps.Row) -> None:
        self.seen += 1


@pytest.mark.parametrize("batch", [1, 3])
def test_what_flows_back_comes_in_the_next_round_however_large_the_queues(batch: int) -> None:
    graph = ps.PipeGraph("back")
    rows = graph.source(ps.read.rows([{"v": v} for v in range(30)], batch=batch))
    (out,) = graph.operator(Counts(), inputs=[rows], name="counts")
    out.filter(col("v") >= 0, name="all").feed_back("counts", "back")
    expected = [v // batch * batch for v in range(30)]
    for seed in SEEDS:
        options = ps.LocalOptions(seed=seed, queue_size="unbounded")
        assert out.collect(engine="local", options=options).column("seen").to_pylist() == expected
    assert out.collect(engine="local").column("seen").to_pylist() == expected
