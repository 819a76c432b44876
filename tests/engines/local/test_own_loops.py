"""Own loops as users run them, rows as they come: the same rows in the same order as round by round."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock import col
from penstock.testing import assert_engines_agree
from tests.support import random_graphs

SCHEMA = {"t": "int64", "v": "int64"}


def events(n: int, batch: int) -> list[list[dict[str, int]]]:
    """Rows in disorder, cut into batches."""
    chance = random.Random(n)
    rows = [{"t": i // 4 + chance.randint(0, 5), "v": chance.randint(0, 99)} for i in range(n)]
    return [rows[i : i + batch] for i in range(0, n, batch)]


def read_events(graph: ps.PipeGraph, batches: list[list[dict[str, int]]], **options: Any) -> ps.MultiPipe:
    reader = ps.read.batches(batches, schema=SCHEMA)
    return graph.source(reader, time="t", time_unit="s", delay="6 s", **options)


class HoldAll(ps.ProcessOperator):
    """Takes all rows, and pushes their number and sum when no more can come."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"n": "int64", "s": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        n = total = 0
        while await ctx.wait_for_any({"in": 1}):
            row: Any = ctx.inputs["in"].pop()
            n, total = n + 1, total + row.v
        await ctx.outputs["out"].push({"n": n, "s": total})


class Threes(ps.ProcessOperator):
    """Three rows at a time, as they stand in the queue; the rest when no more can come."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64", "text": "string"}}

    async def process(self, ctx: ps.Context) -> None:
        port, over = ctx.inputs["in"], False
        while not over:
            over = not await ctx.wait_for_all({"in": 3})
            rows: list[Any] = [port.pop() for _ in range(min(3, len(port)))]
            if rows:
                text = " ".join(str(row.v) for row in rows)
                await ctx.outputs["out"].push({"v": rows[-1].v, "text": text})


class TwoPorts(ps.ProcessOperator):
    """Says of every row how many waited on the other port when it was taken."""

    inputs = ("a", "b")
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64", "waiting": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        a, b = ctx.inputs["a"], ctx.inputs["b"]
        while await ctx.wait_for_any({"a": 1, "b": 1}):
            for port, other in ((a, b), (b, a)):
                while len(port):
                    row: Any = port.pop()
                    await ctx.outputs["out"].push({"v": row.v, "waiting": len(other)})


class Limit(ps.ProcessOperator):
    """Marks every row with the latest value on its control port."""

    control = ("limit",)
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64", "limit": "int64"}}

    def __init__(self) -> None:
        self.limit = -1

    def on_control(self, port: str, row: ps.Row) -> None:
        self.limit = int(str(row["v"]))

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_any({"in": 1}):
            row: Any = ctx.inputs["in"].pop()
            await ctx.outputs["out"].push({"v": row.v, "limit": self.limit})


def test_a_loop_may_push_after_its_inputs_have_ended_on_a_timed_stream() -> None:
    graph = ps.PipeGraph("hold")
    pushed = read_events(graph, events(40, 7)).process(HoldAll(), name="hold")
    windows = pushed.window(ps.tumbling("5 s")).aggregate(s=ps.sum("s"), n=ps.sum("n"))
    expected = windows.collect(engine="reference").to_pylist()
    assert [row["n"] for row in expected] == [40]
    assert windows.collect(engine="local").to_pylist() == expected


@pytest.mark.parametrize("batch", [7, 50, 200])
def test_rows_of_branches_that_meet_reach_a_loop_by_time(batch: int) -> None:
    graph = ps.PipeGraph("meeting")
    small, large = read_events(graph, events(400, batch)).split(lambda row: int(row.v > 30), 2)
    together = small.with_columns(v=col("v") + 0).merge(large)
    loop = together.process(Threes(), name="threes")
    windows = loop.window(ps.tumbling("5 s"), name="w").aggregate(
        n=ps.count(), s=ps.sum("v"), texts=ps.collect("text")
    )
    expected = windows.collect(engine="reference").to_pylist()
    for seed in range(5):
        options = ps.LocalOptions(seed=seed, queue_size=1 + seed % 3)
        assert windows.collect(engine="local", options=options).to_pylist() == expected
    assert windows.collect(engine="local").to_pylist() == expected


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_a_round_that_comes_in_pieces_reaches_a_loop_by_time(batch: int) -> None:
    graph = ps.PipeGraph("pieces", chaining=False)
    rows = read_events(graph, events(200, batch)).filter(col("v") >= 0, batch_size=3, parallelism=2)
    loop = rows.process(Threes(), name="threes")
    expected = loop.collect(engine="reference").to_pylist()
    for seed in range(5):
        options = ps.LocalOptions(seed=seed, queue_size=1 + seed % 3)
        assert loop.collect(engine="local", options=options).to_pylist() == expected


@pytest.mark.parametrize("batch", [7, 50, 200])
def test_ports_of_one_source_get_the_rows_of_a_round_together(batch: int) -> None:
    graph = ps.PipeGraph("ports")
    rows = read_events(graph, events(400, batch))
    few = rows.filter(col("v") > 95)
    (out,) = graph.operator(TwoPorts(), inputs=[rows.with_columns(v=col("v") * 2), few], name="both")
    expected = out.collect(engine="reference").to_pylist()
    for seed in range(5):
        options = ps.LocalOptions(seed=seed, queue_size=1 + seed % 3)
        assert out.collect(engine="local", options=options).to_pylist() == expected
    assert out.collect(engine="local").to_pylist() == expected


class Pairs(TwoPorts):
    """Waits for a row on both ports, of which one has far more."""

    async def process(self, ctx: ps.Context) -> None:
        a, b = ctx.inputs["a"], ctx.inputs["b"]
        while await ctx.wait_for_all({"a": 1, "b": 1}):
            left: Any = a.pop()
            right: Any = b.pop()
            await ctx.outputs["out"].push({"v": left.v, "waiting": right.v})


def test_a_port_that_brings_more_than_its_sibling_does_not_block_their_source() -> None:
    graph = ps.PipeGraph("ports")
    rows = read_events(graph, events(400, 5))
    (out,) = graph.operator(Pairs(), inputs=[rows, rows.filter(col("v") > 95)], name="pairs")
    options = ps.LocalOptions(queue_size=1)
    expected = out.collect(engine="reference").to_pylist()
    assert out.collect(engine="local", options=options).to_pylist() == expected


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_control_of_the_same_source_comes_before_the_rows_of_its_round(batch: int) -> None:
    graph = ps.PipeGraph("control")
    rows = read_events(graph, events(200, batch))
    limits = rows.filter(col("v") > 70).with_columns(v=col("v") * 10)
    (out,) = graph.operator(Limit(), inputs=[rows], control=[limits], name="limit")
    expected = out.collect(engine="reference").to_pylist()
    for seed in range(5):
        options = ps.LocalOptions(seed=seed, queue_size=1 + seed % 3)
        assert out.collect(engine="local", options=options).to_pylist() == expected


class Floods(ps.ProcessOperator):
    """Pushes far more rows than fit on their way at once."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64", "i": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_any({"in": 1}):
            row: Any = ctx.inputs["in"].pop()
            for i in range(700):
                await ctx.outputs["out"].push({"v": row.v, "i": i})


