"""The passes over rows against computing each cell from all of its values, at both speeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows import accumulate as registers
from penstock.kernels.windows import accumulate as rules
from tests.naive import registers as naive

fixed = settings(deadline=None, derandomize=True, max_examples=40)
speeds = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])

N_CELLS = 4
wholes = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
reals = st.floats(-1e6, 1e6)
Rows = list[tuple[int, Any]]


def rows_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Rows]:
    return st.lists(st.tuples(st.integers(0, N_CELLS - 1), values), max_size=40)


def values_of(rows: Rows, dtype: type) -> Any:
    return np.array([value for _, value in rows], dtype)


def place_rows(rows: Rows) -> tuple[Any, Any]:
    """(runs, cells): every second stretch of equal cells is a run with a cell, the others go row by row."""
    runs: list[list[int]] = []
    cells = [cell for cell, _ in rows]
    for i, cell in enumerate(cells):
        if i and cells[i - 1] == cell:
            runs[-1][1] = i + 1
        else:
            runs.append([i, i + 1, cell if len(runs) % 2 == 0 else -1])
    for start, stop, cell in runs:
        if cell >= 0:
            cells[start:stop] = [10**9] * (stop - start)  # never to be read
    return np.array(runs, np.int64).reshape(-1, 3), np.array(cells, np.int64)


def expect(rows: Rows, state: Any, neutral: tuple[float, ...], twin: Callable[[list[Any]], Any]) -> None:
    """Every cell is what the twin says of its values, and neutral without any."""
    for cell in range(N_CELLS):
        values = [value for at, value in rows if at == cell]
        wanted = twin(values) if values else neutral
        assert state[cell].tolist() == pytest.approx(list(wanted), rel=1e-9, abs=1e-6)


@speeds
@fixed
@given(rows_of(wholes))
def test_counts_are_of_rows(compiled: bool, rows: Rows) -> None:
    state = rules.COUNT.neutral_cells(N_CELLS)
    registers.count_rows.version(compiled)(*place_rows(rows), state)
    expect(rows, state, (0,), lambda values: (len(values),))


@speeds
@fixed
@given(rows_of(wholes))
def test_integer_sums_are_exact_even_where_their_parts_leave_int64(compiled: bool, rows: Rows) -> None:
    state = rules.WIDE_SUM.neutral_cells(N_CELLS)
    registers.sum_ints.version(compiled)(*place_rows(rows), values_of(rows, np.int64), state)
    for cell in range(N_CELLS):
        values = [value for at, value in rows if at == cell]
        assert tuple(state[cell].tolist()) == naive.wide_sum(values)
        assert (int(state[cell, 0]) << 32) + int(state[cell, 1]) == sum(values)


@speeds
@fixed
@given(rows_of(reals))
def test_float_sums_are_near_exact_ones(compiled: bool, rows: Rows) -> None:
    state = rules.FLOAT_SUM.neutral_cells(N_CELLS)
    registers.sum_floats.version(compiled)(*place_rows(rows), values_of(rows, np.float64), state)
    expect(rows, state, (0.0,), lambda values: (sum(values),))


@speeds
@pytest.mark.parametrize("flip", [0, -1], ids=["greatest", "least"])
@fixed
@given(rows_of(wholes))
def test_extremes_and_how_many_have_them(compiled: bool, flip: int, rows: Rows) -> None:
    places, values = place_rows(rows), values_of(rows, np.int64)
    alone, counted = rules.MAX.neutral_cells(N_CELLS), rules.MAX_COUNT.neutral_cells(N_CELLS)
    registers.keep_max.version(compiled)(*places, values, flip, alone)
    registers.count_max.version(compiled)(*places, values, flip, counted)
    for cell in range(N_CELLS):
        flipped = [value ^ flip for at, value in rows if at == cell]
        if flipped:
            assert tuple(counted[cell].tolist()) == naive.count_greatest(flipped)
            assert alone[cell, 0] == max(flipped)


@speeds
@pytest.mark.parametrize("flip", [0, -1], ids=["last", "first"])
@fixed
@given(rows_of(st.tuples(st.integers(-3, 3), st.integers(-2, 2), wholes)))
def test_first_and_last_go_by_time_then_order(compiled: bool, flip: int, rows: Rows) -> None:
    times, orders, values = (np.array([row[part] for _, row in rows], np.int64) for part in range(3))
    state = rules.LATEST.neutral_cells(N_CELLS)
    registers.keep_latest.version(compiled)(*place_rows(rows), times, orders, values, flip, state)
    for cell in range(N_CELLS):
        held = [(time ^ flip, order ^ flip, value) for at, (time, order, value) in rows if at == cell]
        if held:
            assert tuple(state[cell].tolist()) == max(held)


@speeds
@fixed
@given(rows_of(reals))
def test_moments_are_those_of_two_passes(compiled: bool, rows: Rows) -> None:
    state, part = rules.MOMENTS.neutral_cells(N_CELLS), rules.MOMENTS.neutral_cells(1)
    registers.add_moments.version(compiled)(*place_rows(rows), values_of(rows, np.float64), part, state)
    for cell in range(N_CELLS):
        values = [value for at, value in rows if at == cell]
        if values:
            wanted = naive.moments(values)
            assert state[cell].tolist() == pytest.approx(list(wanted), rel=1e-9, abs=1e-3)


@speeds
@fixed
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=2))
def test_ordered_integers_have_the_order_of_their_floats_and_give_them_back(
    compiled: bool, pair: list[float]
) -> None:
    floats = np.array(pair, np.float64)
    ordered = np.empty(2, np.int64)
    registers.encode_floats.version(compiled)(floats.view(np.int64), ordered)
    keys = [naive.float_order(value) for value in pair]
    assert (ordered[0] < ordered[1]) == (keys[0] < keys[1])
    assert (ordered[0] == ordered[1]) == (keys[0] == keys[1])
    assert [naive.float_order(value) for value in registers.decode_floats(ordered).tolist()] == keys
    assert [naive.float_order(value) for value in registers.decode_floats(~(~ordered)).tolist()] == keys


def test_a_sum_of_a_million_tenths_is_within_a_thousandth_of_a_billionth() -> None:
    n = 1_000_000
    state = rules.FLOAT_SUM.neutral_cells(1)
    registers.sum_floats.compiled(*registers.row_by_row(np.zeros(n, np.int64)), np.full(n, 0.1), state)
    assert abs(state[0, 0] - n / 10) <= 1e-9 * n / 10
