"""The graphs workload builds what it says, and would notice a lost operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from bench import available, find
from bench.workloads.graphs import braided, lost_some, n_operators, straight


@pytest.mark.parametrize("build", [straight, braided])
@pytest.mark.parametrize("n", [6, 7, 8, 50, 101])
def test_a_graph_plan_and_explanation_hold_exactly_the_operators_asked_for(
    build: Callable[[int], ps.PipeGraph], n: int
) -> None:
    graph = build(n)
    assert [n_operators(seen) for seen in (graph, graph.plan(), graph.explain())] == [n, n, n]


def test_a_lost_operator_is_noticed() -> None:
    assert lost_some(50, straight(50)) is None
    assert lost_some(51, straight(50)) == "51 operators went in, 50 came out"


def test_a_straight_graph_nests_and_a_braided_one_splits() -> None:
    assert len({str(step.routing) for step in straight(50).steps}) > 1
    assert any(isinstance(step.op, ps.Split) for step in braided(50).steps)


def test_the_workload_is_found_and_claims_two_things_of_either_shape() -> None:
    assert "graphs" in available()
    assert len(find("graphs", "quick").claims) == 4
    assert [way.name for way in find("graphs", "full").ways] == ["all three", "build", "check", "explain"]
