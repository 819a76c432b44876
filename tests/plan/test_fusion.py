from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings

import penstock as ps
from penstock import col
from penstock.plan.building_blocks import derive_blocks
from penstock.plan.plan import Plan, group_fused
from tests.support import plan_graphs as graphs
from tests.support.random_plans import random_graphs


def plan_of(graph: ps.PipeGraph) -> Plan:
    return Plan(graph.name, tuple(graph.steps.values()))


def fused_steps(graph: ps.PipeGraph) -> dict[str, str]:
    """Return the step before each one that shares a task with it."""
    groups = group_fused(plan_of(graph))
    return {after.name: before.name for group in groups for before, after in pairwise(group)}


def test_a_line_of_forward_steps_is_one_node_up_to_the_shuffle() -> None:
    assert fused_steps(graphs.campaign_views()) == {"filter": "events", "campaigns": "filter"}


def test_without_chaining_nothing_is_fused() -> None:
    graph = ps.PipeGraph("g", chaining=False)
    graph.source(ps.read.rows([], schema={"a": "int64"})).with_columns(a=col("a")).filter(col("a") > 0)
    assert fused_steps(graph) == {}


def test_a_change_of_degree_ends_a_node() -> None:
    graph = ps.PipeGraph("g")
    graph.source(ps.read.rows([], schema={"a": "int64"})).with_columns(a=col("a"), parallelism=2).filter(
        col("a") > 0
    )
    assert fused_steps(graph) == {"filter": "with_columns"}


def test_rows_that_run_back_into_a_control_port_do_not_end_a_node() -> None:
    assert fused_steps(graphs.feedback()) == {"doubled": "limiter", "out": "doubled"}


def test_the_only_branch_of_a_split_goes_on_in_its_node_unless_what_feeds_the_split_is_read_elsewhere() -> (
    None
):
    graph = ps.PipeGraph("g")
    source = graph.source(ps.read.rows([], schema={"a": "int64"}))
    source.split(a=col("a") > 0, b=col("a") < 0)["a"].with_columns(a=col("a"))
    assert fused_steps(graph) == {"split": "source", "with_columns": "split"}
    source.filter(col("a") > 0)
    assert fused_steps(graph) == {}


@pytest.mark.slow
@given(random_graphs(merges=False, closed=True))
@settings(deadline=None)
def test_the_algebra_chains_exactly_the_steps_that_are_fused(graph: ps.PipeGraph) -> None:
    chained = {
        step.operator for step in derive_blocks(tuple(graph.steps.values())).steps if step.rule == "chain"
    }
    splits = {step.name for step in graph.steps.values() if step.op.kind == "SPLIT"}
    assert set(fused_steps(graph)) - splits == chained


@pytest.mark.slow
@given(random_graphs())
@settings(deadline=None)
def test_a_group_is_a_line_entered_at_its_first_step_and_left_at_its_last(graph: ps.PipeGraph) -> None:
    plan = plan_of(graph)
    for group in group_fused(plan):
        names = [step.name for step in group]
        for step in plan:
            for ref in step.feeds:
                if ref.step in names and ref.step != names[-1]:
                    assert step.name == names[names.index(ref.step) + 1]
                if step.name in names[1:]:
                    assert ref.step == names[names.index(step.name) - 1]
