"""Nodes and channels under hard conditions: diamonds, queues of one, operators that end or raise, threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock import col

WAYS: list[dict[str, Any]] = [
    {"deterministic": True, "seed": 1},
    {"seed": 2},
    {"threads": 1},
    {"threads": 3},
    {"threads": "per-task"},
    {"threads": 2, "channels": "blocking", "scheduler": "latency"},
    {"threads": 2, "channels": "spinning", "deterministic": True},
    {"threads": 2, "pinning": True},
    {"seed": 3, "composition": "dedicated"},
    {"seed": 4, "composition": "centralised"},
]


@pytest.fixture(params=WAYS, ids=str)
def options(request: pytest.FixtureRequest) -> ps.LocalOptions:
    """Every way to run, with queues of one message."""
    return ps.LocalOptions(queue_size=1, **request.param)


def numbers(graph: ps.PipeGraph, n: int, batch: int = 3, name: str | None = None) -> ps.MultiPipe:
    """A source of 0 to n in small batches."""
    rows = [{"v": i} for i in range(n)]
    batches = [rows[i : i + batch] for i in range(0, n, batch)]
    return graph.source(ps.read.batches(batches, schema={"v": "int64"}), name=name)


def values(memory: Any) -> list[int]:
    return [row["v"] for row in memory.rows()]


def no_threads_left() -> bool:
    """Whether all threads of runs are gone."""
    return not [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]


class Barrier(ps.ProcessOperator):
    """One row of each input makes one row (C-Stream, Listing 2)."""

    inputs = ("a", "b")
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"a": "int64", "b": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_all({"a": 1, "b": 1}):
            a, b = ctx.inputs["a"].pop(), ctx.inputs["b"].pop()
            await ctx.outputs["out"].push({"a": a["v"], "b": b["v"]})


def test_a_barrier_on_inputs_of_unequal_length_ends_and_counts_what_was_sent_to_it(
    options: ps.LocalOptions,
) -> None:
    graph, memory = ps.PipeGraph("pairs"), ps.write.memory()
    pipes = [numbers(graph, 40, name="a"), numbers(graph, 7, name="b")]
    (pairs,) = graph.operator(Barrier(), inputs=pipes, name="barrier")
    pairs.sink(memory)
    account = graph.run("local", options=options).accounts["barrier"]
    assert [(row["a"], row["b"]) for row in memory.rows()] == [(i, i) for i in range(7)]
    assert (account.passed, account.unrouted, account.rows_in) == (14, 33, 47)
    assert no_threads_left()


def test_a_barrier_behind_unequal_branches_of_one_stream_does_not_hang(options: ps.LocalOptions) -> None:
    #  b gets a row for every ten of a, so a's rows must wait somewhere: queues of one are too short
    graph, memory = ps.PipeGraph("diamond"), ps.write.memory()
    rows = numbers(graph, 60, 1)
    rare = rows.filter(col("v") % 10 == 9)
    (pairs,) = graph.operator(Barrier(), inputs=[rows.with_columns(v=col("v") + 0), rare])
    pairs.sink(memory)
    graph.run("local", options=options)
    assert [(row["a"], row["b"]) for row in memory.rows()] == [(i, 10 * i + 9) for i in range(6)]


def test_branches_that_meet_again_lose_and_double_nothing(options: ps.LocalOptions) -> None:
    graph, memory = ps.PipeGraph("diamonds", chaining=False), ps.write.memory()
    pipe = numbers(graph, 50)
    for _ in range(3):
        low, high = pipe.split(col("v") % 2, 2)
        pipe = low.with_columns(v=col("v") + 0).merge(high.with_columns(v=col("v") + 0).filter(col("v") >= 0))
    pipe.sink(memory)
    graph.run("local", options=options)
    assert sorted(values(memory)) == list(range(50))


def test_batches_sent_round_robin_to_replicas_come_back_in_order(options: ps.LocalOptions) -> None:
    graph, memory = ps.PipeGraph("order", chaining=False), ps.write.memory()
    odd = numbers(graph, 90, 4).filter(col("v") % 3 != 0, parallelism=3)
    twice = odd.flat_map(lambda row: [{"v": row.v}] * (row.v % 2 + 1), schema={"v": "int64"}, parallelism=3)
    twice.with_columns(v=col("v") + 0, parallelism=1).sink(memory)
    graph.run("local", options=options)
    assert values(memory) == [v for v in range(90) if v % 3 for _ in range(v % 2 + 1)]


class First(ps.ProcessOperator):
    """Gives the first rows only, then returns."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        for _ in range(5):
            if await ctx.wait_for_all({"in": 1}):
                await ctx.outputs["out"].push(ctx.inputs["in"].pop())


def test_who_writes_to_an_operator_that_has_returned_goes_on(options: ps.LocalOptions) -> None:
    graph, first, all_rows = ps.PipeGraph("first"), ps.write.memory(), ps.write.memory()
    rows = numbers(graph, 100)
    rows.process(First(), name="first").sink(first)
    rows.with_columns(v=col("v") + 0).sink(all_rows)
    account = graph.run("local", options=options).accounts["first"]
    assert (values(first), values(all_rows)) == (list(range(5)), list(range(100)))
    assert (account.rows_in, account.passed, account.unrouted) == (100, 5, 95)


