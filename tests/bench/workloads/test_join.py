"""The join workload: its oracles are right, every way answers alike, and wrong answers are noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from bench import Case, Way, Workload, load_workload, measure
from bench.simulation.join_workers import JoinCosts
from bench.workloads.join import (
    band,
    handshake,
    kang,
    latency,
    layouts,
    peers,
    spark_joins,
    stage,
    virtual_time,
)
from bench.workloads.join.experiments import _check, _expected_answer
from bench.workloads.join.spark_joins import SparkRows, SparkShape
from bench.workloads.join.streams import (
    HIT_RATE,
    SECOND,
    WARM_ROWS,
    WIDTH,
    Shape,
    Streams,
    draw_streams,
    encode_pairs,
)
from penstock.engines.spark.session.session import open_session
from penstock.options import SparkOptions
from penstock.stages import policy

SMALL = Shape((1_500, 500), 2, 800, 3)
"""3,000 and 1,000 stored rows: dense enough by values of 0 to 300 for hundreds of pairs."""


def draw_dense(shape: Shape, seed: int) -> Streams:
    """Draw rows of which more are near each other."""
    streams = draw_streams(shape, seed)
    sides = (streams.left, streams.right)
    for side in sides:
        side.first[:] %= 300
        side.second[:] %= 300
    return Streams(shape, *sides)


@pytest.fixture
def streams() -> Streams:
    draw_streams.cache_clear()
    return draw_dense(SMALL, 1)


@pytest.mark.parametrize("size", ["quick", "full"])
def test_the_workload_can_be_built_in_both_sizes(size: str) -> None:
    workload = load_workload("join", "quick" if size == "quick" else "full")
    assert all(workload.cells_of(group) for group in workload.groups)
    assert workload.groups == ["band", "layouts", "latency", "virtual", "spark"]


def test_the_hit_rate_is_the_papers() -> None:
    assert f"{HIT_RATE:.4e}" == "3.6066e-06"


def test_the_parts_of_a_stream_have_the_rows_of_their_rate(streams: Streams) -> None:
    assert streams.left.cuts == (3_000, 3_000 + WARM_ROWS)
    assert streams.right.cuts == (1_000, 1_000 + WARM_ROWS)
    assert [len(side.times) - side.cuts[1] for side in (streams.left, streams.right)] == [600, 200]
    for side in (streams.left, streams.right):
        assert (np.diff(side.times) >= 0).all()
    rounds = streams.rounds("probe", 3)
    assert sum(batches["left"].num_rows for batches, _ in rounds) == 600


def test_the_number_of_comparisons_is_known_beforehand() -> None:
    shape = Shape((1_500, 500), 20, 800, 3)
    left, right = (side.times for side in (draw_streams(shape, 1).left, draw_streams(shape, 1).right))
    n_compared = 0
    for own, other, n_new, at_equal in ((left, right, 600, "left"), (right, left, 200, "right")):
        new = own[-n_new:]
        ends = np.searchsorted(other, new, side=at_equal)  # type: ignore[call-overload]
        n_compared += int((ends - np.searchsorted(other, new - 20 * SECOND)).sum())
    assert shape.n_compared == pytest.approx(n_compared, rel=0.05)


def find_all_pairs(streams: Streams) -> Any:
    """Compare every row with every other."""
    left, right = streams.left, streams.right
    near = np.abs(left.first[:, None] - right.first) < WIDTH
    near &= np.abs(left.second[:, None] - right.second) < WIDTH
    near &= np.abs(left.times[:, None] - right.times) <= streams.shape.window_s * SECOND
    near[: left.cuts[1], : right.cuts[1]] = False
    return encode_pairs(*np.nonzero(near))


def test_the_oracle_finds_the_pairs_that_all_comparisons_find(streams: Streams) -> None:
    expected = find_all_pairs(streams)
    assert len(expected) > 500
    assert np.array_equal(streams.pairs, expected)


WAYS: dict[str, Callable[[Streams], Any]] = {
    "stage": lambda streams: stage.run_probes(stage.fill_by_feeding(streams)),
    "scans": lambda streams: stage.run_scans(stage.fill_for_scans(streams)),
    "scans in cells": lambda streams: stage.run_scans(stage.fill_for_scans(streams, (2, 3), 2)),
    "two scans": lambda streams: kang.run_two_scans(kang.fill_for_two_scans(streams)),
    "NumPy": peers.join_by_numpy,
    "Polars": lambda streams: peers.join_by_polars(peers.build_frames(streams)),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_finds_the_right_pairs(way: str, streams: Streams) -> None:
    assert stage.check_pairs(find_all_pairs(streams), WAYS[way](streams)) is None


def test_a_stage_that_only_scans_has_no_index_and_leaves_the_policy_as_it_was(streams: Streams) -> None:
    before = policy.SIZES
    filled = stage.fill_for_scans(streams)
    stage.run_scans(filled)
    assert policy.SIZES is before
    fed = stage.fill_by_feeding(streams)
    assert stage.hit_notes(stage.run_probes(fed))[stage.HITS] > 0


def test_a_pair_that_is_missing_or_wrong_is_noticed() -> None:
    expected = np.array([1, 2, 3])
    says = "expected 3 pairs, got 3: 1 are missing, 1 are wrong"
    assert _check(expected, lambda: np.array([1, 2, 4])) == says
    assert _check(expected, lambda: np.array([1, 2, 2, 3])) is not None
    assert _check(7, 8) == "expected 7 hits, got 8"


def test_the_loop_that_counts_counts_the_hits_in_full_windows(streams: Streams) -> None:
    left, right = streams.left, streams.right
    n_hits = 0
    for own, other in ((left, right), (right, left)):
        new, stored = slice(own.cuts[1], None), slice(0, other.cuts[0])
        near = np.abs(own.first[new, None] - other.first[stored]) < WIDTH
        n_hits += int((near & (np.abs(own.second[new, None] - other.second[stored]) < WIDTH)).sum())
    assert peers.count_in_order(streams) == n_hits
    assert peers.count_in_loop(peers.build_columns(streams)) == n_hits


def test_the_second_scan_sees_what_has_expired(streams: Streams) -> None:
    scans = kang.run_two_scans(kang.fill_for_two_scans(streams))
    n_expired = 0
    for side in (streams.left, streams.right):
        port = "left" if side is streams.left else "right"
        for batches, _ in streams.rounds("probe", SMALL.n_batches):
            times = batches[port].times
            stored = side.times[(side.times >= times[0] - 2 * SECOND) & (side.times < times[0])]
            n_expired += int((stored < (times - 2 * SECOND)[:, None]).sum())
    assert scans.n_expired == n_expired > 0


def test_layouts_are_measured_beside_the_model(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "CALIBRATION", Shape((500, 500), 2, 200, 1))
    for layout in layouts.LAYOUTS:
        run = layouts.run_layout(layouts.fill_layout(streams, layout))
        assert stage.check_pairs(find_all_pairs(streams), run) is None
        after = layouts.ScanTime(3 * run.comparison.seconds, run.comparison.core_s)
        with monkeypatch.context() as patch:
            patch.setattr(layouts, "measure_comparison", lambda n_threads, after=after: after)
            notes = layouts.layout_notes(run)
        n_results = len(find_all_pairs(streams))
        assert notes[layouts.BANDWIDTH] == pytest.approx(n_results / run.took.seconds)
        # The time of a comparison is the mean of those before and after the run.
        predicted = layouts.count_threads(layout) / (2 * run.comparison.seconds) * HIT_RATE
        assert notes[layouts.ERROR] == pytest.approx(n_results / run.took.seconds / predicted - 1)
        assert notes[layouts.RATE] == pytest.approx(1_500 * (0.4 / run.took.seconds) ** 0.5)


@pytest.mark.parametrize("form", [latency.SINGLE, latency.DUE, latency.COLUMNS])
def test_latency_is_that_of_all_results_of_rows_sent_at_their_rate(form: str) -> None:
    streams = draw_dense(Shape((150, 150), 4, 150, 1), 3)
    outcome = latency.run(streams, form=form)
    assert stage.check_pairs(find_all_pairs(streams), outcome.answer()) is None
    assert 0 < outcome.notes[latency.P50] <= outcome.notes[latency.P99]
    assert 0 < outcome.notes[latency.MEAN] < 60


def test_sources_give_up_when_the_windows_are_never_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "PATIENCE_S", 0)
    rows = latency.generate_rows(draw_streams(SMALL, 1), "left", latency.ResultSink(), latency.SINGLE)
    with pytest.raises(TimeoutError, match="the windows were not full after 0 s"):
        for _ in rows:
            pass


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    known = JoinCosts(compare_s=virtual_time.PAPER_COMPARE_S / 4, row_s=1e-6, cell_delay_s=1e-5)
    monkeypatch.setattr(virtual_time, "measure_costs", lambda: known)


@pytest.mark.usefixtures("costs")
def test_rates_are_scaled_to_the_machine() -> None:
    case = virtual_time.build_case("fig. 6", virtual_time.OFFERED, (2, 3)).make(1)
    assert case.setting.rates == (4_200, 4_200)
    assert case.load.n_needed == 7, "as in the paper"


@pytest.mark.usefixtures("costs")
def test_simulated_layouts_agree_with_the_model_and_with_the_paper() -> None:
    notes = {}
    for layout in ((4, 4), (1, 16)):
        run = virtual_time.run_workers(virtual_time.build_case("", virtual_time.SYMMETRIC, layout).make(1))
        assert _check(None, run) is None
        notes[layout] = virtual_time.run_notes(run)
        assert notes[layout][virtual_time.ERROR] < 0.05
    assert notes[4, 4][virtual_time.LATENCY] < notes[1, 16][virtual_time.LATENCY] / 2
    case = virtual_time.build_case("", virtual_time.SYMMETRIC, (4, 4)).make(1)
    pipeline = virtual_time.run_notes(virtual_time.run_handshake(case))
    assert pipeline[virtual_time.LATENCY] > 10_000 * notes[4, 4][virtual_time.LATENCY]


@pytest.mark.usefixtures("costs")
def test_the_search_for_a_rate_notes_it() -> None:
    case = virtual_time.build_case("fig. 7b, 30 s", (2_100, 2_100), (1, 2), window_s=30, seconds=1.0)
    notes = virtual_time.run_notes(virtual_time.search_rate(case.make(1)))
    assert notes[virtual_time.ERROR] < 0.05


@pytest.mark.usefixtures("costs")
def test_a_simulation_that_loses_results_is_a_wrong_answer() -> None:
    case = virtual_time.build_case("", virtual_time.FEW, (1, 1), window_s=30, seconds=1.0).make(1)
    assert _expected_answer(case) is None
    run = virtual_time.run_workers(case)
    lost = replace(run.join, n_results=run.join.n_results // 2)
    says = _check(None, replace(run, join=lost))
    assert says is not None
    assert "results, and there should be" in says


def test_costs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "CALIBRATION", Shape((500, 500), 2, 200, 1))
    costs = virtual_time.measure_costs.__wrapped__()
    assert 0 < costs.compare_s < 1e-3
    assert 0 < costs.row_s < 1e-2
    assert 0 < costs.cell_delay_s < 1e-1


def test_a_small_workload_runs_through_the_runner() -> None:
    small = {
        band.SAMPLED: Shape((300, 300), 4, 200, 2),
        band.STEADY: Shape((300, 300), 4, 600, 3),
    }
    workload = Workload(
        name="join",
        about="",
        cases=tuple(Case(name, partial(draw_dense, shape)) for name, shape in small.items()),
        ways=tuple(band.build_ways()),
        oracle=_expected_answer,
        check=_check,
    )
    result = measure(workload, rounds=1, warm_up=0)
    assert {figures.cell.way for figures in result.figures} == {way.name for way in band.build_ways()}


def find_spark_pairs(rows: SparkRows) -> Any:
    """Compare every row with every other."""
    (times, keys, x, y), (times_right, keys_right, a, b) = rows.sides
    near = np.abs(times[:, None] - times_right) <= rows.shape.window_s * SECOND
    if rows.shape.n_keys:
        near &= keys[:, None] == keys_right
    else:
        near &= (np.abs(x[:, None] - a) < WIDTH) & (np.abs(y[:, None] - b) < WIDTH)
    return encode_pairs(*np.nonzero(near))


@pytest.fixture(params=[0, 40], ids=["band", "key"])
def spark_rows(request: pytest.FixtureRequest) -> Iterator[SparkRows]:
    rows = spark_joins.write_rows(SparkShape(2, 1_200, rate=100, window_s=5, n_keys=request.param), 1)
    yield rows
    rows.folder.cleanup()


def test_the_oracle_of_joins_on_spark_finds_the_pairs_that_all_comparisons_find(
    spark_rows: SparkRows,
) -> None:
    assert np.array_equal(spark_rows.expected_answer(), find_spark_pairs(spark_rows))


SPARK_WAYS = [
    # Why: a benchmark checks every answer too, and what Spark does by itself does not change with our code.
    pytest.param(way, marks=[pytest.mark.nightly] if way.name.startswith("Spark's") else [], id=way.name)
    for way in spark_joins.build_ways()
]


@pytest.mark.slow
@pytest.mark.parametrize("way", SPARK_WAYS)
def test_both_ways_on_spark_find_the_right_pairs(
    way: Way, spark_rows: SparkRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Why: the session of the tests has other settings than that of a measurement.
    monkeypatch.setattr(spark_joins, "open_spark", lambda: open_session(SparkOptions()).spark)
    assert stage.check_pairs(spark_rows.expected_answer(), way.run(spark_rows)) is None


@pytest.mark.parametrize("layout", ["auto", "handshake"])
def test_a_pipeline_finds_the_pairs_of_cells_and_lets_them_wait(layout: str) -> None:
    streams = draw_dense(Shape((200, 200), 4, 1_600, 1), 5)
    outcome = handshake.run(streams, layout=layout)
    assert stage.check_pairs(find_all_pairs(streams), outcome.answer()) is None
    # Three quarters of a quarter of 4 s.
    assert outcome.notes[handshake.WAIT] == pytest.approx(0.75 if layout == "handshake" else 0.02, rel=0.25)


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 7])
def test_pairs_of_a_pipeline_meet_when_it_is_derived_that_they_do(n_workers: int) -> None:
    """A window of 1,000 steps: every age of the older row, and every step until the two have met."""
    stay, waits = 1_000 / n_workers, []
    for age in range(1_000):
        wait = 0
        while (wait + 0.5) // stay + (age + wait + 0.5) // stay < n_workers - 1:
            wait += 1
        waits.append(wait)
    assert np.mean(waits) == pytest.approx(handshake.expect_wait(1_000, n_workers, 0), abs=1)
