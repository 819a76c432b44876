"""Whole graphs, drawn at random, through the fragments in this process: the judge's rows, in any order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engines.spark.driver import jobs
from penstock.engines.spark.driver import rounds as ahead
from penstock.testing import assert_engines_agree
from tests.conformance.test_random_graphs import Batches, graph_of, streams
from tests.support.examples import examples
from tests.support.random_graphs import Choice, choices
from tests.support.spark_in_process import InProcessSparkEngine

LAW = settings(
    deadline=None,
    max_examples=examples(30, nightly=120),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@pytest.mark.slow
@LAW
@given(choices(max_size=10), streams(), st.integers(1, 5), st.integers(0, 1000))
def test_the_legs_of_any_graph_agree_with_the_reference(
    done: list[Choice], given_rows: list[Batches], n_partitions: int, seed: int
) -> None:
    graph = graph_of(done, given_rows)
    assert_engines_agree(graph, ["reference", InProcessSparkEngine(n_partitions, seed)])


@pytest.mark.slow
@LAW
@given(choices(max_size=10), streams(), st.integers(1, 5), st.integers(0, 7))
def test_the_legs_agree_when_some_jobs_are_one_task(
    done: list[Choice], given_rows: list[Batches], n_partitions: int, alone: int
) -> None:
    graph = graph_of(done, given_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "MAX_ROUNDS", 1)
        engine = InProcessSparkEngine(n_partitions, alone=lambda job: bool(alone >> job % 3 & 1))
        assert_engines_agree(graph, ["reference", engine])


@pytest.mark.slow
@pytest.mark.usefixtures("spark_session")
@settings(LAW, max_examples=examples(6, nightly=24))
@given(choices(max_size=8), streams())
def test_with_exchanges_any_graph_agrees_with_the_reference_on_spark(
    done: list[Choice], given_rows: list[Batches]
) -> None:
    graph = graph_of(done, given_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "SMALL_INPUT", -1)  # no turn is small enough for one task
        assert_engines_agree(graph, ["reference", "spark"])
