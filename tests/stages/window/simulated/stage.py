"""The window stage with device="cuda" against the reference engine, and with state that changes device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows, ParallelWindows
from penstock.options import Cuda
from penstock.stages.window.cuda_store import CudaStore
from penstock.stages.window.time_store import TimeStore
from penstock.timing.windows import sliding, tumbling
from tests.support.window_cases import WIDE, cases, some_registers, timed
from tests.support.windows import (
    Case,
    Driven,
    assert_same,
    by_reference,
    by_stage,
    case,
    shown_by_reference,
    with_op,
)

# NumPy warns where kernels, which the simulator runs as Python, overflow or compute NaN: CUDA does not.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
KINDS = st.one_of(timed, st.dictionaries(st.sampled_from("xyz"), timed, min_size=1, max_size=2))
LAW = settings(deadline=None, max_examples=25)


def on_device(case: Case) -> Case:
    return with_op(case, device="cuda")


@LAW
@given(cases(windows=KINDS, names=some_registers))
def test_a_step_on_a_device_gives_the_rows_and_accounts_of_the_reference(given_case: Case) -> None:
    assert_same(by_stage(on_device(given_case)), by_reference(given_case))


@settings(deadline=None, max_examples=10)
@given(cases(windows=KINDS, names=some_registers), st.integers(1, 3), st.sampled_from([None, 1, 2]))
def test_limits_of_ones_own_change_no_row(given_case: Case, few: int, most_keys: int | None) -> None:
    device = Cuda(n_windows=few, batch_rows=few, max_keys_per_batch=most_keys, max_pending=few)
    assert_same(by_stage(with_op(given_case, device=device)), by_reference(given_case))


@LAW
@given(cases(windows=KINDS, names=some_registers), st.lists(st.booleans(), min_size=7, max_size=7))
def test_saved_state_is_taken_up_on_either_device_at_any_time(given_case: Case, devices: list[bool]) -> None:
    """After every batch the state is saved, and a new stage goes on, here or there."""
    driven, saved = Driven(on_device(given_case)), dict[int, bytes]()
    for batch, there in zip(given_case.batches, devices, strict=False):
        driven.push(batch)
        saved |= driven.stage.snapshot()
        driven.case = on_device(given_case) if there else with_op(given_case, device="cpu")
        driven.stage = driven.new_stage()
        driven.stage.restore(saved)
    assert_same(driven.end(), by_reference(given_case))


@settings(deadline=None, max_examples=10)
@given(cases(windows=timed, names=some_registers), st.lists(st.integers(0, 3), min_size=31, max_size=31))
def test_early_results_are_shown_as_the_reference_shows_them(given_case: Case, ticks: list[int]) -> None:
    early = with_op(given_case, early="2 us")
    assert_same(by_stage(on_device(early), ticks), shown_by_reference(early, ticks))


def weigh(row: Any) -> tuple[float, float]:
    return row.v * row.x, row.x


def add_parts(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]


def divide_by_weight(part: tuple[float, ...]) -> float | None:
    return part[0] / part[1] if part[1] else None


def test_a_fold_may_lift_a_row_of_several_columns() -> None:
    fold = spec.fold(weigh, add_parts, (0.0, 0.0), divide_by_weight, columns=["v", "x"], type="float64")
    op = KeyedWindows(windows=sliding(10, 5), aggregates={"mean": fold})
    rows = [("a", i, i % 7 - 3, None if i % 5 == 0 else float(i), None, None) for i in range(20)]
    built = case(op, [rows[:7], rows[7:]], schema=WIDE, delay=3)
    result = by_stage(on_device(built))
    assert_same(result, by_reference(built))
    assert result.tables["out"].num_rows == 5


ROWS = [[("a", 1, 1), ("b", 2, 2)], [("a", 12, 3)]]
COUNTED = KeyedWindows(windows=tumbling(10), aggregates={"n": spec.count()}, device="cuda")


def test_only_a_step_that_asks_for_the_simulator_is_given_it() -> None:
    def stores(device: str) -> list[type]:
        stage = Driven(case(replace(COUNTED, device=device), ROWS)).stage
        return [type(group.store) for group in stage._groups]

    assert stores("cuda") == [CudaStore]
    assert stores("cpu") == stores("auto") == [TimeStore]


def test_explain_names_the_device() -> None:
    assert Driven(case(COUNTED, ROWS)).stage.explain() == [
        "tumbling 10 us: cuda, a window is one slice",
        "device: cuda, because it was asked for by name",
    ]


def test_memory_of_the_device_is_told_by_the_stage() -> None:
    driven = Driven(case(COUNTED, ROWS))
    before = driven.stage.nbytes
    driven.push(driven.case.batches[0])
    assert driven.stage.nbytes > before


@pytest.mark.parametrize("kind", [KeyedWindows, ParallelWindows])
def test_whole_windows_may_be_on_a_device_however_they_are_dealt(kind: type[KeyedWindows]) -> None:
    op = kind(windows=sliding(6, 2), aggregates={"n": spec.count(), "s": spec.sum("v")}, device="cuda")
    built = case(op, ROWS)
    assert_same(by_stage(built), by_reference(built))
