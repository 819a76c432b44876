"""Every register, through CudaWindows, against Python's own functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cuda.kernels import LIFTS, CudaAccumulator, lift_kernel, rule_kernels
from penstock.kernels.cuda.pane_stage import Rows
from penstock.kernels.cuda.windows import CudaWindows
from penstock.kernels.user_functions import FunctionSource
from penstock.kernels.windows import accumulate as rules
from penstock.kernels.windows.folds import build_fold_rule
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

# NumPy warns where kernels, which the simulator runs as Python, overflow or compute NaN: CUDA does not.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
WHOLE, REAL = 0, 1


def longest(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float]:
    return (a[0] + b[0], max(a[1], b[1]))


PARTS = build_fold_rule("longest", FunctionSource(longest), (0.0, -math.inf), alone=False)
REGISTERS = {
    "rows": CudaAccumulator(rules.COUNT, "row"),
    "nulls": CudaAccumulator(rules.COUNT, "null", WHOLE),
    "sum": CudaAccumulator(rules.WIDE_SUM, "halves", WHOLE),
    "float sum": CudaAccumulator(rules.FLOAT_SUM, "float", REAL),
    "most": CudaAccumulator(rules.MAX, "extreme", WHOLE),
    "least": CudaAccumulator(rules.MAX, "extreme", WHOLE, flip=-1),
    "most of": CudaAccumulator(rules.MAX_COUNT, "counted", WHOLE),
    "least of": CudaAccumulator(rules.MAX_COUNT, "counted", WHOLE, flip=-1),
    "last": CudaAccumulator(rules.LATEST, "placed", WHOLE),
    "first": CudaAccumulator(rules.LATEST, "placed", WHOLE, flip=-1),
    "moments": CudaAccumulator(rules.MOMENTS, "moments", REAL),
    "latest": CudaAccumulator(rules.MAX, "time"),
    "part": CudaAccumulator(PARTS, "part", REAL),
}
Given = tuple[int, int | None, float]
"""(time, a whole number or null, a float)"""
ROWS = st.lists(
    st.tuples(
        st.integers(0, 19),
        st.none() | st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1),
        st.integers(-8, 8).map(float),
    ),
    min_size=1,
    max_size=12,
)


def test_every_lift_and_every_rule_has_a_register_here() -> None:
    assert {register.lift for register in REGISTERS.values()} == set(LIFTS)
    assert {register.rule for register in REGISTERS.values()} == {*rules.RULES, PARTS}


def expected_cells(rows: list[tuple[int, Given]]) -> dict[str, Any]:
    """The cells of one window's rows, each with its place among all rows."""
    whole = [(time, place, value) for place, (time, value, _) in rows if value is not None]
    values, reals = [value for *_, value in whole], [real for _, (*_, real) in rows]
    mean = sum(reals) / len(reals)
    result: dict[str, Any] = {
        "rows": [len(rows)],
        "nulls": [len(rows) - len(values)],
        "sum": sum(values),
        "float sum": [sum(reals)],
        "moments": [len(reals), mean, sum((real - mean) ** 2 for real in reals)],
        "latest": [max(time for _, (time, *_) in rows)],
        "part": [sum(reals), max(reals) + 100],
    }
    if values:
        high, low = max(values), min(values)
        first, last = min(whole), max(whole)
        result |= {
            "most": [high],
            "least": [~low],
            "most of": [high, values.count(high)],
            "least of": [~low, values.count(low)],
            "last": [*last],
            "first": [~first[0], ~first[1], first[2]],
        }
    return result


def window_cells(
    rows: list[Given], size: int, every: int, max_pending: int = 64
) -> dict[int, dict[str, Any]]:
    """The cells of each window by its start, from the device."""
    windows = CudaWindows(
        Slicing.of([TimeWindow(size, every)]),
        list(REGISTERS.values()),
        n_windows=3,
        batch_rows=8,
        max_pending=max_pending,
    )
    real = np.array([real for *_, real in rows])
    whole = np.array([0 if value is None else value for _, value, _ in rows], np.int64)
    rows_in = Rows(
        np.zeros(len(rows), np.int64),
        np.array([time for time, *_ in rows]),
        (whole, real, real + 100),
        (np.array([value is not None for _, value, _ in rows]), None, None),
        np.arange(len(rows)),
    )
    windows.add(rows_in)
    result = windows.close_windows(1000)
    return {
        int(start): {name: cells[i].tolist() for name, cells in zip(REGISTERS, result.cells, strict=True)}
        for i, start in enumerate(result.starts)
    }


@settings(deadline=None, max_examples=25)
@given(ROWS, st.integers(1, 8), st.integers(1, 4), st.sampled_from([1, 64]))
def test_registers_hold_what_python_finds_in_the_rows(
    rows: list[Given], slides: int, every: int, max_pending: int
) -> None:
    size = slides * every
    result = window_cells(rows, size, every, max_pending)
    starts = {start for time, *_ in rows for start in range(time - size + 1, time + 1) if start % every == 0}
    assert result.keys() == starts
    for start, cells in result.items():
        wanted = expected_cells(
            [(place, row) for place, row in enumerate(rows) if start <= row[0] < start + size]
        )
        high, low = cells.pop("sum")
        assert (high << 32) + low == wanted.pop("sum")
        near = wanted.pop("moments")
        assert cells["moments"] == pytest.approx(near)
        assert {name: cells[name] for name in wanted} == wanted


def test_a_great_number_alone_has_no_variance_and_is_not_nan() -> None:
    result = window_cells([(3, 1, 1e300)], size=8, every=1)
    assert [cells["moments"] for cells in result.values()] == [[1.0, 1e300, 0.0]] * 8


def test_kernels_are_made_once_for_all_that_need_them() -> None:
    again = build_fold_rule("longest", FunctionSource(longest), (0.0, -math.inf), alone=False)

    assert rule_kernels(PARTS) is rule_kernels(again)
    assert lift_kernel("part") is lift_kernel("part")
