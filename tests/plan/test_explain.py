from __future__ import annotations

import json

import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from penstock.graph.run import resolve_engine
from penstock.plan.explain import WIDTH, explain_plan
from penstock.plan.plan import Plan, Ref
from tests.support import plan_graphs as graphs

SMALL = {"a": "int64", "b": "float64"}


def wide(n: int) -> ps.PipeGraph:
    graph = ps.PipeGraph("wide")
    schema = pa.schema([(f"column_{i}", pa.int64()) for i in range(n)])
    graph.source(ps.read.rows([], schema=schema)).sink(ps.write.memory())
    return graph


def test_a_schema_of_36_columns_is_cut_and_says_how_many_are_left_out() -> None:
    text = wide(36).explain()
    assert "column_23 int64 … and 12 more columns" in text
    assert "column_24" not in text


def test_one_column_too_many_is_counted_in_the_singular() -> None:
    assert "… and 1 more column\n" in wide(25).explain()


def test_long_lines_are_wrapped_between_columns_never_between_a_name_and_its_type() -> None:
    lines = wide(24).explain().splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert all(line.strip().startswith(("gives", "column_")) for line in lines if "column_" in line)
    assert all(line.rstrip(",").endswith("int64") for line in lines if "column_" in line)


def test_late_rows_that_nobody_reads_are_said_to_be_only_counted() -> None:
    graph = ps.PipeGraph("g")
    source = graph.source(ps.read.rows([], schema=graphs.EVENTS), time="event_time", delay="1 s")
    source.window(ps.tumbling("1 s")).aggregate(n=ps.count()).sink(ps.write.memory())
    text = graph.explain()
    assert "late        nobody reads it: its rows are only counted" in text
    assert "all in one group" in text


def test_dead_lettered_rows_are_listed_with_their_reader() -> None:
    graph = ps.PipeGraph("g")
    mapped = graph.source(ps.read.rows([], schema=SMALL)).with_columns(a=col("a") + 1, on_error="dead_letter")
    mapped.sink(ps.write.memory())
    mapped.errors.sink(ps.write.memory(), name="bad rows")
    assert "errors      read by bad rows" in graph.explain()


def test_an_elastic_step_says_its_range_of_replicas() -> None:
    graph = ps.PipeGraph("g")
    graph.source(ps.read.rows([], schema=SMALL)).with_columns(a=col("a"), parallelism=(1, 8)).sink(
        ps.write.memory()
    )
    assert "1 to 8 replicas, forward, " in graph.explain()


def test_every_routing_but_forward_is_named() -> None:
    graph = ps.PipeGraph("g")
    pipe = graph.source(ps.read.rows([], schema=SMALL))
    pipe = pipe.with_columns(a=col("a"), routing="rebalance", parallelism=2)
    pipe.with_columns(a=col("a"), routing="broadcast", parallelism=3).sink(ps.write.memory())
    assert "2 replicas, rebalance, " in graph.explain()
    assert "3 replicas, broadcast, " in graph.explain()


def test_a_long_fused_stage_names_three_steps_and_counts_the_rest() -> None:
    graph = ps.PipeGraph("g")
    pipe = graph.source(ps.read.rows([], schema=SMALL))
    for _ in range(6):
        pipe = pipe.with_columns(a=col("a") + 1)
    pipe.sink(ps.write.memory())
    assert "one stage with with_columns, with_columns-2, with_columns-3 and 4 more" in graph.explain()


def test_steps_that_no_sink_needs_are_listed_as_not_run() -> None:
    graph = graphs.campaign_views()
    graph["filter"].with_columns(price=col("price"), name="forgotten")
    text = graph.explain()
    assert text.endswith("\nNot run, because no sink needs it\n   forgotten\n")


def test_what_the_engine_chose_is_printed_in_its_own_part() -> None:
    text = explain_plan(graphs.join().plan(), engine=["pairs: scan, 6 workers"])
    assert "\nEngine\n   pairs: scan, 6 workers\n" in text
    assert "Building blocks" not in text


def test_a_collected_port_says_so() -> None:
    graph = graphs.split_and_merge()
    plan = Plan("g", tuple(graph.steps.values()), collects=(Ref("kinds", "view"),))
    assert "branch      view, read by dear, collected" in explain_plan(plan)


def test_control_characters_in_a_column_s_name_do_not_break_lines() -> None:
    graph = ps.PipeGraph("odd")
    graph.source(ps.read.rows([], schema={"two\nlines": int})).sink(ps.write.memory())
    assert any("two lines int64" in line for line in graph.explain().splitlines())


def test_the_json_holds_every_column_and_what_else_the_text_says() -> None:
    graph = wide(36)
    graph["source"].select("column_0", name="forgotten")
    data = json.loads(graph.explain("reference", format="json"))
    assert data["graph"] == "wide"
    assert len(data["steps"][0]["gives"]["out"]["columns"]) == 36
    assert data["blocks"].startswith("Pipe\n")
    assert data["derivation"][0] == "1. create       source"
    assert data["engine"] == list(resolve_engine("reference").explain(graph.plan()))
    assert data["not_run"] == ["forgotten"]


def test_a_format_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ps.GraphError, match="format='yaml' is unknown"):
        wide(1).explain(format="yaml")  # type: ignore[arg-type]  # that is what is refused


def test_the_json_says_who_reads_whom_and_how() -> None:
    steps = {
        step["name"]: step for step in json.loads(graphs.campaign_views().explain(format="json"))["steps"]
    }
    assert steps["views"]["reads"] == [{"port": "in", "feeds": ["campaigns"], "control": False}]
    assert steps["views"]["routing"] == "key_by"
    assert steps["views"]["degree"] == {"least": 4, "most": 4}
    assert steps["views"]["key"] == ["campaign_id"]
    assert steps["views"]["gives"]["late"]["read_by"] == ["late-rows"]
    assert steps["filter"]["fused_with"] == "events"
    assert steps["events"]["fused_with"] is None
    assert steps["late-rows"]["reads"][0]["feeds"] == ["views.late"]
