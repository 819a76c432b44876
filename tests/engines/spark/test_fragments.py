"""Where a plan is cut: rows are exchanged only where their key asks for it, and never twice for one key."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock import col
from penstock.engines.spark.fragments import DRIVER, Fragments, split_into_fragments
from penstock.operators.op import LATE, OUT
from penstock.plan.plan import Plan, Ref

SCHEMA = {"t": "int64", "a": "string", "b": "string", "v": "int64"}


class Graph:
    """A graph under construction, and then its fragments."""

    def __init__(self) -> None:
        self.graph = ps.PipeGraph("split")

    def source(self, name: str = "rows") -> ps.MultiPipe:
        reader = ps.read.batches([], schema=SCHEMA)
        return self.graph.source(reader, time="t", time_unit="s", delay="1 s", name=name)

    def fragments(self, *pipes: ps.MultiPipe) -> list[list[str]]:
        for number, pipe in enumerate(pipes):
            pipe.sink(ps.write.memory(), name=f"sink {number}")
        self.plan: Plan = self.graph.plan()
        self.split: Fragments = split_into_fragments(self.plan)
        return [[step.name for step in fragment.steps] for fragment in self.split.fragments]

    def edges(self) -> set[tuple[str, int, str | None, Any]]:
        return {(str(edge.ref.step), edge.fragment, edge.step, edge.key) for edge in self.split.edges}


def sum_windows(pipe: ps.MultiPipe, name: str, **options: Any) -> ps.MultiPipe:
    return pipe.window(ps.tumbling("10 s"), name=name, **options).aggregate(v=ps.sum("v"))


def test_steps_that_need_nothing_but_the_row_are_one_leg_without_an_exchange() -> None:
    graph = Graph()
    pipe = graph.source().filter(col("v") > 0, name="f").with_columns(v=col("v") + 1, name="m")
    assert graph.fragments(pipe) == [["f", "m"]]
    assert not graph.split.fragments[0].keyed
    assert graph.edges() == {("rows", 0, "f", None), ("m", DRIVER, "sink 0", None)}


def test_a_graph_without_steps_has_no_legs() -> None:
    graph = Graph()
    assert graph.fragments(graph.source()) == []
    assert graph.edges() == {("rows", DRIVER, "sink 0", None)}


def test_windows_begin_a_leg_behind_an_exchange_by_their_key() -> None:
    graph = Graph()
    pipe = sum_windows(graph.source().filter(col("v") > 0, name="f").key_by("a"), "w")
    assert graph.fragments(pipe) == [["f"], ["w"]]
    assert ("f", 1, "w", ("a",)) in graph.edges()


def test_windows_after_windows_on_the_same_key_stay_in_the_leg() -> None:
    graph = Graph()
    first = sum_windows(graph.source().key_by("a"), "w")
    second = first.with_columns(v=col("v") * 2, name="m").window(ps.tumbling("1 min"), name="ww")
    assert graph.fragments(second.aggregate(s=ps.sum("v"))) == [[], ["w", "m", "ww"]]


def test_another_key_is_another_leg() -> None:
    graph = Graph()
    first = sum_windows(graph.source().key_by("a", "b"), "w")
    assert graph.fragments(sum_windows(first.key_by("b"), "ww")) == [[], ["w"], ["ww"]]


def test_a_map_that_changes_the_key_column_ends_what_lies_by_it() -> None:
    graph = Graph()
    first = sum_windows(graph.source().key_by("a"), "w").with_columns(a=ps.lit("x"), name="m").key_by("a")
    assert graph.fragments(sum_windows(first, "ww")) == [[], ["w", "m"], ["ww"]]


def test_windows_without_a_key_are_a_leg_of_their_own() -> None:
    graph = Graph()
    assert graph.fragments(sum_windows(graph.source(), "w")) == [[], ["w"]]
    assert ("rows", 1, "w", ()) in graph.edges()


def test_state_by_key_is_kept_behind_an_exchange() -> None:
    graph = Graph()
    pipe = graph.source().key_by("a").accumulate(lambda row, n: n + 1, 0, schema={"n": int}, name="acc")
    assert graph.fragments(pipe) == [[], ["acc"]]


def test_a_merge_across_legs_waits_for_the_later_one_and_exchanges_both() -> None:
    graph = Graph()
    rows = graph.source().filter(col("v") > 0, name="f").select("a", "v")
    sums = sum_windows(graph.source("more").key_by("a"), "w").select("a", "v")
    merged = rows.merge(sums).key_by("a")
    fragments = graph.fragments(sum_windows(merged, "all"))
    assert fragments[0][0] == "f"
    assert [name for name in fragments[1] if name == "w"] == ["w"]
    assert fragments[2] == ["all"]
    into = {(edge.ref.step, edge.key) for edge in graph.split.edges if edge.step == "all"}
    assert len(into) == 2
    assert {key for _, key in into} == {("a",)}


def test_late_rows_are_worked_on_where_they_come_out_and_do_not_lie_by_key() -> None:
    graph = Graph()
    sums = sum_windows(graph.source().key_by("a"), "w")
    again = sum_windows(sums.late.key_by("a"), "again")
    assert graph.fragments(sums, again) == [[], ["w"], ["again"]]


def test_rows_used_twice_leave_a_leg_once_for_each_reader() -> None:
    graph = Graph()
    rows = graph.source().filter(col("v") > 0, name="f")
    graph.fragments(sum_windows(rows.key_by("a"), "w"), sum_windows(rows.key_by("b"), "x"), rows)
    leaving = [edge for edge in graph.split.edges if edge.ref == Ref("f", OUT)]
    assert sorted((edge.fragment, edge.step, edge.key) for edge in leaving if edge.key) == [
        (1, "w", ("a",)),
        (1, "x", ("b",)),
    ]
    assert [edge.step for edge in leaving if edge.fragment == DRIVER] == ["sink 2"]


def test_homes_name_the_leg_of_every_step() -> None:
    graph = Graph()
    graph.fragments(sum_windows(graph.source().filter(col("v") > 0, name="f").key_by("a"), "w"))
    assert graph.split.placement == {"rows": DRIVER, "f": 0, "w": 1, "sink 0": DRIVER}


def test_windows_whose_late_rows_are_worked_on_behind_the_exchange_are_sent_rows_only() -> None:
    graph = Graph()
    sums = sum_windows(graph.source().key_by("a"), "w")
    graph.fragments(sums, sums.late.filter(col("v") > 0, name="behind"))
    assert "w" not in graph.split.partials
    assert any(edge.ref == Ref("w", LATE) or edge.ref.step == "behind" for edge in graph.split.edges)


def test_a_join_begins_a_leg_of_its_own_which_the_steps_behind_it_share() -> None:
    graph = Graph()
    left, right = graph.source("left"), graph.source("right").select("a", w=col("v"))
    pairs = left.join(right, on="a", within="5 s", name="j").filter(col("w") > 0, name="f")
    counts = pairs.key_by("a").window(ps.tumbling("10 s"), name="w").aggregate(n=ps.count())
    assert graph.fragments(counts) == [["select"], ["j", "f"], ["w"]]
    ports = {(edge.ref.step, edge.port) for edge in graph.split.edges if edge.join is not None}
    assert ports == {("left", "left"), ("select", "right")}
    assert ("f", 2, "w", ("a",)) in graph.edges()


def test_both_sides_of_a_stream_that_is_joined_with_itself_are_sent() -> None:
    graph = Graph()
    rows = graph.source()
    graph.fragments(rows.join(rows, on=ps.band("v", 2), within="5 s", suffix="_right", name="j"))
    ports = [(edge.ref.step, edge.port) for edge in graph.split.edges if edge.join is not None]
    assert ports == [("rows", "left"), ("rows", "right")]
