"""The runtime workload: small cases of all experiments are answered rightly; wrong answers are noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench import Case, load_workload, measure
from bench.workload import Outcome, Way, Workload, check_outcome, expected_of
from bench.workloads.runtime import (
    backpressure,
    busy_stops,
    experiments,
    latency,
    row_at_a_time,
    startup,
    step_cost,
    ysb,
)


def small(cases: list[Case], ways: list[Way]) -> Workload:
    return Workload("small", "a small one", tuple(cases), tuple(ways), expected_of, check_outcome)


EXPERIMENTS: dict[str, Callable[[], Workload]] = {
    "chain": lambda: small([step_cost.build_case(20)], step_cost.build_ways()),
    "campaigns": lambda: small(ysb.build_cases(300_000, 30_000), ysb.build_ways()),
    "rows": lambda: small([row_at_a_time.build_case(300)], row_at_a_time.build_ways()),
    "stops at work": lambda: small(
        [busy_stops.build_case(2)], [way for way in busy_stops.build_ways() if "in process" in way.name]
    ),
    "memory": lambda: small([backpressure.build_case(0.05, 0.05)], backpressure.build_ways()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_way_of_a_small_experiment_gives_the_right_answer(name: str) -> None:
    result = measure(EXPERIMENTS[name](), rounds=1, warm_up=0)
    assert all(one.checks == 1 for one in result.figures)


@pytest.mark.slow
def test_latency_is_measured_row_by_row_with_its_parts() -> None:
    result = measure(small([latency.build_case(1)], latency.build_ways()), rounds=1, warm_up=0)
    for one in result.figures:
        assert set(one.notes) == {latency.P50, latency.P99, latency.USER, latency.SYSTEM}


@pytest.mark.slow
def test_a_new_process_gives_its_first_result_and_loads_numba_only_where_it_pays() -> None:
    result = measure(small(startup.build_cases(), startup.build_ways()), rounds=1, warm_up=0)
    assert all(one.notes[startup.IMPORT_TO_RESULT][0] > 0 for one in result.figures)


def test_views_of_campaigns_are_as_many_as_written_by_hand() -> None:
    ads = ysb.build_integer_ads(100_000)
    answer: Any = ads.expected_answer()
    assert sum(answer.values()) == 33_334  # every third of 100,000, the first included
    assert set(answer.values()) == {333, 334}
    assert len(answer) == ysb.N_CAMPAIGNS


def test_rows_that_stay_are_counted_per_key() -> None:
    rows = row_at_a_time.Rows([{"key": 1, "value": 0}, {"key": 1, "value": 1}, {"key": 1, "value": 2}])
    assert rows.expected_answer() == [(1, 1), (1, 2)]  # 1, 3 and 5: three goes


def test_a_wrong_answer_is_reported_with_the_expected_one() -> None:
    assert check_outcome([1], Outcome(lambda: [1])) is None
    assert check_outcome([1], Outcome(lambda: [2])) == "expected [1], got [2]"


@pytest.mark.parametrize("size", ["quick", "full"])
def test_both_sizes_claim_the_same(size: Any) -> None:
    says = [claim.says for claim in load_workload("runtime", size).claims]
    assert len(says) == len(set(says))
    assert says == [claim.says for claim in load_workload("runtime", "quick").claims]


def test_without_bytewax_the_others_are_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_at_a_time, "has_bytewax", lambda: False)
    workload = experiments.workload("quick")
    assert row_at_a_time.BYTEWAX not in [way.name for way in workload.ways]
    assert not any("Bytewax" in claim.says for claim in workload.claims)
    assert "Bytewax is not installed" in workload.about


def test_latency_of_the_rows_is_counted_from_when_they_were_due() -> None:
    sink = latency.LatencySink()
    sink.write_plain(0, [{"at": 0, "value": 3}], None)
    assert sink.values == [3]
    assert sink.delays[0] > 0
