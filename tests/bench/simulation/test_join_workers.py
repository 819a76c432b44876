"""Simulated workers of a join: queues as a loop would serve them, and what follows from the paper's model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.simulation.join_workers import (
    JoinCosts,
    JoinSetting,
    _Arrivals,
    _serve,
    search_sustainable_rate,
    simulate_handshake,
    simulate_join,
)

COSTS = JoinCosts(compare_s=2e-9)
SETTING = JoinSetting((1_000.0, 1_000.0), 60.0, 4.0, 3.6e-4, COSTS)
"""Asks for 0.24 of a worker's time."""


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 100)), min_size=1))
def test_a_queue_serves_one_row_after_the_other(rows: list[tuple[int, int]]) -> None:
    arrivals = np.array(sorted(at for at, _ in rows), np.float64)
    work = np.array([cost for _, cost in rows], np.float64)
    free, starts = 0.0, []
    for at, cost in zip(arrivals, work, strict=True):
        starts.append(max(at, free))
        free = starts[-1] + cost
    served, end = _serve(arrivals, work)
    assert served.tolist() == starts
    assert end == free


@given(
    st.lists(st.integers(0, 100), min_size=1),
    st.lists(st.integers(0, 100), min_size=1),
    st.integers(1, 5),
    st.integers(1, 50),
)
def test_a_worker_meets_its_part_of_the_window(
    stored: list[int], at: list[int], n_parts: int, window: int
) -> None:
    times = np.array(sorted(stored), np.float64)
    arrivals = _Arrivals(times, np.arange(0))
    for part in range(n_parts):
        counts = arrivals.count_stored(np.array(at, np.float64), window, part, n_parts)
        expected = [
            sum(number % n_parts == part and t - window <= time < t for number, time in enumerate(times))
            for t in at
        ]
        assert counts.tolist() == expected


@pytest.mark.parametrize("layout", [(1, 1), (1, 6), (6, 1), (2, 3), (3, 3)])
def test_every_layout_makes_the_same_comparisons(layout: tuple[int, int]) -> None:
    assert simulate_join(SETTING, layout).n_compared == simulate_join(SETTING, (1, 1)).n_compared


def test_workers_that_keep_up_find_all_there_is() -> None:
    join = simulate_join(SETTING, (2, 2))
    assert join.bandwidth == pytest.approx(2 * 1_000**2 * 60 * 3.6e-4, rel=0.03)
    assert join.behind_s < 0.01


def test_workers_that_do_not_keep_up_offer_what_they_can() -> None:
    slow = JoinSetting(SETTING.rates, 60.0, 4.0, 3.6e-4, JoinCosts(compare_s=2e-7))
    one, two = simulate_join(slow, (1, 1)), simulate_join(slow, (1, 2))
    assert one.bandwidth == pytest.approx(3.6e-4 / 2e-7, rel=0.03)
    assert two.bandwidth / one.bandwidth == pytest.approx(2, rel=0.01)


def test_without_queues_the_latency_is_half_a_scan() -> None:
    idle = JoinSetting((50.0, 50.0), 300.0, 40.0, 3.6e-2, JoinCosts(compare_s=2e-9))
    assert simulate_join(idle, (2, 3)).latency_s == pytest.approx(50 * 2e-9 * 300 * 5 / 24, rel=0.05)


def test_hops_make_a_line_late() -> None:
    costs = JoinCosts(compare_s=2e-9, cell_delay_s=1e-3)
    idle = JoinSetting((50.0, 50.0), 300.0, 20.0, 3.6e-2, costs)
    line, square = (simulate_join(idle, layout).latency_s for layout in ((1, 16), (4, 4)))
    assert line > 1.5 * square


def test_rows_meet_in_a_handshake_pipeline_after_a_quarter_of_the_window() -> None:
    assert simulate_handshake(SETTING, 64).latency_s == pytest.approx(60 / 4, rel=0.1)
    assert simulate_handshake(SETTING, 1).latency_s == 0


def test_the_rate_that_is_sustained_grows_with_the_root_of_the_workers() -> None:
    setting = JoinSetting((1.0, 1.0), 30.0, 4.0, 3.6e-6, JoinCosts(compare_s=2e-6))
    rates = [search_sustainable_rate(setting, (1, n)) for n in (1, 4)]
    assert rates[0] == pytest.approx((1 / (2 * 30 * 2e-6)) ** 0.5, rel=0.05)
    assert rates[1] / rates[0] == pytest.approx(2, rel=0.05)
