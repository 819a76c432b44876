"""The windows workload: its oracle is right, every way answers alike, and wrong answers are noticed."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from bench import BenchError, Case, Result, Way, Workload, list_workloads, load_workload, measure
from bench.workloads.windows import peers, stage
from bench.workloads.windows.answer import Answer, check_answer, compute_answer
from bench.workloads.windows.experiment import BUCKETS, OURS, PANDAS, POLARS, build_ways, fit_shape
from bench.workloads.windows.experiments import count_results
from bench.workloads.windows.shape import BEGIN, FUNCTIONS, Flow, Shape, build_flow, partition_by_key

# 2,000 rows, 50 to a slice of 10 ms, windows of 100 ms: small enough to go through by hand.
SMALL = Shape(2_000, size=100_000, every=10_000, per_slice=50, batch=300)
SHAPES = {
    "plain": SMALL,
    "steady": replace(SMALL, steady=True),
    "keys": replace(SMALL, n_keys=7),
    "skewed": replace(SMALL, n_keys=7, skew=0.9, steady=True),
    "delayed": replace(SMALL, mean_delay=30_000),
    "delayed and steady": replace(SMALL, mean_delay=30_000, n_keys=3, steady=True),
    "tumbling": replace(SMALL, every=100_000, per_slice=500, n_keys=50),
    "one tumbling": replace(SMALL, every=100_000, per_slice=500),
    "counted": replace(SMALL, size=64, every=8, function="mean", counted=True),
    **{name: replace(SMALL, function=name) for name in FUNCTIONS},
}


def compute_windows(flow: Flow) -> dict[tuple[int, int], list[float]]:
    """Return the values of every window, by (start, key), row by row."""
    shape = flow.shape
    rows = [
        zip(*(column.tolist() for column in columns), strict=True) for columns in (flow.lead, _rows(flow))
    ]
    windows = defaultdict(list)
    for time, key, value in itertools.chain(*rows):
        last = time // shape.every * shape.every
        for start in range(last, time - shape.size, -shape.every):
            windows[start, key].append(value)
    first, end = (flow.begin, flow.watermarks[-1]) if flow.begin is not None else (-np.inf, np.inf)
    return {at: windows[at] for at in sorted(windows) if first < at[0] + shape.size <= end}


def _rows(flow: Flow) -> tuple[Any, Any, Any]:
    return flow.times, flow.keys, flow.values


@pytest.mark.parametrize("name", ["plain", "steady", "keys", "skewed", "delayed", "delayed and steady"])
def test_the_oracle_of_sums_is_what_comes_of_putting_each_row_into_its_windows(name: str) -> None:
    flow = build_flow(SHAPES[name], seed=3)
    windows, answer = compute_windows(flow), compute_answer(flow)
    assert list(zip(answer.starts.tolist(), answer.keys.tolist(), strict=True)) == list(windows)
    assert answer.values[:, 0].tolist() == [sum(values) for values in windows.values()]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_oracle_of_each_function_is_that_function_of_a_window_s_values(name: str) -> None:
    plain: dict[str, Callable[[Any], list[float]]] = {
        "sum": lambda v: [v.sum()],
        "count": lambda v: [len(v)],
        "max": lambda v: [v.max()],
        "min": lambda v: [v.min()],
        "mean": lambda v: [v.mean()],
        "max_count": lambda v: [v.max(), (v == v.max()).sum()],
        "min_count": lambda v: [v.min(), (v == v.min()).sum()],
        "sample std": lambda v: [v.std(ddof=1)],
        "population std": lambda v: [v.std()],
        "fold": lambda v: [(v.max() - v.min()) / len(v)],
    }
    flow = build_flow(SHAPES[name], seed=3)
    expected = [plain[name](np.array(values)) for values in compute_windows(flow).values()]
    np.testing.assert_allclose(compute_answer(flow).values, expected, rtol=1e-9)


def test_the_oracle_of_count_windows_is_the_mean_of_neighbouring_rows() -> None:
    flow = build_flow(SHAPES["counted"], seed=3)
    values = flow.values.tolist()
    expected = [sum(values[at : at + 64]) / 64 for at in range(0, 2_000 - 63, 8)]
    assert compute_answer(flow).values[:, 0].tolist() == expected


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_stage_answers_as_the_oracle(name: str) -> None:
    flow = build_flow(SHAPES[name], seed=5)
    assert check_answer(compute_answer(flow), stage.run_stage(stage.prime_stage(flow))) is None


@pytest.mark.parametrize("way", [None, "sweep", "tree"])
@pytest.mark.parametrize("name", ["steady", "skewed", "delayed and steady", "keys"])
def test_a_store_with_its_choice_forced_answers_as_the_oracle(name: str, way: Any) -> None:
    flow = build_flow(SHAPES[name], seed=5)
    for most in (1, 3, 1 << 20):
        assert check_answer(compute_answer(flow), stage.run_store(stage.prime_store(flow, way, most))) is None


@pytest.mark.parametrize("name", ["plain", "keys", "delayed", "tumbling", "counted", "count", "one tumbling"])
def test_buckets_pandas_and_polars_answer_as_the_oracle(name: str) -> None:
    flow = build_flow(SHAPES[name], seed=5)
    expected = compute_answer(flow)
    assert check_answer(expected, peers.fill_buckets(flow)) is None
    assert check_answer(expected, peers.run_pandas(peers.build_pandas_frame(flow))) is None
    assert check_answer(expected, peers.run_polars(peers.build_polars_frame(flow))) is None


@pytest.mark.parametrize("name", ["plain", "keys", "skewed"])
def test_parts_of_the_stage_lose_no_row_key_or_window(name: str) -> None:
    flow = build_flow(SHAPES[name], seed=5)
    parts = [way for way in load_workload("windows", "full").ways if way.name.startswith("part: ")]
    assert len(parts) == 5
    for way in parts:
        assert way.oracle is not None
        assert check_answer(way.oracle(flow), way.run(way.setup(flow) if way.setup else flow)) is None


def test_reading_reads_every_column_that_a_case_has() -> None:
    flow = build_flow(SHAPES["keys"], seed=5)
    assert peers.read_columns(flow) == [
        float(column.sum()) for column in (flow.times, flow.keys, flow.values)
    ]
    assert check_answer(peers.sum_columns_by_parts(flow), peers.read_columns(flow)) is None
    assert len(peers.read_columns(build_flow(SMALL, seed=5))) == 2


def test_a_wrong_answer_is_noticed_and_named() -> None:
    expected = compute_answer(build_flow(SMALL, seed=5))

    def instead(**changes: Any) -> str | None:
        return check_answer(expected, partial(replace, expected, **changes))

    values = expected.values.copy()
    values[4] += 1
    assert instead() is None
    start = expected.starts[4]
    assert instead(values=values) == (
        f"window {start} of key 0: expected {expected.values[4].tolist()}, got {values[4].tolist()}"
    )
    assert instead(starts=expected.starts + 1) == "the starts of windows differ"
    assert instead(keys=expected.keys + 1) == "the keys of windows differ"
    fewer = Answer(expected.starts[1:], expected.keys[1:], expected.values[1:])
    assert check_answer(expected, lambda: fewer) == "expected 49 windows, got 48"
    assert check_answer([2.0], [3.0]) == "expected [2.0], got [3.0]"


def test_a_delay_scatters_rows_and_the_watermark_waits_for_them() -> None:
    flow = build_flow(replace(SMALL, mean_delay=30_000), seed=5)
    assert (np.diff(flow.times) < 0).mean() > 0.3
    assert np.array_equal(np.sort(flow.times), build_flow(SMALL, seed=5).times)
    for batch, watermark in zip(flow.batches[1:], flow.watermarks, strict=False):
        assert batch.times.min() >= watermark


def test_skewed_keys_fall_off_as_their_rank() -> None:
    counts = np.bincount(build_flow(Shape(100_000, n_keys=500, skew=0.9), seed=5).keys, minlength=500)
    assert counts[0] / counts[9] == pytest.approx(10**0.9, rel=0.1)


def test_equal_seeds_make_equal_rows() -> None:
    shape = replace(SMALL, n_keys=7, mean_delay=30_000)
    one, same, other = (build_flow(shape, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(_rows(one), _rows(same), strict=True))
    assert not np.array_equal(one.values, other.values)


@pytest.mark.parametrize("size", ["quick", "full"])
def test_both_sizes_claim_the_same_and_every_case_has_whole_slides_from_the_first_row(size: Any) -> None:
    assert "windows" in list_workloads()
    workload = load_workload("windows", size)
    assert [claim.says for claim in workload.claims] == [
        claim.says for claim in load_workload("windows", "quick").claims
    ]
    shapes = [_shape(case) for case in workload.cases]
    assert all(shape.size % shape.every == 0 for shape in shapes)
    assert all(BEGIN % shape.every == 0 for shape in shapes if not shape.counted)


def _shape(case: Any) -> Shape:
    shape = case.make.args[0]
    assert isinstance(shape, Shape)
    return shape


@pytest.mark.parametrize(("group", "per_cell"), [("slide: ", {1_000}), ("keys, equal slices: ", {100})])
def test_sweeps_that_say_so_keep_their_rows_per_slice_and_key(group: str, per_cell: set[int]) -> None:
    cases = [case for case in load_workload("windows", "full").cases if case.name.startswith(group)]
    assert {case.units["rows per slice and key"] for case in cases} == per_cell


@pytest.mark.parametrize("n_keys", [0, 3])
def test_a_steady_case_closes_one_window_per_slice_and_key(n_keys: int) -> None:
    shape = replace(SMALL, n_rows=150, n_keys=n_keys, steady=True)
    assert count_results(compute_answer(build_flow(shape, 1))) == {"results": 2 * max(n_keys, 1)}


def test_keys_are_claimed_about_at_equal_rows_per_slice_and_key_and_tried_on_one_stream_too() -> None:
    workload = load_workload("windows", "quick")
    says = [claim.says for claim in workload.claims if claim.says.startswith("500 keys")]
    assert says == ["500 keys for 1, equal rows per slice and key, costs at most 1.5x"]
    assert {"keys, one rate: 1", "keys, one rate: 500"} <= {case.name for case in workload.cases}


@pytest.mark.parametrize("size", ["quick", "full"])
def test_every_case_is_drawn_in_some_chart(size: Any) -> None:
    workload = load_workload("windows", size)
    drawn = {point.cell.case for chart in workload.charts for point in chart.points}
    assert {case.name for case in workload.cases} == drawn
    assert all(chart.caption and chart.along for chart in workload.charts)


def test_a_peer_that_is_not_installed_is_named_with_how_to_get_it() -> None:
    with pytest.raises(BenchError, match="no_such_peer is not installed") as caught:
        peers.import_peer("no_such_peer")
    assert caught.value.hint == "make setup"


def test_a_row_that_the_stage_calls_late_stops_the_measurement() -> None:
    flow = build_flow(replace(SMALL, mean_delay=30_000), seed=5)
    hasty = replace(flow, watermarks=tuple(mark + 500_000 for mark in flow.watermarks))
    with pytest.raises(AssertionError, match=r"rows went to \.late"):
        stage.run_stage(stage.prime_stage(hasty))


@pytest.mark.parametrize("name", ["steady", "skewed", "delayed and steady"])
def test_every_way_that_can_take_a_steady_case_answers_as_the_oracle(name: str) -> None:
    batch_peers = (BUCKETS, PANDAS, POLARS)
    ways = tuple(replace(way, only=()) for way in build_ways() if way.name not in batch_peers)
    _measure_ways(SHAPES[name], ways)


def test_every_way_answers_as_the_oracle_when_the_rows_end() -> None:
    result = _measure_ways(SMALL, build_ways())
    assert len(result.figures) == 21
    assert result.figures[0].units == {"results": 49}


def _measure_ways(shape: Shape, ways: Iterable[Way]) -> Result:
    case = Case("small", partial(build_flow, shape))
    small = Workload(
        "small", "all ways", (case,), tuple(ways), compute_answer, check_answer, counts=count_results
    )
    return measure(small, size="quick", rounds=1, warm_up=0)


def test_parts_by_key_share_no_key_and_lose_no_row() -> None:
    flow = build_flow(SHAPES["skewed"], seed=5)
    parts = partition_by_key(flow, 4)
    assert [sorted(set(part.keys.tolist())) for part in parts] == [[0, 4], [1, 5], [2, 6], [3]]
    assert sum(part.shape.n_rows for part in parts) == 2_000
    assert {part.watermarks[-1] for part in parts} == {flow.watermarks[-1]}


def test_a_traced_stage_records_the_time_and_the_size_of_each_batch() -> None:
    flow = build_flow(SHAPES["steady"], seed=5)
    trace = stage.trace_stage(stage.prime_stage(flow))
    assert (len(trace.batch_ns), len(trace.held_bytes)) == (7, 7)
    notes = stage.trace_notes(replace(trace, batch_ns=(4_000_000,) * 7, held_bytes=(5, 9, 5, 5, 5, 5, 5)))
    # 300 rows a batch at 50 rows per 10 ms take 60 ms to fill.
    assert notes[stage.ARRIVAL_TO_RESULT] == pytest.approx(0.030 + 0.004)
    assert (notes[stage.PER_BATCH], notes[stage.HELD]) == (0.004, 9)


def test_slices_are_pending_from_their_first_row_until_the_watermark_passes_their_end() -> None:
    #  0   10   20   30 ms     rows at 5, 15, 25 and 35, two to a batch
    #  |a   |b   |c   |d       watermarks 15 (b is left) and 35 (d is left)
    times = np.array([5_000, 15_000, 25_000, 35_000])
    shape = Shape(4, size=100_000, every=10_000, per_slice=1, batch=2)
    flow = replace(build_flow(shape, seed=1), times=times, watermarks=(15_000, 35_000))
    assert stage.count_pending_slices(flow) == 1
    assert stage.count_pending_slices(replace(flow, watermarks=(0, 15_000))) == 2.5


@pytest.mark.parametrize(
    ("way", "n_rows"), [(OURS, 1 << 22), (BUCKETS, 83_886), (PANDAS, 1 << 21), (POLARS, 335_544)]
)
def test_ways_that_copy_rows_get_as_many_as_they_can_copy(way: str, n_rows: int) -> None:
    flow = fit_shape(way, Shape(1 << 22, steady=True))
    assert (flow.n_rows, flow.steady) == (n_rows, way == OURS)
