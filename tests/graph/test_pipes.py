"""Pipes and steps: names, immutability, operator objects, ports, splits and loops."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock import col
from penstock.plan.plan import Ref
from tests.support.trades import TRADES, trades

PAID = col("paid")
ONE = {"n": "int64"}


def test_steps_are_named_after_their_verbs_and_numbered_from_the_second_on() -> None:
    pipe = trades()
    pipe.filter(PAID).filter(PAID).with_columns(x=col("n")).filter(PAID)
    assert tuple(pipe.graph.steps) == ("trades", "filter", "filter-2", "with_columns", "filter-3")


def test_a_made_up_name_makes_way_for_one_that_was_given() -> None:
    pipe = trades()
    pipe.filter(PAID, name="filter-2").filter(PAID).filter(PAID)
    assert tuple(pipe.graph.steps) == ("trades", "filter-2", "filter", "filter-3")


def test_every_verb_has_a_name_of_its_own() -> None:
    pipe = trades().key_by("user")
    pipe.select("n")
    pipe.flat_map(tags=col("tags"))
    pipe.accumulate(lambda row, s: s, 0, schema={"c": "int64"})
    pipe.window(ps.tumbling("1 s")).aggregate(c=ps.count())
    pipe.join(pipe, on="user", within="1 s", suffix="_r")
    pipe.join_table([{"item": "x", "label": "y"}], on="item")
    pipe.split(PAID.cast("int64"), 2)
    pipe.sink(ps.write.memory())
    assert tuple(pipe.graph.steps)[1:] == (
        "select", "flat_map", "accumulate", "window", "join", "join_table", "split", "sink",
    )  # fmt: skip


def test_a_pipe_used_twice_is_the_same_pipe_both_times() -> None:
    pipe = trades()
    before = (pipe.feeds, pipe.stream)
    cheap, dear = pipe.filter(col("price") < 1), pipe.filter(col("price") >= 1)
    assert (pipe.feeds, pipe.stream) == before
    assert pipe.graph.steps["filter"].feeds == pipe.graph.steps["filter-2"].feeds == pipe.feeds
    assert cheap.feeds != dear.feeds


def test_key_by_gives_another_pipe_and_leaves_its_own_alone() -> None:
    pipe = trades()
    keyed = pipe.key_by("user")
    assert (pipe.stream.key, keyed.stream.key) == ((), ("user",))
    assert len(pipe.graph.steps) == 1


def test_a_pipe_takes_no_new_attributes() -> None:
    with pytest.raises(AttributeError):
        trades().anything = 1  # type: ignore[attr-defined]  # the point


def test_the_branches_of_a_split_are_found_by_name_index_and_position() -> None:
    pipe = trades()
    first, second = pipe.split(col("n"), 2, name="halves")
    assert first.feeds == (Ref("halves", "0"),)
    assert second.feeds == (Ref("halves", "1"),)
    kinds = trades().split(paid=PAID, open=~PAID)
    assert (len(kinds), kinds["open"].feeds) == (2, (Ref("split", "open"),))
    assert trades().split(col("n"), 3)[1].feeds == (Ref("split", "1"),)


def test_a_split_of_a_branch_or_of_merged_pipes_parts_what_a_relay_gives() -> None:
    pipe = trades()
    first, second = pipe.split(col("n"), 2)
    first.split(col("n"), 2)
    second.merge(pipe).split(col("n"), 2)
    assert tuple(pipe.graph.steps) == ("trades", "split", "relay", "split-2", "relay-2", "split-3")


def test_a_split_object_gives_every_branch_through_graph_operator() -> None:
    pipe = trades()
    paid, open_ = pipe.graph.operator(ps.Split(None, {"paid": PAID, "open": ~PAID}), inputs=[pipe])
    assert (paid.feeds, open_.feeds) == ((Ref("split", "paid"),), (Ref("split", "open"),))


def test_a_merged_pipe_has_the_feeds_of_all_in_order() -> None:
    pipe = trades()
    more, most = trades(pipe.graph, name="more"), trades(pipe.graph, name="most")
    assert pipe.merge(more, most).feeds == (Ref("trades"), Ref("more"), Ref("most"))
    assert pipe.merge(more).merge(most).feeds == pipe.merge(more, most).feeds


def test_a_step_is_found_by_name_with_its_side_outputs() -> None:
    pipe = trades()
    views = pipe.window(ps.tumbling("1 s"), name="views", on_error="dead_letter").aggregate(n=ps.count())
    assert pipe.graph["views"].stream == views.stream
    assert pipe.graph["views"].late.feeds == (Ref("views", "late"),)
    assert pipe.graph["views"].errors.feeds == (Ref("views", "errors"),)


def test_operator_objects_make_the_same_steps_as_verbs() -> None:
    verbs, objects = trades(), trades()
    verbs.filter(PAID, name="f").with_columns({"x": col("n")}, name="m").sink(ps.write.memory())
    added = objects.chain(ps.Filter(PAID, name="f")).chain(ps.WithColumns({"x": col("n")}, name="m"))
    added.chain(ps.Sink(ps.write.memory()))
    ours = [(step.name, step.outputs, step.routing, step.fuse) for step in verbs.graph.steps.values()]
    theirs = [(step.name, step.outputs, step.routing, step.fuse) for step in objects.graph.steps.values()]
    assert ours == theirs


def test_an_operator_object_may_bring_its_own_key() -> None:
    def seen(row: Any, state: list[Any]) -> dict[str, Any]:
        return {"n": 1}

    pipe = trades().add(ps.Map(seen, ONE, list, key="user"))
    assert pipe.graph.steps["map"].up.key == ("user",)
    counts = trades().add(ps.KeyedWindows(ps.tumbling("1 s"), {"c": ps.count()}, key=["user", "item"]))  # type: ignore[arg-type]  # a list does too
    assert counts.stream.key == ("user", "item")


def test_a_source_object_starts_a_pipe() -> None:
    rows = ps.read.rows([], schema=TRADES)
    pipe = ps.PipeGraph("shop").add_source(ps.Source(rows, time="at", delay="1 s", name="mine"))
    assert pipe.feeds == (Ref("mine"),)


def test_the_patterns_of_windows_are_the_four_operators() -> None:
    pattern: Any
    for pattern, kind in (
        ("auto", ps.KeyedWindows),
        ("keyed", ps.KeyedWindows),
        ("parallel", ps.ParallelWindows),
        ("paned", ps.PanedWindows),
        ("map_reduce", ps.MapReduceWindows),
    ):
        pipe = trades().key_by("user").window(ps.tumbling("1 s"), pattern=pattern).aggregate(n=ps.count())
        assert type(pipe.graph.steps["window"].op) is kind


class Join(ps.ProcessOperator):
    """Two inputs, two outputs, one control port."""

    inputs = ("bids", "asks")
    outputs: ClassVar[Mapping[str, Any]] = {"pairs": ONE, "rest": {"item": "string"}}
    control = ("limit",)

    async def process(self, ctx: ps.Context) -> None:
        raise AssertionError("never run here")


def test_graph_operator_gives_one_pipe_per_output_port() -> None:
    pipe = trades()
    asks = trades(pipe.graph, name="asks")
    pairs, rest = pipe.graph.operator(Join(), inputs=[pipe, asks], control=[asks], name="join")
    assert (pairs.feeds, pairs.schema.names) == ((Ref("join", "pairs"),), ["n"])
    assert (rest.feeds, rest.schema.names) == ((Ref("join", "rest"),), ["item"])
    inputs = [(fed.port, fed.feeds, fed.control) for fed in pipe.graph.steps["join"].inputs]
    assert inputs == [
        ("bids", (Ref("trades"),), False),
        ("asks", (Ref("asks"),), False),
        ("limit", (Ref("asks"),), True),
    ]


def test_a_stream_join_object_takes_its_two_inputs_through_graph_operator() -> None:
    pipe = trades().select("user", "n")
    right = trades(pipe.graph, name="right").select("user", "price")
    pairs, late, late_right = pipe.graph.operator(ps.StreamJoin("user", "1 s"), inputs=[pipe, right])
    assert pairs.schema.names == ["user", "n", "price"]
    assert (late.stream, late_right.stream) == (pipe.stream, right.stream)


def test_a_loop_is_one_more_feed_of_a_control_port() -> None:
    pipe = trades()
    asks = trades(pipe.graph, name="asks")
    pairs, _ = pipe.graph.operator(Join(), inputs=[pipe, asks], name="join")
    pairs.filter(col("n") > 9, name="over").feed_back("join", "limit")
    pairs.filter(col("n") < 0, name="under").feed_back("join", "limit")
    step = pipe.graph.steps["join"]
    assert [fed.port for fed in step.inputs] == ["bids", "asks", "limit"]
    assert step.inputs[-1].feeds == (Ref("over"), Ref("under"))
    assert step.data_feeds == (Ref("trades"), Ref("asks"))


def test_a_pipe_and_a_graph_say_what_they_are() -> None:
    pipe = trades().select("user", "n")
    assert repr(pipe) == "MultiPipe(select: user: string, n: int64)"
    assert repr(pipe.graph) == "PipeGraph('shop', 2 steps)"
    assert repr(pipe.sink(ps.write.memory())) == "SinkHandle('sink')"


def test_options_of_engines_are_plain_data_with_good_defaults() -> None:
    assert ps.LocalOptions().scheduler == "throughput"
    assert ps.LocalOptions(elastic=ps.Elastic(high=0.8)).elastic == ps.Elastic(high=0.8)
    assert ps.SparkOptions(partitions=8).partitions == 8
    with pytest.raises(TypeError):
        ps.LocalOptions(2)  # type: ignore[call-arg]  # keywords only


def test_threads_that_build_one_graph_lose_no_step() -> None:
    pipe = trades()
    meet = threading.Barrier(4)

    def build() -> None:
        meet.wait()
        for _ in range(100):
            pipe.filter(PAID)

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pipe.graph.steps) == 401
