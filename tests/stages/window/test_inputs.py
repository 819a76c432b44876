"""Rows into registers: runs and single cells, nulls and floats come to the same cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from penstock.kernels.windows.accumulate import decode_floats
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.input import InputRows, Values
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.inputs import AccumulatorUpdate

speeds = pytest.mark.parametrize("small", [0, 10**9], ids=["compiled", "plain"])
ALL = [
    WindowAccumulator(AccumulatorKind.ROWS),
    WindowAccumulator(AccumulatorKind.MAX_TIME),
    WindowAccumulator(AccumulatorKind.COUNT, 0),
    WindowAccumulator(AccumulatorKind.INT_SUM, 0),
    WindowAccumulator(AccumulatorKind.MAX, 0),
    WindowAccumulator(AccumulatorKind.MIN_COUNT, 0),
    WindowAccumulator(AccumulatorKind.FIRST, 0),
    WindowAccumulator(AccumulatorKind.FLOAT_SUM, 1),
    WindowAccumulator(AccumulatorKind.MOMENTS, 1),
    WindowAccumulator(AccumulatorKind.MIN, 1),
    WindowAccumulator(AccumulatorKind.MAX_COUNT, 1),
]


def fill_cells(
    registers: list[WindowAccumulator], cells: list[int], values: list[Values], small: int, runs: Any
) -> Any:
    """The cells 0, 1, 2 of each register."""
    times = np.arange(len(cells))
    rows = InputRows(np.zeros_like(times), times, values=tuple(values))
    filling = AccumulatorUpdate(JitPolicy(small), np.array(cells), rows, runs)
    states = [register.rule.neutral_cells(3) for register in registers]
    for register, state in zip(registers, states, strict=True):
        filling.apply(register, state)
    return [state.tolist() for state in states]


@speeds
@pytest.mark.parametrize("nulls", [False, True], ids=["no nulls", "nulls"])
def test_runs_come_to_the_same_cells_as_the_rows_one_by_one(small: int, nulls: bool) -> None:
    cells = [0, 0, 0, 2, 1, 2, 2, 2]
    valid = np.array([True, False, True, True, False, True, True, False]) if nulls else None
    wholes = Values(np.array([3, -9, 3, 7, 1, 1, 2**62, 1]), valid)
    reals = Values(np.array([0.5, -1.0, 2.0, math.nan, 4.0, -0.0, 0.0, 8.0]), valid)
    runs = np.array([[0, 3, 0], [3, 6, -1], [6, 8, 2]])
    unwritten = [-5, -5, -5, 2, 1, 2, -5, -5]
    one_by_one = fill_cells(ALL, cells, [wholes, reals], small, None)
    in_runs = fill_cells(ALL, unwritten, [wholes, reals], small, runs)
    for register, one, other in zip(ALL, one_by_one, in_runs, strict=True):
        assert np.array(one) == pytest.approx(np.array(other), nan_ok=True), register


@speeds
def test_floats_are_compared_with_nan_greatest_and_both_zeros_the_same(small: int) -> None:
    values = [Values(np.array([-0.0, 0.0, -3.5, math.nan, -math.inf, 1.0]))]
    most, least = fill_cells(
        [WindowAccumulator(AccumulatorKind.MAX_COUNT, 0), WindowAccumulator(AccumulatorKind.MIN_COUNT, 0)],
        [0, 0, 0, 1, 1, 2],
        values,
        small,
        None,
    )
    assert [pair[1] for pair in most] == [2, 1, 1]
    assert [pair[1] for pair in least] == [1, 1, 1]
    greatest = decode_floats(np.array([pair[0] for pair in most])).tolist()
    assert (greatest[0], math.isnan(greatest[1]), greatest[2]) == (0.0, True, 1.0)
    assert decode_floats(~np.array([pair[0] for pair in least])).tolist() == [-3.5, -math.inf, 1.0]


@speeds
def test_the_spread_of_floats_whose_sum_is_too_great_is_still_known(small: int) -> None:
    values = [Values(np.full(4, 1.5e308))]
    runs = np.array([[0, 4, 0]])
    (moments,) = fill_cells([WindowAccumulator(AccumulatorKind.MOMENTS, 0)], [0] * 4, values, small, runs)
    assert moments[0] == [4.0, 1.5e308, 0.0]
