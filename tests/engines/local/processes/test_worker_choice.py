"""When a step turns into processes: measured with clocks that say what the test wants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.engines.local.processes.stage import MIN_RATIO, MIN_ROUND_TRIP_NS, N_SLOW, WorkerChoice


class Way:
    """The way to a worker and back, which takes so long by this clock."""

    def __init__(self, takes_ns: int) -> None:
        self.takes_ns, self.now, self.n_gone = takes_ns, 0, 0

    def __call__(self) -> None:
        self.now += self.takes_ns
        self.n_gone += 1


def choice(way: Way, listen: Callable[[str], None] = lambda reason: None) -> WorkerChoice:
    return WorkerChoice(listen, now_ns=lambda: way.now)


def test_small_batches_stay_in_threads_and_the_way_is_not_even_tried() -> None:
    way = Way(1)
    chosen = choice(way)
    for _ in range(100):
        chosen.add(MIN_RATIO * MIN_ROUND_TRIP_NS - 1, way)
    assert (chosen.processes, way.n_gone) == (False, 0)


def test_batches_that_take_long_turn_into_processes_once_and_the_reason_is_told() -> None:
    way, reasons = Way(1_000_000), list[str]()
    chosen = choice(way, reasons.append)
    for number in range(N_SLOW + 2):
        assert chosen.processes == (number >= N_SLOW)
        chosen.add(20_000_000, way)
    assert reasons == [
        "processes: a batch takes 20.0 ms of plain Python, the way there and back 1.0 ms",
    ]


def test_one_slow_batch_is_not_enough() -> None:
    way = Way(1)
    chosen = choice(way)
    for number in range(20):
        chosen.add(10**9 if number % N_SLOW == 0 else 1, way)
    assert not chosen.processes


@pytest.mark.parametrize(("takes_ns", "expected"), [(4_900_000, True), (5_100_000, False)])
def test_the_way_must_cost_well_less_than_the_work(takes_ns: int, expected: bool) -> None:
    way = Way(takes_ns)
    chosen = choice(way)
    for _ in range(N_SLOW):
        chosen.add(20_000_000, way)
    assert chosen.processes is expected


def test_a_way_that_was_too_long_is_tried_again_only_for_more_work() -> None:
    way = Way(5_100_000)
    chosen = choice(way)
    for _ in range(10 * N_SLOW):
        chosen.add(20_000_000, way)
    tried = way.n_gone
    for _ in range(N_SLOW):
        chosen.add(30_000_000, way)
    assert (tried, chosen.processes) == (2, True)
