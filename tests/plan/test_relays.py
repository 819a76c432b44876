"""A merged pipe can be used twice, as any pipe can."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.errors import GraphError

ROWS = [[{"t": t, "k": "ab"[t % 2], "v": t} for t in range(first, first + 4)] for first in (0, 4, 8)]
SCHEMA = {"t": "int64", "k": "string", "v": "int64"}


def pipes(graph: ps.PipeGraph, *names: str, **options: Any) -> list[Any]:
    output = []
    for name in names:
        reader = ps.read.batches(ROWS, schema=SCHEMA)
        source = graph.source(reader, time="t", time_unit="s", delay="9 s", name=name)
        output.append(source.with_columns(v=col("v") + 1, **options))
    return output


@pytest.mark.parametrize("on", ["reference", "local"])
@pytest.mark.parametrize("degree", [1, 2])
def test_all_readers_of_a_merged_pipe_get_all_rows(on: str, degree: int) -> None:
    graph = ps.PipeGraph("twice")
    one, other = pipes(graph, "one", "other", parallelism=degree)
    both = one.merge(other)
    small = both.filter(col("v") < 3)
    sums = both.key_by("k").window(ps.tumbling("20 s")).aggregate(s=ps.sum("v"))
    thrice = both.with_columns(v=col("v") * 3)
    rows = graph.collect(small, sums, thrice, engine=on)
    assert sorted(row["v"] for row in rows[0].to_pylist()) == [1, 1, 2, 2]
    assert {row["k"]: row["s"] for row in rows[1].to_pylist()} == {"a": 72, "b": 84}
    assert sum(row["v"] for row in rows[2].to_pylist()) == 3 * 2 * 78


def test_the_relay_is_in_the_plan_and_is_named_like_no_other_step() -> None:
    graph = ps.PipeGraph("named")
    one, other = pipes(graph, "one", "other")
    both = one.merge(other)
    both.filter(col("v") < 3, name="relay").sink(ps.write.memory())
    both.filter(col("v") > 3, name="great").sink(ps.write.memory())
    steps = {step.name: step for step in graph.plan()}
    assert (
        [ref.step for ref in steps["relay"].feeds]
        == ["relay-2"]
        == [ref.step for ref in steps["great"].feeds]
    )
    assert {ref.step for ref in steps["relay-2"].feeds} == {"with_columns", "with_columns-2"}
    assert "relay-2" not in graph.steps, "the graph itself is as it was written"


def test_where_the_rules_do_without_there_is_no_relay() -> None:
    graph = ps.PipeGraph("once")
    one, other = pipes(graph, "one", "other")
    one.merge(other).filter(col("v") < 3).sink(ps.write.memory())
    assert not any(step.op.verb == "relay" for step in graph.plan())


def test_pipes_that_cross_are_still_refused_in_the_words_of_what_was_written() -> None:
    graph = ps.PipeGraph("crossing")
    one, other, third = pipes(graph, "one", "other", "third")
    one.merge(other).filter(col("v") < 3, name="left").sink(ps.write.memory())
    one.merge(third).filter(col("v") < 3, name="right").with_columns(v=col("v")).sink(ps.write.memory())
    one.merge(other).filter(col("v") > 3, name="again").sink(ps.write.memory())
    with pytest.raises(GraphError, match="no rule merges") as refused:
        graph.plan()
    assert '"relay' not in str(refused.value)


def test_two_joins_of_the_same_pipes_meet_in_a_relay_of_the_term_and_not_of_the_plan() -> None:
    graph = ps.PipeGraph("twice")
    one, other = pipes(graph, "one", "other")
    for name, on in (("same", "k"), ("near", ps.band("v", 1))):
        one.join(other, on=on, within="1 s", suffix="_r", name=name).sink(ps.write.memory())
    assert "relay" not in {step.name for step in graph.plan()}, "rows go straight to both"
    derived = str(graph.plan().derived)
    assert "merge-ind    relay  (with_columns, with_columns-2)" in derived
    assert "split        relay  (S_copy to same, near)" in derived


def test_joins_that_share_some_of_their_pipes_meet_in_one_relay() -> None:
    graph = ps.PipeGraph("triangle")
    one, other, third = pipes(graph, "one", "other", "third")
    for left, right, name in ((one, other, "first"), (other, third, "second"), (third, one, "third_join")):
        left.join(right, on="k", within="1 s", suffix="_r", name=name).sink(ps.write.memory())
    derived = str(graph.plan().derived)
    assert "merge-ind    relay  (with_columns, with_columns-2, with_columns-3)" in derived
    assert "split        relay  (S_copy to first, second, third_join)" in derived


def test_a_join_of_a_pipe_with_what_it_was_joined_to_is_refused() -> None:
    graph = ps.PipeGraph("again")
    one, other = pipes(graph, "one", "other")
    first = one.join(other, on="k", within="1 s", suffix="_r", name="first")
    one.join(first, on="k", within="1 s", suffix="_s", name="second").sink(ps.write.memory())
    with pytest.raises(
        GraphError, match=r'no rule merges "with_columns.out>first" and "with_columns-2" into "first"'
    ):
        graph.plan()
