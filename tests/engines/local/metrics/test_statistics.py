"""What tasks count: turns, waits, rates, and how long ports were full."""

from __future__ import annotations

from math import inf

from penstock.engines.local.metrics.statistics import (
    COMPLETED,
    READ_BLOCKED,
    READY,
    RUNNING,
    WRITE_BLOCKED,
    InputStatistics,
    OutputStatistics,
    TaskStatistics,
)


def test_every_nanosecond_of_a_task_is_ready_running_or_blocked() -> None:
    #  0    10      30         60    65   80       100  105  110
    #  ready| running|read-blocked|ready| running|write..|ready|running
    task = TaskStatistics("step", since=0)
    task.start(10)
    task.stop(30, READ_BLOCKED)
    task.wake(60)
    task.start(65)
    task.stop(80, WRITE_BLOCKED)
    task.wake(100)
    task.start(105)
    task.stop(110, COMPLETED)
    assert (task.ready_ns, task.running_ns) == (10 + 5 + 5, 20 + 15 + 5)
    assert (task.read_blocked_ns, task.write_blocked_ns) == (30, 20)
    assert (task.n_quanta, task.last_ran, task.state) == (3, 105, COMPLETED)


def test_running_time_includes_the_turn_under_way() -> None:
    task = TaskStatistics("step")
    task.start(10)
    assert task.state == RUNNING
    assert task.running_until(25) == 15
    task.stop(30, READY)
    assert task.running_until(99) == 20


def test_waiting_time_includes_the_wait_under_way() -> None:
    task = TaskStatistics("step")
    task.start(0)
    task.stop(10, READ_BLOCKED)
    assert task.waiting_until(25) == 15
    task.wake(30)
    assert task.waiting_until(99) == 20


def test_a_preempted_task_is_ready_again_without_being_woken() -> None:
    task = TaskStatistics("step")
    task.start(0)
    task.stop(10, READY)
    task.start(17)
    assert task.ready_ns == 7


def test_what_waits_is_what_was_put_less_what_was_taken() -> None:
    port = InputStatistics(capacity=10)
    port.put_rows, port.put_batches, port.taken_rows, port.taken_batches = 7, 3, 5, 2
    assert (port.waiting_rows, port.waiting_batches, port.space) == (2, 1, 8)
    assert TaskStatistics("step", inputs=(port, port)).waiting_rows == 4


def test_space_in_batches_is_told_in_rows_of_the_mean_batch() -> None:
    port = InputStatistics(capacity_batches=4)
    assert port.space == 4
    port.put_rows, port.put_batches = 300, 3
    assert port.space == 100
    assert InputStatistics().space == inf


def test_a_port_over_its_limit_has_no_space() -> None:
    port = InputStatistics(capacity=2)
    port.put_rows = 5
    assert port.space == 0


def test_full_time_adds_up_over_spells() -> None:
    port = InputStatistics()
    port.mark_free(1)
    port.mark_full(10)
    port.mark_full(12)
    assert port.full_until(15) == 5
    port.mark_free(20)
    port.mark_full(30)
    assert port.full_until(33) == 13


def test_service_time_is_running_time_per_row_of_the_last_turns() -> None:
    port = InputStatistics()
    task = TaskStatistics("step", inputs=(port,))
    assert task.service_ns == 0
    for turn in range(20):
        task.start(turn * 100)
        port.taken_rows += 10
        task.stop(turn * 100 + 50, READY)
    assert round(task.service_ns, 6) == 5
    for turn in range(20, 60):  # ten times as slow now: the old turns fade
        task.start(turn * 1_000)
        port.taken_rows += 10
        task.stop(turn * 1_000 + 500, READY)
    assert 49.9 < task.service_ns < 50


def test_a_source_is_served_per_row_given_out() -> None:
    out = OutputStatistics()
    task = TaskStatistics("source", outputs=(out,))
    task.start(0)
    out.rows = 4
    task.stop(20, READY)
    assert (task.source, task.service_ns, task.selectivity) == (True, 5, 1)


def test_selectivity_is_rows_out_per_row_in() -> None:
    port, out = InputStatistics(), OutputStatistics()
    task = TaskStatistics("step", inputs=(port,), outputs=(out,))
    assert task.selectivity == 1
    port.taken_rows, out.rows = 8, 2
    assert (task.rows_in, task.rows_out, task.selectivity) == (8, 2, 0.25)


def test_the_oldest_row_of_a_task_is_the_oldest_on_any_port() -> None:
    one, two = InputStatistics(), InputStatistics()
    task = TaskStatistics("join", inputs=(one, two))
    assert task.oldest is None
    one.oldest, two.oldest = 40, 30
    assert task.oldest == 30
