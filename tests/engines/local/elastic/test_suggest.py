"""Replicas in proportion to the work, until the cores are used up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engines.local.elastic.sample import suggest_parallelism
from penstock.engines.local.metrics.statistics import TaskStatistics

ANY = dict.fromkeys("abc", 1_000)


def ran(step: str, ns: int, replica: int = 0) -> TaskStatistics:
    task = TaskStatistics(step, replica)
    task.running_ns = ns
    return task


def test_replicas_are_in_proportion_to_service_time_times_rows() -> None:
    tasks = [ran("a", 300), ran("b", 100), ran("c", 200)]
    assert suggest_parallelism(tasks, cores=6, most=ANY) == {"a": 3, "b": 1, "c": 2}
    assert suggest_parallelism(tasks, cores=12, most=ANY) == {"a": 6, "b": 2, "c": 4}


def test_the_work_of_a_steps_replicas_is_added_up() -> None:
    tasks = [ran("a", 150), ran("a", 150, 1), ran("b", 100), ran("c", 200)]
    assert suggest_parallelism(tasks, cores=6, most=ANY) == {"a": 3, "b": 1, "c": 2}


def test_steps_with_little_work_share_the_cores_that_one_keeps_busy() -> None:
    assert suggest_parallelism([ran("a", 1_000), ran("b", 10), ran("c", 10)], cores=2, most=ANY)["a"] == 2


def test_a_step_that_cannot_be_replicated_ends_the_sharing() -> None:
    tasks = [ran("a", 300), ran("merge", 200), ran("c", 100)]
    assert suggest_parallelism(tasks, cores=64, most=ANY) == {"a": 2, "merge": 1, "c": 1}


def test_one_core_is_for_one_replica_each() -> None:
    assert suggest_parallelism([ran("a", 900), ran("b", 100)], cores=1, most=ANY) == {"a": 1, "b": 1}


def test_steps_that_never_ran_get_one() -> None:
    assert suggest_parallelism([ran("a", 0)], cores=8, most=ANY) == {"a": 1}
    assert suggest_parallelism([], cores=8) == {}


@pytest.mark.parametrize("cores", [0, -3, 2.0, "4", True, None])
def test_what_is_no_number_of_cores_is_refused(cores: Any) -> None:
    with pytest.raises(ps.EngineError) as refused:
        suggest_parallelism([ran("a", 100)], cores=cores)
    assert str(refused.value) == (
        f"cores={cores!r} is not a number of cores\n  hint:   use 1 or more, e.g. cores=4"
    )


def test_the_statistics_of_a_run_are_what_it_takes() -> None:
    graph = ps.PipeGraph("busy", chaining=False)
    batches = [[{"v": i}] for i in range(50)]
    rows = graph.source(ps.read.batches(batches, schema={"v": "int64"}), name="rows")
    heavy = rows.filter(lambda row: sum(range(20_000)) > row.v, name="heavy")
    heavy.sink(ps.write.memory(), name="out")
    run = graph.start("local", options=ps.LocalOptions(workers="thread"))
    run.wait()
    statistics = run.statistics()
    suggestion = ps.schedulers.suggest_parallelism(statistics, cores=3)
    assert set(suggestion) == {"rows", "heavy", "out"}
    assert (suggestion["rows"], suggestion["heavy"] >= 2) == (1, True)
    assert ps.schedulers.suggest_parallelism(statistics, cores=3, most={"heavy": 2})["heavy"] == 2


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 10_000), min_size=1), st.integers(1, 64))
@settings(deadline=None)
def test_the_busiest_replica_has_no_more_than_its_share_of_the_cores(
    work: dict[str, int], cores: int
) -> None:
    suggestion = suggest_parallelism([ran(step, ns) for step, ns in work.items()], cores=cores, most=ANY)
    assert max(ns / suggestion[step] for step, ns in work.items()) <= sum(work.values()) / cores
    for step in work:  # and with one replica fewer of anything it would have more
        if suggestion[step] > 1:
            assert work[step] / (suggestion[step] - 1) > sum(work.values()) / cores
