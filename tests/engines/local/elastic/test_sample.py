"""A sample is the difference of two looks at the statistics."""

from __future__ import annotations

from penstock.engines.local.elastic.controller import Limits, resize_pool
from penstock.engines.local.elastic.sample import Sampler, useful_threads
from penstock.engines.local.metrics.statistics import (
    READ_BLOCKED,
    READY,
    InputStatistics,
    OutputStatistics,
    TaskStatistics,
)


def graph(n: int) -> tuple[list[TaskStatistics], list[InputStatistics]]:
    """A source and n replicas of one step."""
    ports = [InputStatistics(capacity=10) for _ in range(n)]
    source = TaskStatistics("source", outputs=(OutputStatistics(tuple(ports)),))
    steps = [TaskStatistics("step", i, (port,), (OutputStatistics(),)) for i, port in enumerate(ports)]
    return [source, *steps], ports


def test_a_period_counts_only_what_happened_in_it() -> None:
    tasks, (port,) = graph(1)
    sampler = Sampler({"step": 4}, now=0)
    tasks[0].outputs[0].rows, port.taken_rows = 500, 400
    sampler.look(tasks, 2, now=1_000)
    tasks[0].outputs[0].rows, port.taken_rows = 800, 600
    tasks[1].outputs[0].rows = 50
    seen = sampler.look(tasks, 2, now=2_000)
    source, step = seen.steps
    assert (seen.throughput, source.source, step.source) == (300 + 200, True, False)
    assert (step.rows_in, step.rows_out, step.replicas, step.most) == (200, 50, 1, 4)
    assert source.most == 1


def test_busy_is_running_time_in_periods_the_turn_under_way_included() -> None:
    tasks, _ = graph(2)
    sampler = Sampler({}, now=0)
    tasks[1].start(0)
    tasks[1].stop(400, READ_BLOCKED)
    tasks[2].start(500)
    seen = sampler.look(tasks, 2, now=1_000)
    assert seen.steps[1].busy == 0.9
    assert seen.utilisation == 0.45
    tasks[2].stop(1_200, READY)
    assert sampler.look(tasks, 2, now=2_000).steps[1].busy == 0.2


def test_write_blocked_ratios_are_the_mean_of_the_inputs_and_the_greatest_of_the_outputs() -> None:
    tasks, ports = graph(2)
    sampler = Sampler({}, now=0)
    ports[0].mark_full(200)
    ports[0].mark_free(800)
    ports[1].mark_full(900)
    seen = sampler.look(tasks, 2, now=1_000)
    assert seen.steps[1].full_in == 0.35
    assert seen.steps[0].full_out == 0.6
    assert seen.has_backlog(0.01)
    seen = sampler.look(tasks, 2, now=2_000)
    assert (seen.steps[1].full_in, seen.steps[0].full_out) == (0.5, 1.0)


def test_replicas_come_and_go() -> None:
    tasks, _ = graph(1)
    sampler = Sampler({"step": 4}, now=0)
    tasks[1].inputs[0].taken_rows = 100
    sampler.look(tasks, 1, now=1_000)
    more, _ = graph(3)
    more[2].inputs[0].taken_rows = 7
    seen = sampler.look([tasks[0], tasks[1], *more[2:]], 1, now=2_000)
    assert (seen.steps[1].replicas, seen.steps[1].rows_in) == (3, 7)
    assert sampler.look([tasks[0], more[2]], 1, now=3_000).steps[1].rows_in == 0


def test_a_replica_that_comes_back_counts_nothing_twice() -> None:
    tasks, ports = graph(2)
    sampler = Sampler({"step": 2}, now=0)
    tasks[2].start(0)
    tasks[2].stop(900, READ_BLOCKED)
    ports[1].mark_full(100)
    ports[1].mark_free(900)
    ports[1].taken_rows = 50
    sampler.look(tasks, 2, now=1_000)
    sampler.look(tasks[:2], 2, now=2_000)
    step = sampler.look(tasks, 2, now=3_000).steps[1]
    assert (step.replicas, step.rows_in, step.busy, step.full_in) == (2, 0, 0.0, 0.0)


def test_what_was_full_before_the_first_look_is_full_all_the_time_at_most() -> None:
    tasks, ports = graph(1)
    ports[0].mark_full(0)
    assert Sampler({}, now=500).look(tasks, 1, now=1_000).steps[1].full_in == 1.0


def test_a_source_that_never_waits_for_rows_is_pressed_though_there_is_room() -> None:
    tasks, _ = graph(1)
    sampler = Sampler({}, now=0)
    tasks[0].start(0)
    tasks[0].stop(10, READY)
    assert sampler.look(tasks, 1, now=1_000).has_backlog(0.01)
    tasks[0].start(1_000)
    tasks[0].stop(1_500, READ_BLOCKED)
    seen = sampler.look(tasks, 1, now=2_000)
    assert seen.steps[0].waiting == 0.5
    assert not seen.has_backlog(0.01)


def test_what_has_a_thread_of_its_own_keeps_no_thread_of_the_pool_busy() -> None:
    tasks, _ = graph(2)
    tasks[1].dedicated = tasks[2].dedicated = True
    for task in tasks:
        task.start(0)
    seen = Sampler({"step": 4}, now=0).look(tasks, 2, now=1_000)
    assert (seen.steps[1].busy, seen.utilisation) == (2.0, 0.5)
    assert useful_threads(seen, {"source": 1, "step": 4}) == 1


def test_a_pool_without_threads_stays_so() -> None:
    tasks, _ = graph(1)
    tasks[0].dedicated = tasks[1].dedicated = True
    tasks[1].start(0)
    seen = Sampler({"step": 4}, now=0).look(tasks, 0, now=1_000)
    assert (seen.utilisation, resize_pool(seen, {"source": 1, "step": 4}, Limits(most_threads=4))) == (
        0,
        None,
    )