class Counts(ps.ProcessOperator):
    """Says how many rows there were when it was resumed: where rounds are cut."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"n": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        port = ctx.inputs["in"]
        while await ctx.wait_for_any({"in": 1}):
            n = len(port)
            while len(port):
                port.pop()
            await ctx.outputs["out"].push({"n": n})


def test_a_round_ends_only_when_a_loop_has_pushed_all_that_it_makes_of_it() -> None:
    graph = ps.PipeGraph("flood")
    counts = (
        read_events(graph, events(30, 5)).process(Floods(), name="floods").process(Counts(), name="counts")
    )
    assert counts.collect(engine="reference").to_pylist() == [{"n": 3500}] * 6
    for size in (1, 16):
        options = ps.LocalOptions(queue_size=size)
        assert counts.collect(engine="local", options=options).to_pylist() == [{"n": 3500}] * 6


class Stubborn(ps.ProcessOperator):
    """Waits for the same again after it was told that it is over."""

    inputs = ("a", "b")
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        while True:
            if await ctx.wait_for_all({"a": 3, "b": 3}):
                row: Any = ctx.inputs["a"].pop()
                await ctx.outputs["out"].push({"v": row.v})


def test_a_loop_that_waits_for_what_is_over_is_closed_on_every_engine() -> None:
    graph = ps.PipeGraph("stubborn")
    rows = read_events(graph, events(40, 5))
    (out,) = graph.operator(Stubborn(), inputs=[rows, rows.filter(col("v") > 50)], name="stubborn")
    out.sink(ps.write.memory())
    assert_engines_agree(graph)


def test_a_loop_is_not_told_of_an_end_when_nothing_is_drained() -> None:
    graph = ps.PipeGraph("undrained")
    pushed = read_events(graph, events(40, 7)).process(HoldAll(), name="hold")
    for engine in ("reference", "local"):
        memory = ps.write.memory()
        pushed.sink(memory)
        graph.run(engine, drain=False)
        assert memory.rows() == []


@pytest.mark.parametrize("options", [ps.LocalOptions(), ps.LocalOptions(queue_size=1, seed=1)])
def test_a_loop_behind_one_of_several_sources_hears_of_their_end_after_their_last_row(
    options: ps.LocalOptions,
) -> None:
    """Channels that were read ahead of the rows that it had been given said that all was over."""

    def count_pairs(engine: str, how: ps.LocalOptions | None = None) -> tuple[int, list[dict[str, Any]]]:
        graph = ps.PipeGraph("ahead")
        feeds = [[{"key": "a", "value": n, "t": n // 4} for n in range(size)] for size in (60, 2)]
        left, right = (
            graph.source(
                ps.read.batches([[row] for row in rows], schema=random_graphs.EVENTS),
                time="t",
                time_unit="s",
                delay=1,
            )
            for rows in feeds
        )
        (both,) = graph.operator(random_graphs.Turns(), inputs=[left, right])
        even, odd = both.split(even=col("value") % 2 == 0, odd=col("value") % 2 != 0)
        (pairs,) = graph.operator(random_graphs.Pairs(), inputs=[even, odd], name="pairs")
        counts = pairs.key_by("key").window(ps.tumbling(3)).aggregate(n=ps.count())
        counts.sink(results := ps.write.memory())
        accounts = graph.run(engine, options=how).accounts
        return accounts["pairs"].unrouted, sorted(results.rows(), key=repr)

    assert count_pairs("local", options) == count_pairs("reference")
