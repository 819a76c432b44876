"""Rows into slices: all speeds put the same rows into the same slices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK, MAX_DISTANCE, MAX_ID
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.input import InputRows, Values
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.panes import SliceAccumulators
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow
from tests.naive.slices import slice_of

fixed = settings(deadline=None, derandomize=True, max_examples=30)
SUM = (WindowAccumulator(AccumulatorKind.ROWS), WindowAccumulator(AccumulatorKind.FLOAT_SUM, 0))
MORE = (
    *SUM,
    WindowAccumulator(AccumulatorKind.MAX_TIME),
)  # too much for one pass: rows are placed, then added
kinds = pytest.mark.parametrize("registers", [SUM, MORE], ids=["one pass", "placed"])
speeds = pytest.mark.parametrize("small", [0, 10**9], ids=["compiled", "plain"])

Totals = dict[tuple[int, int], tuple[int, float]]


def read_cells(cells: SliceAccumulators, slicing: Slicing) -> Totals:
    """(rows, sum) by (slot, start of slice)."""
    result = {}
    for slot, ring in zip(*cells.rings.active(), strict=True):
        for id_ in range(ring[FIRST], ring[END]):
            at = ring[BASE] + (id_ & ring[MASK])
            if cells.arena.cells[0][at, 0]:
                total = round(float(cells.arena.cells[1][at, 0]), 6)
                result[int(slot), slicing.start_of(id_)] = (int(cells.arena.cells[0][at, 0]), total)
    return result


def count_slices(rows: list[tuple[int, int, float]], pair: tuple[int, int], open_from: int) -> Totals:
    """The same, slice by slice along the microseconds."""
    result: Totals = {}
    for slot, time, value in rows:
        if time >= open_from:
            place = slot, slice_of(time, [pair])[0]
            n, total = result.get(place, (0, 0.0))
            result[place] = n + 1, round(total + value, 6)
    return result


def arrays(rows: list[tuple[int, int, float]]) -> tuple[Any, Any, Any]:
    slots, times = (np.array([row[part] for row in rows], np.int64) for part in range(2))
    return slots, times, np.array([row[2] for row in rows], np.float64)


def single(times: Any, values: Values) -> InputRows:
    """Rows without a key."""
    return InputRows(np.zeros(len(times), np.int64), times, values=(values,), single_key=True)


sometimes_far = st.integers(-60, 60) | st.sampled_from([-(10**7), 10**7, 2 * MAX_DISTANCE])
rows_of = st.lists(
    st.tuples(st.integers(0, 3), sometimes_far, st.integers(-4, 4).map(float)), min_size=1, max_size=60
)


@kinds
@speeds
@fixed
@given(
    rows_of,
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.integers(-50, 20),
    st.integers(1, 30),
    st.booleans(),
)
def test_rows_go_into_the_slices_that_hold_their_times_unless_they_are_late(
    registers: Any,
    small: int,
    rows: list[tuple[int, int, float]],
    pair: tuple[int, int],
    open_from: int,
    cut: int,
    one_slot: bool,
) -> None:
    rows = [(0, time, value) for _, time, value in rows] if one_slot else rows
    slicing = Slicing.of([TimeWindow(*pair)])
    cells = SliceAccumulators(slicing, registers, JitPolicy(small))
    for start in range(0, len(rows), cut):
        part = rows[start : start + cut]
        slots, times, values = arrays(part)
        least = cells.add(InputRows(slots, times, values=(Values(values),)), open_from)
        assert least == min(times.tolist(), default=MAX_ID)
    assert read_cells(cells, slicing) == count_slices(rows, pair, open_from)


@pytest.mark.parametrize("disorder", [0, 40, 4000])
@pytest.mark.parametrize("n_slots", [1, 7])
@pytest.mark.parametrize("pair", [(100, 10), (25, 10)], ids=["equal slices", "two per slide"])
def test_long_batches_in_and_out_of_order_are_counted_and_summed_in_one_pass(
    disorder: int, n_slots: int, pair: tuple[int, int]
) -> None:
    rng = np.random.default_rng(disorder + n_slots)
    times = np.sort(rng.integers(0, 3000, 6000)) - rng.integers(0, disorder + 1, 6000)
    slots, values = rng.integers(0, n_slots, 6000), rng.integers(0, 9, 6000).astype(np.float64)
    slicing = Slicing.of([TimeWindow(*pair)])
    cells = SliceAccumulators(slicing, SUM, JitPolicy(0))
    for part in (slice(0, 2500), slice(2500, 6000)):
        cells.add(InputRows(slots[part], times[part], values=(Values(values[part]),)), -100)
    rows = list(zip(slots.tolist(), times.tolist(), values.tolist(), strict=True))
    assert read_cells(cells, slicing) == count_slices(rows, pair, -100)


@pytest.mark.parametrize("period", [7, 999, 2**20, 2**29 - 1, 2**29, 2**29 + 1, 2**31, 2**33])
@pytest.mark.parametrize("n_slices", [1, 3, 4, 5, 40])
def test_blocks_over_few_and_many_slices_near_and_far_apart_are_summed_as_by_division(
    period: int, n_slices: int
) -> None:
    rng = np.random.default_rng(period + n_slices)
    slicing = Slicing.of([TimeWindow(period, period)])
    cells = SliceAccumulators(slicing, SUM, JitPolicy(0))
    wanted: dict[int, tuple[int, float]] = {}
    for jump in (0, 3, 2**32 // period + 1, 1, 5):  # also further on than 32 bits reach, and back
        times = (jump + rng.integers(0, n_slices, 700)) * period + rng.integers(0, period, 700)
        values = rng.integers(-9, 9, 700).astype(np.float64)
        cells.add(single(times, Values(values)), 0)
        for start, value in zip((times // period * period).tolist(), values.tolist(), strict=True):
            n, total = wanted.get(start, (0, 0.0))
            wanted[start] = n + 1, total + value
    assert read_cells(cells, slicing) == {(0, start): cell for start, cell in wanted.items()}


def test_nan_and_infinity_stay_in_their_slices() -> None:
    slicing = Slicing.of([TimeWindow(10, 10)])
    cells = SliceAccumulators(slicing, SUM, JitPolicy(0))
    values = np.ones(90)
    values[5], values[40] = math.nan, math.inf
    cells.add(single(np.arange(90) // 3, Values(values)), 0)
    result = read_cells(cells, slicing)
    assert math.isnan(result[0, 0][1])
    assert [result[0, 10], result[0, 20]] == [(30, math.inf), (30, 30.0)]


def test_many_slots_at_once_find_room() -> None:
    slots = np.arange(50_000)
    slicing = Slicing.of([TimeWindow(10, 10)])
    cells = SliceAccumulators(slicing, SUM, JitPolicy(0))
    for start in (0, 30):
        cells.add(InputRows(slots, slots % 10 + start, values=(Values(np.ones(50_000)),)))
    assert (cells.rings.table[:50_000, END] - cells.rings.table[:50_000, FIRST] == 4).all()
    assert cells.arena.cells[0].sum() == 100_000


def test_a_period_too_long_for_the_product_is_divided_exactly() -> None:
    slicing = Slicing.of([TimeWindow(2**55, 2**55)])
    cells = SliceAccumulators(slicing, SUM, JitPolicy(0))
    cells.add(single(np.array([2**55 - 1, 2**55, -1]), Values(np.ones(3))))
    assert read_cells(cells, slicing) == {(0, start): (1, 1.0) for start in (-(2**55), 0, 2**55)}


@pytest.mark.parametrize("period", [1, 3, 7, 10, 997, 3_001_000, 2**40 + 1])
def test_slices_by_multiplication_are_those_by_division_at_the_edges_of_their_reach(period: int) -> None:
    slicing = Slicing.of([TimeWindow(period, period)])
    base = 10**15 // period * period
    whole = (MAX_DISTANCE // 4) // period
    times = [base + k * period + d for k in (0, 1, whole - 1, whole) for d in (-1, 0, 1)]
    for time in times[1:]:
        cells = SliceAccumulators(slicing, SUM, JitPolicy(0))
        cells.add(single(np.array([base, time]), Values(np.ones(2))))
        wanted: dict[int, int] = {}
        for moment in (base, time):
            start = moment // period * period
            wanted[start] = wanted.get(start, 0) + 1
        assert {start: n for (_, start), (n, _) in read_cells(cells, slicing).items()} == wanted
    assert math.gcd(period, base) == period
