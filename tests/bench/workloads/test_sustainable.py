"""Paced rows for the search of sustainable rates: right answers, right windows, right clocks."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from bench import BenchError, load_workload
from bench.draw import curve_of, draw_chart
from bench.page import chart_table
from bench.result import Figures
from bench.sustainable import Knee, Trial
from bench.workload import Cell
from bench.workloads.sustainable.experiments import LATENCY, QUERIES, WINDOWS, build_notes
from bench.workloads.sustainable.feed import BEGIN, Feed, FileFeed, Query
from bench.workloads.sustainable.systems import build_flink_trial, run_in_process

queries = pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)


def shrink(query: Query) -> Query:
    """Return the query with windows of 0.4 s, or of 0.8 s every 0.4 s."""
    size, every = (800_000, 400_000) if query.overlap > 1 else (400_000, 400_000)
    return replace(query, size=size, every=every)


@queries
def test_all_windows_of_a_slow_stream_come_in_process(query: Query) -> None:
    trial = run_in_process(shrink(query), 20_000, 1.2)
    assert len(trial.latencies) == trial.expected
    assert trial.expected == (2 if query.overlap > 1 else 3)


def test_a_wrong_count_is_never_a_trial() -> None:
    feed = Feed(shrink(QUERIES[0]), 1_000, 1.2)
    feed.watch.take([BEGIN + 400_000], [1.0])
    with pytest.raises(BenchError, match="SWA: a wrong answer at 1,000 rows/s"):
        feed.watch.trial()


def test_a_window_comes_with_the_last_of_its_keys() -> None:
    feed = Feed(shrink(QUERIES[2]), 100_000, 1.2)
    share = feed.expected_value() / 100
    feed.watch.take([BEGIN - 1], [0.0])
    started = feed.watch.await_start()
    feed.watch.take([BEGIN + 400_000] * 99, [share] * 99, started + 0.5)
    assert feed.watch.trial().latencies == ()
    feed.watch.take([BEGIN + 400_000], [share], started + 0.6)
    assert feed.watch.trial().latencies == pytest.approx((0.2,))


def test_files_hold_the_rows_of_the_feed_in_order() -> None:
    feed = Feed(shrink(QUERIES[0]), 1_000, 1.2)
    files = FileFeed(feed)
    try:
        names = sorted(files.staged.iterdir())
        times = [
            time for name in names for time in pq.read_table(name).column("ts").cast("int64").to_pylist()
        ]
        assert times == sorted(times)
        assert sum(BEGIN <= time < feed.end for time in times) == round(1.2 * feed.rate)
        assert times[-1] >= feed.end + 800_000
    finally:
        files.remove()
    assert not files.staged.exists()


def test_flinks_clock_starts_at_the_earliest_moment_that_its_results_allow() -> None:
    feed = Feed(shrink(QUERIES[0]), 1_000, 1.2)
    right = feed.expected_value()
    ends = feed.window_ends()
    results = [
        [end, 100.0 + (end - BEGIN) / 1e6 + late, right]
        for end, late in zip(ends, (0.3, 0.1, 0.2), strict=True)
    ]
    trial = build_flink_trial(feed, results)
    assert trial.latencies == pytest.approx((0.2, 0.0, 0.1))
    assert build_flink_trial(feed, results[:2]).expected == 3


def test_claims_are_three_times_where_windows_overlap() -> None:
    workload = load_workload("sustainable", "quick")
    wanted = {claim.cell.case: round(1 / claim.at_most) for claim in workload.claims}
    assert wanted == {query.name: 3 if query.overlap > 1 else 1 for query in QUERIES}


def test_the_curve_of_a_search_is_drawn_and_told() -> None:
    trials = (Trial(1e5, 8, (0.1,) * 8, 8), Trial(4e5, 8, (0.3,) * 8, 8), Trial(1.6e6, 8, (), 8))
    notes = build_notes(Knee(4e5, trials, "8 of 8 windows did not come"))
    cell = Cell("YSB", "penstock on Spark")
    figures = {cell: Figures(cell, {}, (), (1,), 1, {name: (value,) for name, value in notes.items()})}
    assert notes["rows/s sustained"] == 4e5
    assert [rate for rate, _ in curve_of(figures[cell], LATENCY)] == [1e5, 4e5]
    assert curve_of(figures[cell], WINDOWS) == [(1e5, 100.0), (4e5, 100.0), (1.6e6, 0.0)]
    charts = [
        chart for chart in load_workload("sustainable", "quick").charts if "YSB: latency" in chart.title
    ]
    assert "penstock on Spark" in draw_chart(charts[0], figures)
    head, rows = chart_table(charts[0], figures)
    assert head == ["", "rows/s", LATENCY]
    assert rows == [["penstock on Spark", "100 k", "100 ms"], ["penstock on Spark", "400 k", "300 ms"]]


def test_a_search_that_sustains_nothing_has_figures_too() -> None:
    notes = build_notes(Knee(0.0, (Trial(1e5, 8, (), 8),), "8 of 8 windows did not come"))
    assert notes["rows/s sustained"] == 0
    assert notes["per row at the knee (s)"] == 1.0
