"""The search for the sustainable rate finds the knee of systems whose knee is known."""

from __future__ import annotations

import math
import random

import pytest

from bench.sustainable import Trial, explain_overload, find_knee

WINDOW_S = 1.0


class Queue:
    """A simulated system that serves so many rows a second, in order; windows close when their rows are done.

    capacity  rows a second
    base_s    latency of a window when nothing waits
    noise     how much the latency of a window varies, in seconds
    hiccups   share of the trials in which the machine does something else for two seconds
    drops     whether it drops what waits instead of being late, as AIR saw of Flink
    """

    def __init__(
        self, capacity: float, seed: int, *, base_s: float = 0.2, noise: float = 0.05,
        hiccups: float = 0.0, drops: bool = False,
    ) -> None:  # fmt: skip
        self._chance = random.Random(seed)
        self._capacity, self._base, self._noise = capacity, base_s, noise
        self._hiccups, self._drops = hiccups, drops
        self.rates: list[float] = []

    def __call__(self, rate: float, seconds: float) -> Trial:
        self.rates.append(rate)
        stall = 2.0 if self._chance.random() < self._hiccups else 0.0
        expected = int(seconds / WINDOW_S)
        late = [max(0.0, rate * end / self._capacity - end) for end in range(1, expected + 1)]
        if self._drops:
            n_kept = expected if rate <= self._capacity else expected // 4
            late = [0.0] * n_kept
        delays = tuple(
            self._base + self._noise * self._chance.random() + waited + (stall if at > expected // 2 else 0.0)
            for at, waited in enumerate(late)
        )
        waiting = 0.0 if self._drops else max(0.0, rate - self._capacity) * seconds
        return Trial(rate, seconds, delays, expected, waiting)


@pytest.mark.parametrize("capacity", [900.0, 10_000.0, 123_456.0, 3e6])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_knee_of_a_queue_is_found_within_the_precision(capacity: float, seed: int) -> None:
    knee = find_knee(Queue(capacity, seed), start=1_000, seconds=30, precision=1.1)
    # A queue may be over its capacity by what the criterion tolerates: 5 % of the rows may wait.
    assert capacity / 1.11 <= knee.rate <= capacity * 1.06
    assert knee.reason


def test_a_system_that_drops_windows_is_found_by_their_number() -> None:
    knee = find_knee(Queue(50_000, 4, drops=True), start=1_000, seconds=30, precision=1.1)
    assert 50_000 / 1.1 <= knee.rate <= 50_000
    assert "windows did not come" in knee.reason


def test_a_disturbed_trial_is_repeated() -> None:
    knee = find_knee(Queue(10_000, 5, hiccups=0.3), start=1_000, seconds=30, precision=1.1, attempts=4)
    assert knee.rate > 8_000


def test_the_search_ends_at_the_most_that_may_be_tried() -> None:
    system = Queue(1e12, 6)
    knee = find_knee(system, start=1_000, seconds=30, most=50_000)
    assert (knee.rate, knee.reason) == (50_000, "")
    assert max(system.rates) == 50_000


def test_a_system_that_sustains_nothing_has_the_knee_zero() -> None:
    knee = find_knee(Queue(1e-3, 7), start=1_000, seconds=30)
    assert knee.rate == 0
    assert math.isinf(knee.latency)


def test_the_curve_has_the_best_trial_of_each_rate_by_rate() -> None:
    knee = find_knee(Queue(10_000, 8), start=1_000, seconds=30)
    rates = [trial.rate for trial in knee.curve()]
    assert rates == sorted(set(rates))
    assert set(rates) == {trial.rate for trial in knee.trials}
    assert knee.latency == pytest.approx(0.225, abs=0.2)


@pytest.mark.parametrize(
    ("trial", "says"),
    [
        (Trial(100, 10, (0.1,) * 9, 10), "1 of 10 windows did not come"),
        (Trial(100, 10, (0.1,) * 10, 10, backlog=51), "51 rows were waiting at the end"),
        (Trial(100, 10, (0.1,) * 5 + (1.0,) * 5, 10), "latency grew by 0.90 s"),
        (Trial(100, 10, (0.9,) * 10, 10), "average latency rose from 0.10 s to 0.90 s"),
        (Trial(100, 10, (0.5,) * 10, 10, backlog=49), ""),
    ],
)
def test_each_sign_of_overload_is_told(trial: Trial, says: str) -> None:
    assert explain_overload(trial, Trial(10, 10, (0.1,) * 10, 10)) == says


def test_no_window_at_all_has_an_infinite_latency() -> None:
    assert math.isinf(Trial(100, 10, (), 10).latency)
