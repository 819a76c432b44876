"""Joins drawn at random, through the fragments in this process: in any cells, on any number of partitions."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engines.spark.driver import rounds as ahead
from penstock.testing import assert_engines_agree
from tests.conformance.test_random_joins import divide, graph_of, options, rows
from tests.support.examples import examples
from tests.support.spark_in_process import InProcessSparkEngine


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(25, nightly=150), suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.tuples(rows(), rows()),
    given_options=options(),
    delay=st.integers(0, 4),
    n_partitions=st.integers(1, 7),
    seed=st.integers(0, 1000),
    n_rounds=st.sampled_from([1, 2, 100]),
)
def test_any_join_agrees_with_the_reference_whatever_its_cells_and_jobs(
    batches: Any, given_options: dict[str, Any], delay: int, n_partitions: int, seed: int, n_rounds: int
) -> None:
    graph = graph_of(batches, given_options, delay)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "MAX_ROUNDS", n_rounds)
        engine = InProcessSparkEngine(n_partitions, seed, alone=lambda job: bool(seed >> job % 5 & 1))
        assert_engines_agree(graph, ["reference", engine])


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(12, nightly=60), suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.tuples(rows(), rows()),
    older=st.tuples(st.integers(2, 9), st.integers(2, 9)),
    n_partitions=st.integers(2, 7),
    seed=st.integers(0, 1000),
)
def test_cells_whose_layout_changes_with_every_job_give_each_pair_once(
    batches: Any, older: tuple[int, int], n_partitions: int, seed: int
) -> None:
    near: dict[str, Any] = {"on": ps.band("v", "v_right", 2), "within": older, "on_error": "skip"}
    graph = graph_of(batches, near, delay=9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "MAX_ROUNDS", 1)
        assert_engines_agree(graph, ["reference", InProcessSparkEngine(n_partitions, seed)])


BANDS: list[Any] = [
    [ps.band("v", "v_right", 2)],
    [ps.band("v", "v_right", 1, strict=True), ps.band("f", "f_right", 0.25)],
    [ps.band("v", "f_right", 1.5), ps.left("t") <= ps.right("t_right")],
]


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(12, nightly=60), suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.tuples(rows(), rows()),
    on=st.sampled_from(BANDS),
    how=st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    bound=st.sampled_from([{"within": (3, 5)}, {"window": ps.sliding(6, every=3)}]),
    lateness=st.integers(0, 2),
    n_partitions=st.integers(2, 6),
    seed=st.integers(0, 1000),
)
def test_ranges_that_change_with_the_jobs_give_each_row_and_pair_once(
    batches: Any, on: Any, how: str, bound: Any, lateness: int, n_partitions: int, seed: int
) -> None:
    given_options = {"on": on, "how": how, "lateness": lateness, "on_error": "fail", **bound}
    graph = graph_of(batches, given_options, delay=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "MAX_ROUNDS", 1)
        assert_engines_agree(graph, ["reference", InProcessSparkEngine(n_partitions, seed)])


ALL_ROWS: list[dict[str, Any]] = [
    {"on": divide, "within": (3, 5), "how": "full", "on_error": "dead_letter"},
    {"on": ps.left("v") < ps.right("v_right"), "within": (2, 2), "how": "full", "on_error": "fail"},
    {"on": ps.left("v") // ps.right("v_right") > 0, "within": (4, 1), "how": "semi", "on_error": "skip"},
    {"on": divide, "window": ps.sliding(6, every=3), "how": "left", "on_error": "dead_letter"},
    {"on": ps.equal("key", "key_right"), "last_rows": (2, 3), "on_error": "fail"},
    {"on": divide, "last_rows": (3, 1), "on_error": "dead_letter"},
    {"on": ps.equal("key", "key_right"), "last_rows": (0, 2), "how": "anti", "on_error": "fail"},
    {"on": divide, "last_rows": (3, 0), "how": "right", "on_error": "dead_letter"},
]


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(30, nightly=120), suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.tuples(rows(), rows()),
    given_options=st.sampled_from(ALL_ROWS),
    lateness=st.integers(0, 2),
    layout=st.sampled_from(["auto", (2, 2)]),
    n_partitions=st.integers(2, 5),
    seed=st.integers(0, 1000),
)
def test_where_rows_must_be_known_in_one_place_each_row_error_and_pair_leaves_once(
    batches: Any, given_options: dict[str, Any], lateness: int, layout: Any, n_partitions: int, seed: int
) -> None:
    graph = graph_of(batches, {**given_options, "lateness": lateness, "layout": layout}, delay=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "MAX_ROUNDS", 1)
        assert_engines_agree(graph, ["reference", InProcessSparkEngine(n_partitions, seed)])


def at(t: int, v: int | None = None, *, f: float | None = None, key: str = "a") -> dict[str, Any]:
    return {"t": t, "key": key, "v": v, "f": f}


def test_an_error_of_a_join_of_the_last_rows_is_told_whatever_the_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Found by the test above with other examples: rows of two cells had one number, and were counted once.
    left = [at(1), at(1), at(-4), at(0), at(1), at(3, -2), at(4), at(-3), at(7, -3)]
    right = [[], [], [at(1, f=math.inf, key="b")], [at(-4, f=-0.0, key="b")]]
    options = {"on": divide, "last_rows": (3, 1), "on_error": "dead_letter", "lateness": 1, "layout": "auto"}
    graph = graph_of(([left], right), options, delay=4)
    monkeypatch.setattr(ahead, "MAX_ROUNDS", 1)
    assert_engines_agree(graph, ["reference", InProcessSparkEngine(5, 1)])
