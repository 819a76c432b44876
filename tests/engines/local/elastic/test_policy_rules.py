"""The rules, one by one: bottlenecks, demand, the pool, replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.engines.local.elastic.controller import (
    THREADS,
    Limits,
    add_replicas,
    find_bottlenecks,
    remove_replicas,
    resize_pool,
)
from penstock.engines.local.elastic.sample import Sample, replicas_for, speed_up, useful_threads
from tests.support.elastic_samples import sample, step

LIMITS = Limits(most_threads=16)


def replicas(seen: Sample) -> dict[str, int]:
    return {s.step: s.replicas for s in seen.steps}


def test_a_bottleneck_is_congested_and_what_it_writes_to_is_not() -> None:
    #  source -> a (full) -> b (full) -> c (has room)
    seen = sample(4, step("a", 1, full=0.9), step("b", 1, full=0.5), step("c", 0.2))
    assert [s.step for s in find_bottlenecks(seen.steps, 0.01)] == ["b"]


def test_below_the_threshold_nothing_is_congested() -> None:
    seen = sample(4, step("a", 1, full=0.009))
    assert find_bottlenecks(seen.steps, 0.01) == []


def test_with_one_replica_each_a_graph_goes_as_fast_as_its_busiest_step_allows() -> None:
    seen = sample(1, step("a", 0.5), step("b", 0.25), step("c", 0.25))
    assert speed_up(seen, replicas(seen)) == 2
    assert useful_threads(seen, replicas(seen)) == 3  # 2 would be busy, and the slowest must never wait
    assert useful_threads(seen, {**replicas(seen), "a": 2}) == 5


def test_replicas_are_in_proportion_to_the_work() -> None:
    seen = sample(1, step("a", 0.5), step("b", 0.25), step("c", 0.25))
    assert replicas_for(seen, 16) == {"source": 0, "a": 10, "b": 5, "c": 5}


def test_a_step_that_cannot_have_more_replicas_limits_the_others() -> None:
    seen = sample(1, step("a", 0.5), step("merge", 0.25, most=1), step("c", 0.25))
    wanted = replicas_for(seen, 16)
    assert {name: round(n * 0.95, 6) for name, n in wanted.items()} == {
        "source": 0,
        "a": 2,
        "merge": 1,
        "c": 1,
    }


def test_a_graph_that_did_nothing_keeps_its_replicas() -> None:
    seen = sample(2, step("a", 0, replicas=3))
    assert replicas_for(seen, 16) == {"source": 1, "a": 3}
    assert useful_threads(seen, replicas(seen)) == 1


def test_the_pool_grows_above_the_high_threshold_as_far_as_threads_are_of_use() -> None:
    seen = sample(1, step("a", 0.5), step("b", 0.47))
    decision = resize_pool(seen, replicas(seen), LIMITS)
    assert decision is not None
    assert (decision.step, decision.before, decision.after) == (THREADS, 1, 3)
    assert decision.reason == "utilisation 0.97 is above 0.95"


def test_the_pool_grows_by_one_at_least_and_never_over_the_limit() -> None:
    busy = sample(2, step("a", 1), step("b", 0.98))
    decision = resize_pool(busy, replicas(busy), LIMITS)
    assert decision is not None
    assert decision.after == 3
    assert resize_pool(busy, replicas(busy), Limits(most_threads=2)) is None


def test_between_the_thresholds_the_pool_stays() -> None:
    seen = sample(2, step("a", 0.95), step("b", 0.9))
    assert resize_pool(seen, replicas(seen), LIMITS) is None


def test_the_pool_shrinks_below_the_low_threshold_but_not_so_far_that_it_grows_again() -> None:
    seen = sample(8, step("a", 0.9, replicas=2), step("b", 0.9))
    decision = resize_pool(seen, replicas(seen), LIMITS)
    assert decision is not None
    assert decision.after == 2  # 1.8 of 2 is 0.9; one thread would be above 0.95
    assert decision.reason == "utilisation 0.23 is below 0.9"
    after = sample(2, step("a", 0.9, replicas=2), step("b", 0.87))
    assert resize_pool(after, replicas(after), LIMITS) is None


def test_with_rows_waiting_at_the_source_the_pool_keeps_some_room() -> None:
    seen = sample(8, step("a", 1, full=1.0), step("b", 0.8))
    decision = resize_pool(seen, replicas(seen), LIMITS)
    assert decision is not None
    assert decision.after == 3


def test_a_pool_outside_the_limits_comes_inside() -> None:
    seen = sample(32, step("a", 30, replicas=31))
    decision = resize_pool(seen, replicas(seen), LIMITS)
    assert decision is not None
    assert (decision.after, decision.reason) == (16, "32 threads are outside the limits")


def test_the_bottleneck_gets_the_replicas_that_all_threads_could_keep_busy() -> None:
    seen = sample(4, step("a", 1, full=0.8), step("b", 0.25))
    result = {d.step: (d.before, d.after) for d in add_replicas(seen, LIMITS)}
    assert result == {"a": (1, 16), "b": (1, 4)}


def test_reasons_tell_the_bottleneck_from_the_one_that_would_be_next() -> None:
    seen = sample(4, step("a", 1, full=0.8), step("b", 0.25))
    first, second = add_replicas(seen, LIMITS)
    assert first.reason == "its input is full 80% of the time and there is work for 16.0 replicas"
    assert second.reason == '"a" is slow now, and this step would be next: there is work for 4.0 replicas'


def test_replicas_stay_below_what_a_step_may_have() -> None:
    seen = sample(4, step("a", 1, most=3, full=0.8))
    assert [d.after for d in add_replicas(seen, LIMITS)] == [3]


@pytest.mark.parametrize(
    "seen",
    [
        sample(4, step("a", 1), step("b", 0.25)),  # nothing is congested
        sample(16, step("a", 15.9, replicas=16, full=0.8)),  # all threads are busy
        sample(4, step("merge", 1, most=1, full=0.8)),  # it cannot have more
    ],
)
def test_no_replicas_are_added_without_need(seen: Sample) -> None:
    assert add_replicas(seen, LIMITS) == []


def test_a_congested_step_that_the_demand_does_not_explain_gets_one_more() -> None:
    #  It waits for something else than a processor: little work, a full input, idle threads.
    seen = sample(16, step("a", 0.05, full=0.8), step("b", 1, most=1))
    (decision,) = add_replicas(seen, LIMITS)
    assert (decision.step, decision.after) == ("a", 2)
    assert decision.reason == "its input is full 80% of the time"


def test_replicas_without_work_go_when_sources_are_slow() -> None:
    seen = sample(4, step("a", 0.56, replicas=8), step("b", 0.56, replicas=2))
    assert [(d.step, d.before, d.after) for d in remove_replicas(seen, LIMITS)] == [("a", 8, 2)]
    assert remove_replicas(seen, LIMITS)[0].reason == "there is work for 0.7 replicas"


def test_no_step_gets_fewer_replicas_than_it_was_given_at_least() -> None:
    seen = Sample(4, (replace(step("a", 0.56, replicas=8), least=3),))
    assert [(d.step, d.before, d.after) for d in remove_replicas(seen, LIMITS)] == [("a", 8, 3)]


def test_steps_that_may_not_change_keep_their_replicas() -> None:
    seen = sample(4, step("a", 0.1, replicas=8, most=1))
    assert remove_replicas(seen, LIMITS) == []
