"""What nodes count: turns, waits, rates, and how long ports were full."""

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


def test_every_nanosecond_of_a_node_is_ready_running_or_blocked() -> None:
    #  0    10      30         60    65   80       100  105  110
    #  ready| running|read-blocked|ready| running|write..|ready|running
    node = TaskStatistics("step", since=0)
    node.start(10)
    node.stop(30, READ_BLOCKED)
    node.wake(60)
    node.start(65)
    node.stop(80, WRITE_BLOCKED)
    node.wake(100)
    node.start(105)
    node.stop(110, COMPLETED)
    assert (node.ready_ns, node.running_ns) == (10 + 5 + 5, 20 + 15 + 5)
    assert (node.read_blocked_ns, node.write_blocked_ns) == (30, 20)
    assert (node.n_quanta, node.last_ran, node.state) == (3, 105, COMPLETED)


def test_running_time_includes_the_turn_under_way() -> None:
    node = TaskStatistics("step")
    node.start(10)
    assert node.state == RUNNING
    assert node.running_until(25) == 15
    node.stop(30, READY)
    assert node.running_until(99) == 20


def test_waiting_time_includes_the_wait_under_way() -> None:
    node = TaskStatistics("step")
    node.start(0)
    node.stop(10, READ_BLOCKED)
    assert node.waiting_until(25) == 15
    node.wake(30)
    assert node.waiting_until(99) == 20


def test_a_preempted_node_is_ready_again_without_being_woken() -> None:
    node = TaskStatistics("step")
    node.start(0)
    node.stop(10, READY)
    node.start(17)
    assert node.ready_ns == 7


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
    node = TaskStatistics("step", inputs=(port,))
    assert node.service_ns == 0
    for turn in range(20):
        node.start(turn * 100)
        port.taken_rows += 10
        node.stop(turn * 100 + 50, READY)
    assert round(node.service_ns, 6) == 5
    for turn in range(20, 60):  # ten times as slow now: the old turns fade
        node.start(turn * 1_000)
        port.taken_rows += 10
        node.stop(turn * 1_000 + 500, READY)
    assert 49.9 < node.service_ns < 50


def test_a_source_is_served_per_row_given_out() -> None:
    out = OutputStatistics()
    node = TaskStatistics("source", outputs=(out,))
    node.start(0)
    out.rows = 4
    node.stop(20, READY)
    assert (node.source, node.service_ns, node.selectivity) == (True, 5, 1)


def test_selectivity_is_rows_out_per_row_in() -> None:
    port, out = InputStatistics(), OutputStatistics()
    node = TaskStatistics("step", inputs=(port,), outputs=(out,))
    assert node.selectivity == 1
    port.taken_rows, out.rows = 8, 2
    assert (node.rows_in, node.rows_out, node.selectivity) == (8, 2, 0.25)


def test_the_oldest_row_of_a_node_is_the_oldest_on_any_port() -> None:
    one, two = InputStatistics(), InputStatistics()
    node = TaskStatistics("join", inputs=(one, two))
    assert node.oldest is None
    one.oldest, two.oldest = 40, 30
    assert node.oldest == 30
