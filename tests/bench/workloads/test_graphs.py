"""The graphs workload builds what it says, and would notice a lost operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from bench import list_workloads, load_workload
from bench.workloads.graphs import build_braided, build_straight, check_operators, count_operators


@pytest.mark.parametrize("build", [build_straight, build_braided])
@pytest.mark.parametrize("n", [6, 7, 8, 50, 101])
def test_a_graph_plan_and_explanation_hold_exactly_the_operators_asked_for(
    build: Callable[[int], ps.PipeGraph], n: int
) -> None:
    graph = build(n)
    assert [count_operators(seen) for seen in (graph, graph.plan(), graph.explain())] == [n, n, n]


def test_a_lost_operator_is_noticed() -> None:
    assert check_operators(50, build_straight(50)) is None
    assert check_operators(51, build_straight(50)) == "51 operators went in, 50 came out"


def test_a_straight_graph_nests_and_a_braided_one_splits() -> None:
    assert len({str(step.routing) for step in build_straight(50).steps.values()}) > 1
    assert any(isinstance(step.op, ps.Split) for step in build_braided(50).steps.values())


def test_the_workload_is_found_and_claims_two_things_of_either_shape() -> None:
    assert "graphs" in list_workloads()
    assert len(load_workload("graphs", "quick").claims) == 4
    assert [way.name for way in load_workload("graphs", "full").ways] == [
        "all three",
        "build",
        "check",
        "explain",
    ]
