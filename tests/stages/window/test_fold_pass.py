"""One pass for a user's fold: the rows of every slice are lifted and combined, whatever their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.user_functions import FunctionSource
from penstock.kernels.windows.folds import FoldFunctions, build_fold_rule
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK, MAX_DISTANCE, MAX_ID
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.input import InputRows, Values
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.folds import CombineFailure, FoldColumns, lift_values
from penstock.stages.window.panes import SliceAccumulators
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow
from tests.naive.folds import fold_rows

Part = tuple[float, float, float]
ZERO = (1e9, -1e9, 0.0)


def lift(row: Any) -> Part:
    return row.v, row.v * 2.0, 1.0


def combine(a: Part, b: Part) -> Part:
    return min(a[0], b[0]), max(a[1], b[1]), a[2] + b[2]


def strict(a: float, b: float) -> float:
    if a + b > 100.0:
        raise ValueError("too much")
    return a + b


WRITTEN = FunctionSource(combine)
RULE = build_fold_rule("combine", WRITTEN, ZERO, alone=False)
OF = FoldFunctions(FunctionSource(lift), WRITTEN, ("v",), 3, False)
ALONE = (WindowAccumulator(AccumulatorKind.ROWS), WindowAccumulator(AccumulatorKind.FOLD, 0, RULE))
BESIDE = (
    *ALONE,
    WindowAccumulator(AccumulatorKind.MAX_TIME),
)  # too much for one pass: rows are placed, then added
ways = pytest.mark.parametrize("registers", [ALONE, BESIDE], ids=["one pass", "placed"])


def read_cells(cells: SliceAccumulators, slicing: Slicing) -> dict[tuple[int, int], tuple[int, Part]]:
    result = {}
    for slot, ring in zip(*cells.rings.active(), strict=True):
        for id_ in range(ring[FIRST], ring[END]):
            at = ring[BASE] + (id_ & ring[MASK])
            if cells.arena.cells[0][at, 0]:
                part = tuple(cells.arena.cells[1][at].tolist())
                result[int(slot), slicing.start_of(id_)] = int(cells.arena.cells[0][at, 0]), part
    return result


def twin(rows: Any, pair: tuple[int, int], open_from: int) -> Any:
    return fold_rows(
        rows, pair, open_from, lift=lambda value: (value, value * 2, 1.0), combine=combine, zero=ZERO
    )


def fold_columns(values: Any) -> FoldColumns:
    return FoldColumns(OF, (np.ascontiguousarray(values, np.float64),), None)


sometimes_far = st.integers(-60, 60) | st.sampled_from([-(10**7), 10**7, 2 * MAX_DISTANCE])
rows_of = st.lists(
    st.tuples(st.integers(0, 3), sometimes_far, st.integers(-4, 4).map(float)), min_size=1, max_size=60
)


@pytest.mark.slow
@ways
@settings(deadline=None)
@given(
    rows_of,
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.integers(-50, 20),
    st.integers(1, 30),
    st.booleans(),
)
def test_the_compiled_pass_gives_what_a_plain_fold_of_each_slice_gives(
    registers: Any,
    rows: list[tuple[int, int, float]],
    pair: tuple[int, int],
    open_from: int,
    cut: int,
    one_slot: bool,
) -> None:
    rows = [(0, time, value) for _, time, value in rows] if one_slot else rows
    slicing = Slicing.of([TimeWindow(*pair)])
    cells = SliceAccumulators(slicing, registers, JitPolicy(0))
    for start in range(0, len(rows), cut):
        part = rows[start : start + cut]
        slots, times = (np.array([row[place] for row in part], np.int64) for place in range(2))
        least = cells.add(
            InputRows(slots, times, values=(fold_columns([row[2] for row in part]),)), open_from
        )
        assert least == min(times.tolist(), default=MAX_ID)
    assert read_cells(cells, slicing) == twin(rows, pair, open_from)


@pytest.mark.parametrize("disorder", [0, 40, 4000])
@pytest.mark.parametrize("n_slots", [1, 7])
@pytest.mark.parametrize("pair", [(100, 10), (25, 10)], ids=["equal slices", "two per slide"])
def test_long_batches_in_and_out_of_order_are_folded_in_the_order_of_their_rows(
    disorder: int, n_slots: int, pair: tuple[int, int]
) -> None:
    rng = np.random.default_rng(disorder + n_slots)
    times = np.sort(rng.integers(0, 3000, 6000)) - rng.integers(0, disorder + 1, 6000)
    slots, values = rng.integers(0, n_slots, 6000), rng.integers(0, 9, 6000).astype(np.float64)
    slicing = Slicing.of([TimeWindow(*pair)])
    cells = SliceAccumulators(slicing, ALONE, JitPolicy(0))
    for part in (slice(0, 2500), slice(2500, 6000)):
        cells.add(InputRows(slots[part], times[part], values=(fold_columns(values[part]),)), -100)
    rows = list(zip(slots.tolist(), times.tolist(), values.tolist(), strict=True))
    assert read_cells(cells, slicing) == twin(rows, pair, -100)


def has_pass(
    accumulators: tuple[WindowAccumulator, ...], values: tuple[Values, ...], *, single_key: bool = True
) -> bool:
    cells = SliceAccumulators(Slicing.of([TimeWindow(10, 10)]), accumulators, JitPolicy(0))
    rows = InputRows(np.zeros(2, np.int64), np.arange(2), values=values, single_key=single_key)
    return cells._plan_pass(rows) is not None


def test_one_pass_is_for_a_fold_alone_without_keys_and_without_nulls() -> None:
    rows, nulls = fold_columns([1.0, 2.0]), Values(np.zeros(2), np.array([True, False]))
    counted = (*ALONE, WindowAccumulator(AccumulatorKind.COUNT, 1))
    assert has_pass(ALONE, (rows,))
    assert not has_pass(ALONE, (rows,), single_key=False)
    assert has_pass(counted, (rows, Values(np.zeros(2))))
    assert not has_pass(counted, (rows, nulls))
    assert not has_pass(BESIDE, (rows,))
    assert not has_pass(ALONE, lift_values((rows,)))
    assert not has_pass(ALONE, (FoldColumns(OF, rows.columns, nulls.valid),))


@pytest.mark.slow
@pytest.mark.parametrize("n_slots", [1, 3])
@pytest.mark.parametrize("disorder", [0, 300])
def test_a_row_of_the_slice_on_which_combine_fails_is_told(n_slots: int, disorder: int) -> None:
    written = FunctionSource(strict)
    rule = build_fold_rule("strict", written, (0.0,), alone=True)
    of = FoldFunctions(FunctionSource(lambda row: row.v), written, ("v",), 1, True)
    times = np.arange(1000) + np.random.default_rng(1).permuted(np.arange(1000) % (disorder + 1))
    values = np.where(times // 10 == 55, 60.0, 1.0)
    cells = SliceAccumulators(
        Slicing.of([TimeWindow(10, 10)]),
        (WindowAccumulator(AccumulatorKind.ROWS), WindowAccumulator(AccumulatorKind.FOLD, 0, rule)),
        JitPolicy(0),
    )
    with pytest.raises(CombineFailure, match="ValueError: too much") as failed:
        cells.add(InputRows(np.arange(1000) % n_slots, times, values=(FoldColumns(of, (values,), None),)))
    assert failed.value.time is not None
    assert failed.value.time // 10 == 55
    assert failed.value.slot is not None
    assert failed.value.slot < n_slots


def test_parts_that_are_lifted_to_be_kept_are_those_of_valid_rows() -> None:
    columns = FoldColumns(OF, (np.array([1.0, 1.0, 3.0]),), np.array([True, False, True]))
    (values,) = lift_values((columns.at(np.array([0, 2])),))
    assert values.data.tolist() == [[1.0, 2.0, 1.0], [3.0, 6.0, 1.0]]
    assert values.valid is not None
    assert values.valid.tolist() == [True, True]
