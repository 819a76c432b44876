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
    NodeStatistics,
    OutputStatistics,
)


def test_every_nanosecond_of_a_node_is_ready_running_or_blocked() -> None:
    #  0    10      30         60    65   80       100  105  110
    #  ready| running|read-blocked|ready| running|write..|ready|running
    node = NodeStatistics("step", now=0)
    node.started(10)
    node.stopped(30, READ_BLOCKED)
    node.woke(60)
    node.started(65)
    node.stopped(80, WRITE_BLOCKED)
    node.woke(100)
    node.started(105)
    node.stopped(110, COMPLETED)
    assert (node.ready_ns, node.running_ns) == (10 + 5 + 5, 20 + 15 + 5)
    assert (node.read_blocked_ns, node.write_blocked_ns) == (30, 20)
    assert (node.turns, node.last_ran, node.state) == (3, 105, COMPLETED)


def test_running_time_includes_the_turn_under_way() -> None:
    node = NodeStatistics("step")
    node.started(10)
    assert node.state == RUNNING
    assert node.running_until(25) == 15
    node.stopped(30, READY)
    assert node.running_until(99) == 20


def test_waiting_time_includes_the_wait_under_way() -> None:
    node = NodeStatistics("step")
    node.started(0)
    node.stopped(10, READ_BLOCKED)
    assert node.waiting_until(25) == 15
    node.woke(30)
    assert node.waiting_until(99) == 20


def test_a_preempted_node_is_ready_again_without_being_woken() -> None:
    node = NodeStatistics("step")
    node.started(0)
    node.stopped(10, READY)
    node.started(17)
    assert node.ready_ns == 7


def test_what_waits_is_what_was_put_less_what_was_taken() -> None:
    port = InputStatistics(capacity=10)
    port.put_rows, port.put_batches, port.taken_rows, port.taken_batches = 7, 3, 5, 2
    assert (port.waiting_rows, port.waiting_batches, port.space) == (2, 1, 8)
    assert NodeStatistics("step", inputs=(port, port)).waiting_rows == 4


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
    port.free(1)
    port.full(10)
    port.full(12)
    assert port.full_until(15) == 5
    port.free(20)
    port.full(30)
    assert port.full_until(33) == 13


def test_service_time_is_running_time_per_row_of_the_last_turns() -> None:
    port = InputStatistics()
    node = NodeStatistics("step", inputs=(port,))
    assert node.service_ns == 0
    for turn in range(20):
        node.started(turn * 100)
        port.taken_rows += 10
        node.stopped(turn * 100 + 50, READY)
    assert round(node.service_ns, 6) == 5
    for turn in range(20, 60):  # ten times as slow now: the old turns fade
        node.started(turn * 1_000)
        port.taken_rows += 10
        node.stopped(turn * 1_000 + 500, READY)
    assert 49.9 < node.service_ns < 50


def test_a_source_is_served_per_row_given_out() -> None:
    out = OutputStatistics()
    node = NodeStatistics("source", outputs=(out,))
    node.started(0)
    out.rows = 4
    node.stopped(20, READY)
    assert (node.source, node.service_ns, node.selectivity) == (True, 5, 1)


def test_selectivity_is_rows_out_per_row_in() -> None:
    port, out = InputStatistics(), OutputStatistics()
    node = NodeStatistics("step", inputs=(port,), outputs=(out,))
    assert node.selectivity == 1
    port.taken_rows, out.rows = 8, 2
    assert (node.rows_in, node.rows_out, node.selectivity) == (8, 2, 0.25)


def test_the_oldest_row_of_a_node_is_the_oldest_on_any_port() -> None:
    one, two = InputStatistics(), InputStatistics()
    node = NodeStatistics("join", inputs=(one, two))
    assert node.oldest is None
    one.oldest, two.oldest = 40, 30
    assert node.oldest == 30
