"""Which cells a join gets by what its rows are like, and what is told of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engines.checkpoint.state_files import StateHandle
from penstock.engines.spark.driver.join_planner import JoinPlanner, cut_ranges
from penstock.engines.spark.join_exchange import JoinPartitioner, reduce_sample
from penstock.stages.join.cell_places import HomeLayout, RangeLayout
from penstock.stages.join.model import ExchangeLoad, list_layouts, share_of_grid
from penstock.stages.rows.batch import Batch

SCHEMA = {"t": "int64", "v": "int64"}


def planner(on: Any = None, **options: Any) -> JoinPlanner:
    graph = ps.PipeGraph("planned")
    left, right = (
        graph.source(ps.read.batches([], schema=SCHEMA), time="t", time_unit="s", delay="1 s", name=name)
        for name in ("left", "right")
    )
    joined = left.join(
        right,
        on=ps.band("v", 10) if on is None else on,
        suffix="_r",
        name="pairs",
        **{"within": "5 s"} | options,
    )
    joined.sink(ps.write.memory())
    return JoinPlanner(graph.plan()["pairs"])


def report_of(planner: JoinPlanner, *sides: list[int]) -> dict[str, Any]:
    """What a task reports that sent these values of the left and of the right."""
    sent = []
    for side, values in enumerate(sides):
        schema = pa.schema([("v", pa.int64())])
        partitioner = JoinPartitioner(planner.exchange, side, schema)
        times = np.arange(len(values), dtype=np.int64)
        batch = Batch(
            pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=schema), times, (times,)
        )
        list(partitioner.partition(batch, 4, (2, 2)))
        sent.append(["pairs", *partitioner.take_sample()])
    n_rows = sum(map(len, sides))
    return {"sent": sent, "cells": [["pairs", n_rows, 1e-6 * n_rows, 0, n_rows]]}


def choose(planner: JoinPlanner, n: int, job: str = "1", after: str = "0", n_saved: int = 0) -> Any:
    return planner.choose(job, after, n, {0: StateHandle("x", 0, 1, n_saved)} if n_saved else {})


def test_before_anything_is_known_a_join_has_a_grid() -> None:
    assert choose(planner(), 4) == ((2, 2), False)
    assert choose(planner(how="full"), 4) == ((1, 1), False)
    assert choose(planner(how="left"), 4) == ((4, 1), False)


@pytest.mark.parametrize(
    ("options", "meets_twice"),
    [({"how": "full"}, True), ({"on_error": "skip"}, True), ({"within": None, "last_rows": 9}, False)],
    ids=["full", "failing pairs", "last rows"],
)
def test_where_rows_must_be_known_in_one_place_comparisons_are_shared_out_if_they_are_most_of_the_work(
    options: dict[str, Any], meets_twice: bool
) -> None:
    assert choose(planner(is_before, **options), 4) == (HomeLayout(4, meets_twice), False)
    assert choose(planner(is_before, **options), 1) == ((1, 1), False)


def test_an_index_leaves_one_cell_and_scans_ask_for_all() -> None:
    plan = planner(how="full")
    assert choose(plan, 4) == ((1, 1), False)
    plan.learn([report_of(plan, [1] * 1000, [1] * 1000)], "pairs")
    assert choose(plan, 4, "2", "1") == ((1, 1), False), "all rows in all cells would save nothing"
    scanned = report_of(plan, [1] * 1000, [1] * 1000)
    scanned["cells"] = [["pairs", 2000, 1.0, 10**7, 2000]]
    plan.learn([scanned], "pairs")
    assert choose(plan, 4, "3", "2") == (HomeLayout(4), False)


def is_before(left: Any, right: Any) -> bool:
    """A predicate that is asked of every pair."""
    return bool(left.v < right.v)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_values_that_are_spread_are_cut_into_ranges_of_as_many_rows(how: str) -> None:
    plan = planner(how=how)
    values = [37 * n % 10_000 for n in range(20_000)]
    plan.learn([report_of(plan, values, values)], "pairs")
    layout, respread = choose(plan, 4)
    assert respread
    assert isinstance(layout, RangeLayout)
    assert layout.copies in plan.exchange.copies
    assert np.allclose(layout.cuts, [2500, 5000, 7500], atol=250)
    assert np.allclose([left for left, *_ in plan.shares(layout)], 0.25, atol=0.04)


def test_one_value_that_most_rows_have_leaves_the_grid_where_it_is() -> None:
    plan = planner()
    values = [5] * 9_000 + list(range(1_000))
    plan.learn([report_of(plan, values, values)], "pairs")
    assert choose(plan, 4) == ((2, 2), False), "a range cannot share one value out, and a grid can"


def test_a_band_as_wide_as_the_values_leaves_the_grid_where_it_is() -> None:
    plan = planner(ps.band("v", 5_000))
    values = [37 * n % 10_000 for n in range(20_000)]
    plan.learn([report_of(plan, values, values)], "pairs")
    assert choose(plan, 4) == ((2, 2), False)


def test_the_side_with_fewer_rows_is_the_one_that_is_copied() -> None:
    many, few = [37 * n % 10_000 for n in range(40_000)], [71 * n % 10_000 for n in range(2_000)]
    for sides, copies in (((many, few), (False, True)), ((few, many), (True, False))):
        plan = planner(ps.band("v", 500))
        plan.learn([report_of(plan, *sides)], "pairs")
        layout, _ = choose(plan, 8)
        assert layout.copies == copies


def test_ranges_stay_until_the_values_have_moved_and_as_many_rows_came_as_are_saved() -> None:
    plan = planner()
    low, high = ([shift + 37 * n % 10_000 for n in range(20_000)] for shift in (0, 50_000))
    plan.learn([report_of(plan, low, low)], "pairs")
    first, _ = choose(plan, 4, "1", "0")
    plan.learn([report_of(plan, low, low)], "pairs")
    assert choose(plan, 4, "2", "1", n_saved=10) == (first, False), "nothing has changed"
    plan.learn([report_of(plan, high, high)], "pairs")
    too_many = choose(plan, 4, "3", "2", n_saved=10**6)
    assert too_many == ((2, 2), False), "a grid takes rows as they were saved"
    for _ in range(4):
        plan.learn([report_of(plan, high, high)], "pairs")
    moved, respread = choose(plan, 4, "4", "3", n_saved=10)
    assert respread
    assert moved.cuts[0] > 40_000


def test_a_layout_that_was_never_committed_is_not_what_state_was_saved_by() -> None:
    plan = planner()
    values = [37 * n % 10_000 for n in range(20_000)]
    plan.learn([report_of(plan, values, values)], "pairs")
    ranges, respread = choose(plan, 4, "failed", "0", n_saved=5)
    assert respread
    assert isinstance(ranges, RangeLayout)
    again, respread = choose(plan, 4, "again", "0", n_saved=5)
    assert respread or not isinstance(again, RangeLayout), "no piece of state was written by those ranges"


def test_fewer_partitions_than_ranges_need_another_layout() -> None:
    plan = planner()
    values = [37 * n % 10_000 for n in range(20_000)]
    plan.learn([report_of(plan, values, values)], "pairs")
    layout, _ = choose(plan, 8, "1", "0")
    assert layout.n_parts == 8
    fewer, _ = choose(plan, 2, "2", "1", n_saved=10**6)
    assert fewer in list(list_layouts(2))


def test_grids_follow_the_rows_of_each_side_when_that_is_worth_its_price() -> None:
    plan = planner(ps.left("v") < ps.right("v"))
    assert choose(plan, 6, "1", "0") == ((2, 3), False)
    plan.learn([report_of(plan, [1] * 1000, [1] * 900)], "pairs")
    assert choose(plan, 6, "2", "1")[0] == (2, 3)
    for _ in range(5):
        plan.learn([report_of(plan, [1] * 3000, [1] * 10)], "pairs")
    assert choose(plan, 6, "3", "2")[0] == (6, 1)
    assert choose(plan, 2, "4", "3")[0] == (2, 1), "there are fewer partitions"
    fixed = planner(layout=(3, 2))
    fixed.learn([report_of(fixed, [1] * 3000, [1] * 10)], "pairs")
    assert choose(fixed, 6) == ((3, 2), False)


@given(st.integers(1, 64), st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)))
def test_no_grid_brings_fewer_rows_to_a_cell_than_the_one_that_is_chosen(
    max_cells: int, rates: tuple[float, float]
) -> None:
    plan = planner()
    plan._rows = list(rates)
    m, n = plan.pick(max_cells, None)  # type: ignore[misc]
    assert m * n <= max_cells
    best = min(rates[0] / rows + rates[1] / columns for rows, columns in list_layouts(max_cells))
    assert rates[0] / m + rates[1] / n <= best * (1 + 1e-9)


def test_comparisons_ask_for_all_cells_that_there_are() -> None:
    # 7 cells in a line take more rows in than 2 x 3 do, and compare less.
    few, many = (ExchangeLoad((1e3, 1e3), (1e6, 1e6), 1e-6, comparison) for comparison in (0.0, 1e-6))
    assert few.seconds([share_of_grid((2, 3))]) < few.seconds([share_of_grid((7, 1))])
    assert many.seconds([share_of_grid((2, 3))]) > many.seconds([share_of_grid((7, 1))])


def test_what_was_predicted_and_measured_is_told_with_the_accounts() -> None:
    plan = planner()
    values = [37 * n % 10_000 for n in range(20_000)]
    plan.learn([report_of(plan, values, values)], "pairs")
    choose(plan, 4, "1", "0", n_saved=7)
    accounts = plan.measure(ps.accounts.Accounts(rows_in=5, passed=5), "1")
    assert accounts.layout == "4 ranges of v"
    assert (accounts.rows_in, accounts.rates, accounts.stored) == (5, (20_000, 20_000), (7, 0))
    assert accounts.measured_ms == pytest.approx(40.0)
    assert 9 < accounts.predicted_ms < 14


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.floats(0.1, 5)), min_size=1, max_size=60), st.integers(1, 20)
)
def test_a_smaller_sample_has_the_weight_and_the_order_of_the_larger(
    weighted: list[tuple[int, float]], most: int
) -> None:
    codes, weights = (np.array(part) for part in zip(*weighted, strict=True))
    few, of_few = reduce_sample(codes, weights, most)
    assert len(few) == min(most, len(codes))
    assert (np.diff(few) >= 0).all()
    assert set(few.tolist()) <= set(codes.tolist())
    assert of_few.sum() == pytest.approx(weights.sum())


def test_cuts_are_where_ranges_have_one_weight_and_never_leave_one_empty() -> None:
    skewed = [(np.array([0] * 50 + list(range(1, 51))), np.ones(100))]
    cuts = cut_ranges(skewed, 4)
    assert cuts == (1, 26)
    assert cut_ranges(skewed, 1) == ()
