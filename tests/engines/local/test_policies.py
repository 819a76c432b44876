"""Each scheduler takes the node that C-Stream (3.2.6) says it takes."""

from __future__ import annotations

from collections import Counter
from random import Random as RandomNumbers

from penstock.engines.local.metrics.statistics import READY, InputStatistics, OutputStatistics, TaskStatistics
from penstock.engines.local.schedulers import (
    LeastRecentlyRun,
    MaxQueueLength,
    MaxRunningTime,
    MinLatency,
    Random,
    can_run_for,
)
from tests.support.ready_tasks import Candidate, reader, source


def test_random_takes_every_ready_task_about_as_often() -> None:
    ready = [reader(name) for name in "abcd"]
    scheduler = Random(RandomNumbers(1))
    counts = Counter(scheduler.choose(ready, 0, 0).statistics.step for _ in range(4_000))
    assert all(900 < counts[name] < 1_100 for name in "abcd")


def test_the_same_seed_makes_the_same_choices() -> None:
    ready = [reader(name) for name in "abcd"]
    one, two = Random(RandomNumbers(7)), Random(RandomNumbers(7))
    assert [one.choose(ready, 0, 0) for _ in range(50)] == [two.choose(ready, 0, 0) for _ in range(50)]


def test_max_queue_length_takes_the_longest_queue() -> None:
    ready = [reader("a", waiting=3), reader("b", waiting=9), reader("c", waiting=5)]
    assert MaxQueueLength(RandomNumbers(1)).choose(ready, 0, 0) is ready[1]


def test_max_queue_length_takes_a_ready_source_before_any_queue() -> None:
    ready = [reader("a", waiting=1_000), source("s")]
    assert MaxQueueLength(RandomNumbers(1)).choose(ready, 0, 0) is ready[1]


def test_max_queue_length_breaks_ties_by_chance() -> None:
    ready = [reader("a", waiting=4), reader("b", waiting=4), reader("c", waiting=1)]
    scheduler = MaxQueueLength(RandomNumbers(1))
    assert {scheduler.choose(ready, 0, 0).statistics.step for _ in range(50)} == {"a", "b"}


def test_min_latency_takes_the_task_whose_front_row_is_oldest() -> None:
    ready = [reader("a", oldest=30), reader("b", oldest=10), reader("c", oldest=20)]
    assert MinLatency().choose(ready, 0, 40) is ready[1]


def test_min_latency_weighs_a_source_by_its_last_turn() -> None:
    ready = [reader("a", oldest=30), source("s", last_ran=20)]
    assert MinLatency().choose(ready, 0, 40) is ready[1]
    ready = [reader("a", oldest=30), source("s", last_ran=35)]
    assert MinLatency().choose(ready, 0, 40) is ready[0]


def test_min_latency_leaves_a_task_with_nothing_to_read_to_the_end() -> None:
    ready = [reader("empty"), reader("a", oldest=30)]
    assert MinLatency().choose(ready, 0, 40) is ready[1]
    assert MinLatency().choose(ready[:1], 0, 40) is ready[0]


def test_least_recently_run_takes_the_task_that_ran_longest_ago() -> None:
    ready = [reader("a", last_ran=5), reader("b", last_ran=2), reader("c", last_ran=9)]
    assert LeastRecentlyRun().choose(ready, 0, 10) is ready[1]


def test_least_recently_run_takes_a_task_that_never_ran_first() -> None:
    ready = [reader("a", last_ran=0), reader("new")]
    assert LeastRecentlyRun().choose(ready, 0, 10) is ready[1]


def worker(reads: int, waits: int, writes: int, room: float) -> Candidate:
    """A node that read and wrote so many rows in a turn of 100 ns, with so much waiting and so much room."""
    port, after = InputStatistics(), InputStatistics(capacity=room)
    out = OutputStatistics((after,))
    statistics = TaskStatistics("worker", inputs=(port,), outputs=(out,))
    statistics.start(0)
    port.put_rows = port.taken_rows = reads
    out.rows = writes
    statistics.stop(100, READY)
    port.put_rows += waits
    return Candidate(statistics)


def test_running_time_is_what_waits_over_the_rate_of_reading() -> None:
    #  10 rows per 100 ns, 30 rows wait: 300 ns
    assert can_run_for(worker(reads=10, waits=30, writes=1, room=1_000).statistics) == 300


def test_running_time_is_no_longer_than_there_is_room_to_write() -> None:
    #  5 rows written per 100 ns, room for 10: 200 ns
    assert can_run_for(worker(reads=10, waits=30, writes=5, room=10).statistics) == 200


def test_max_running_time_takes_the_task_that_can_go_on_longest() -> None:
    ready = [worker(10, 30, 1, 1_000), worker(10, 80, 1, 1_000), worker(10, 90, 10, 5)]
    assert MaxRunningTime().choose(ready, 0, 0) is ready[1]


def test_max_running_time_tries_a_task_without_a_rate_first() -> None:
    ready = [worker(10, 1_000, 1, 1_000), reader("new")]
    assert MaxRunningTime().choose(ready, 0, 0) is ready[1]


def test_of_two_new_tasks_max_running_time_takes_the_one_that_never_ran() -> None:
    ready = [reader("a", last_ran=3), reader("new"), reader("b", last_ran=1)]
    assert MaxRunningTime().choose(ready, 0, 10) is ready[1]
    assert MaxRunningTime().choose([ready[0], ready[2]], 0, 10) is ready[2]