class Flood(ps.ProcessOperator):
    """Pushes much more than it takes."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        await ctx.wait_for_all({"in": 1})
        for i in range(5000):
            await ctx.outputs["out"].push({"v": i})


def test_an_operator_that_pushes_without_end_waits_for_room(options: ps.LocalOptions) -> None:
    graph, memory = ps.PipeGraph("flood", chaining=False), ps.write.memory()
    numbers(graph, 3).process(Flood()).filter(col("v") % 2 == 0).sink(memory)
    graph.run("local", options=options)
    assert values(memory) == list(range(0, 5000, 2))


class Asks(ps.ProcessOperator):
    """Asks for rows of a port again and again after it was told that they are over."""

    inputs = ("a", "b")
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        while True:
            if await ctx.wait_for_all({"a": 1}):
                await ctx.outputs["out"].push(ctx.inputs["a"].pop())


def test_an_operator_that_waits_for_what_is_over_is_ended(options: ps.LocalOptions) -> None:
    graph, memory = ps.PipeGraph("asks"), ps.write.memory()
    (out,) = graph.operator(Asks(), inputs=[numbers(graph, 4, name="a"), numbers(graph, 50, name="b")])
    out.sink(memory)
    graph.run("local", options=options)
    assert values(memory) == list(range(4))


def fails_at_20(row: Any) -> dict[str, int]:
    """The row, but for one."""
    if row.v == 20:
        raise ValueError("twenty")
    return {"v": row.v}


def test_when_a_step_raises_everything_stops_and_the_step_is_named(options: ps.LocalOptions) -> None:
    graph, memory, other = ps.PipeGraph("fails", chaining=False), ps.write.memory(), ps.write.memory()
    rows = numbers(graph, 3000)
    rows.map(fails_at_20, schema={"v": "int64"}, name="bad").filter(col("v") >= 0).sink(memory)
    rows.filter(col("v") > 5).sink(other)
    with pytest.raises(ps.FunctionError, match="twenty") as failure:
        graph.run("local", options=options)
    assert failure.value.step == "bad"
    assert no_threads_left()


@pytest.mark.slow
def test_in_rounds_all_rounds_before_a_failure_are_written() -> None:
    for seed in range(20):
        graph, memory = ps.PipeGraph("fails", chaining=False), ps.write.memory()
        rows = numbers(graph, 3000)
        rows.map(fails_at_20, schema={"v": "int64"}).filter(col("v") >= 0).sink(memory)
        with pytest.raises(ps.FunctionError):
            graph.run("local", options=ps.LocalOptions(deterministic=True, seed=seed, queue_size=2))
        assert values(memory) == list(range(18))


def test_of_several_failures_in_rounds_the_earliest_is_told() -> None:
    def fails_at_10(row: Any) -> dict[str, int]:
        if row.v == 10:
            raise ValueError("ten")
        return {"v": row.v}

    for seed in range(20):
        graph = ps.PipeGraph("fails", chaining=False)
        rows = numbers(graph, 300)
        rows.map(fails_at_20, schema={"v": "int64"}, name="first").sink(ps.write.memory())
        slow = rows.filter(col("v") >= 0).filter(col("v") >= 0)
        slow.map(fails_at_10, schema={"v": "int64"}, name="second").sink(ps.write.memory())
        with pytest.raises(ps.FunctionError, match="ten"):
            graph.run("local", options=ps.LocalOptions(deterministic=True, seed=seed))


def test_until_and_stop_leave_nothing_half_way(options: ps.LocalOptions) -> None:
    graph, memory = ps.PipeGraph("until"), ps.write.memory()
    a, b = numbers(graph, 30, name="a"), numbers(graph, 30, name="b")
    a.merge(b).sink(memory)
    result = graph.run("local", options=options, until=4)
    assert (result.outcome, result.batches) == ("stopped", 4)
    assert sorted(values(memory)) == sorted([*range(12), *range(12)])


def test_a_run_stopped_at_any_time_accounts_for_every_row(options: ps.LocalOptions) -> None:
    graph, memory = ps.PipeGraph("stop"), ps.write.memory()
    pipes = [numbers(graph, 3000, 1, name=name) for name in "ab"]
    pipes[0].merge(pipes[1]).with_columns(v=col("v") + 0, name="m").sink(memory)
    heard: list[ps.events.Event] = []
    ready, held = threading.Event(), threading.Event()

    def listen(event: ps.events.Event) -> None:
        heard.append(event)
        if len(heard) == 50:
            ready.set()
            held.wait(10)

    run = graph.start("local", options=options, events=listen)
    assert ready.wait(10)
    run.stop()
    held.set()
    accounts = run.wait(10).accounts
    assert accounts["m"].rows_in == accounts["a"].rows_in + accounts["b"].rows_in < 6000
    assert len(memory.rows()) == accounts["m"].rows_out


@pytest.mark.parametrize("options", [{}, {"threads": "per-task"}, {"seed": 1}])
def test_a_function_of_a_run_cannot_wait_for_its_end(options: dict[str, Any]) -> None:
    graph, begun = ps.PipeGraph("itself"), threading.Event()
    started: list[Any] = []

    def waits(rows: object) -> None:
        assert begun.wait(60)
        started[0].wait()

    graph.source(ps.read.rows([{"v": 1}])).sink(ps.write.callback(waits), name="out")
    started.append(graph.start("local", options=ps.LocalOptions(**options)))
    begun.set()
    with pytest.raises(ps.PenstockError, match="waits for the end of that run") as failure:
        started[0].wait(60)
    assert "stop() may be called anywhere" in str(failure.value)
