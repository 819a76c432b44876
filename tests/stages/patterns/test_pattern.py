"""WindFlow's four patterns: any degree gives the rows, late rows and accounts of one keyed replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import FunctionError
from penstock.expr import col
from penstock.operators import aggregates as spec
from penstock.operators.windows import PATTERNS, KeyedWindows
from penstock.timing.windows import sliding, tumbling
from tests.stages.window.test_apply import TOLD, describe_window
from tests.support.patterns import Spread, by_one, by_pattern
from tests.support.window_cases import (
    SKETCHES,
    WIDE,
    cases,
    cut,
    early_cases,
    small,
    some_registers,
    ticks,
    timed,
    wide_rows,
)
from tests.support.windows import Case, PortTables, assert_same, by_reference, case, shown_by_reference

pytestmark = pytest.mark.slow

LAW = settings(deadline=None, derandomize=True, max_examples=25)
IN_PARTS = ["paned", "map_reduce"]
degrees = st.integers(1, 5)
several = st.one_of(timed, st.dictionaries(st.sampled_from("xyz"), timed, min_size=1, max_size=3))
parts_of = cases(windows=several, names=some_registers)
early_parts_of = early_cases(windows=several, names=some_registers)


def agree(case: Case, pattern: str, degree: int, joining: int = 1) -> None:
    spread = by_pattern(case, pattern, degree, joining=joining)
    assert_same(spread, by_one(case), approximate=tuple(SKETCHES))


@LAW
@given(cases(), degrees)
def test_keyed_windows_of_any_degree_are_those_of_one_replica(case: Case, degree: int) -> None:
    agree(case, "keyed", degree)


@LAW
@given(cases(windows=several), degrees, degrees)
def test_parallel_windows_of_any_degree_are_those_of_one_replica(
    case: Case, degree: int, joining: int
) -> None:
    agree(case, "parallel", degree, joining)


@pytest.mark.parametrize("pattern", IN_PARTS)
@LAW
@given(case=parts_of, degree=degrees, joining=degrees)
def test_windows_in_parts_of_any_degree_are_those_of_one_replica(
    pattern: str, case: Case, degree: int, joining: int
) -> None:
    agree(case, pattern, degree, joining)


@pytest.mark.parametrize("pattern", PATTERNS)
@LAW
@given(case=parts_of, degree=st.integers(2, 4), joining=degrees, picks=st.lists(st.integers(0, 3)))
def test_replicas_need_not_keep_step(
    pattern: str, case: Case, degree: int, joining: int, picks: list[int]
) -> None:
    spread = Spread(case, pattern, degree, joining=joining)
    assert_same(spread.loosely(picks), by_one(case), approximate=tuple(SKETCHES))


@pytest.mark.parametrize("pattern", IN_PARTS)
@LAW
@given(rows=wide_rows, places=st.lists(st.integers(0, 30), max_size=4), spec_=several, degree=degrees)
def test_first_and_last_of_numbered_rows_come_out_of_parts(
    pattern: str, rows: list[Any], places: list[int], spec_: Any, degree: int
) -> None:
    ends = {"a": spec.first("v"), "b": spec.last("v"), "c": spec.last("x")}
    op = KeyedWindows(windows=spec_, aggregates=ends)
    agree(case(op, cut(rows, places), seq=True, schema=WIDE, delay=9), pattern, degree)


def spread_of(row: Any) -> tuple[float, float]:
    return row.x, row.x * row.x


def both(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], max(a[1], b[1])


def difference(part: tuple[float, float]) -> float:
    return part[0] - part[1]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("degree", [1, 3])
def test_a_fold_of_numbers_comes_out_of_parts(pattern: str, degree: int) -> None:
    schema = pa.schema([pa.field("k", pa.string()), pa.field("t", pa.int64()), pa.field("x", pa.float64())])
    fold = spec.fold(spread_of, both, (0.0, 0.0), difference, columns="x", type="float64")
    op = KeyedWindows(windows=sliding(10, 3), aggregates={"n": spec.count(), "f": fold}, lateness=4)
    rows = [[("ab"[i % 2], (i * 7) % 40 + i, i / 4) for i in range(start, start + 9)] for start in (0, 9, 18)]
    agree(case(op, rows, schema=schema, delay=3), pattern, degree)


@pytest.mark.parametrize("pattern", PATTERNS)
@LAW
@given(case=early_parts_of, degree=degrees, ticks=ticks)
def test_early_results_are_those_of_the_reference_engine(
    pattern: str, case: Case, degree: int, ticks: list[int]
) -> None:
    spread = by_pattern(case, pattern, degree, joining=2, ticks=ticks)
    assert_same(spread, shown_by_reference(case, ticks), approximate=tuple(SKETCHES))


@pytest.mark.parametrize("pattern", ["keyed", "parallel"])
@LAW
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", None]), st.integers(-20, 20), st.integers(0, 3)), max_size=20
    ),
    places=st.lists(st.integers(0, 20), max_size=4),
    spec_=several,
    lateness=small,
    degree=degrees,
)
def test_functions_of_whole_windows_see_the_same_rows(
    pattern: str, rows: list[Any], places: list[int], spec_: Any, lateness: int, degree: int
) -> None:
    op = KeyedWindows(windows=spec_, apply=describe_window, schema=TOLD, lateness=lateness)
    judged = case(op, cut(rows, places), delay=5)
    assert_same(by_pattern(judged, pattern, degree), by_reference(judged))


@pytest.mark.parametrize("pattern", PATTERNS)
@LAW
@given(case=cases(windows=several, names=some_registers), degree=degrees)
def test_every_row_is_counted_once(pattern: str, case: Case, degree: int) -> None:
    accounts = by_pattern(case, pattern, degree).accounts
    assert accounts.rows_in == sum(batch.rows.num_rows for batch in case.batches)
    assert accounts.is_balanced


ROWS = [[("a", 1, 1), ("a", 2, 0), ("b", 3, 2), ("b", 4, 0)], [("a", 30, 0), ("b", 4, 0), ("b", 31, 5)]]
INVERSE = {"n": spec.count(), "s": spec.sum(100 // col("v")), "m": spec.max(7 % col("v"))}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_rows_that_fail_are_told_of_once(pattern: str, on_error: str, degree: int) -> None:
    op = KeyedWindows(windows=sliding(10, 2), aggregates=INVERSE, on_error=on_error)
    agree(case(op, ROWS, delay=5), pattern, degree)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_row_that_fails_stops_the_run(pattern: str) -> None:
    failing = case(KeyedWindows(windows=sliding(10, 2), aggregates=INVERSE), ROWS)
    with pytest.raises(FunctionError) as failed:
        by_pattern(failing, pattern, 3)
    assert failed.value.step == "window-1"


@pytest.mark.parametrize("pattern", PATTERNS)
@LAW
@given(case=parts_of, degree=degrees, joining=degrees)
def test_results_of_a_key_leave_by_window_end_and_start(
    pattern: str, case: Case, degree: int, joining: int
) -> None:
    case = replace(case, key=("k",))
    told_ = by_pattern(case, pattern, degree, joining=joining)
    for key in ("a", "b", None):
        rows = [row for row in told_.tables["out"].to_pylist() if row["k"] == key]
        bounds = [(row["window_end"], row["window_start"]) for row in rows]
        assert all(earlier <= later for earlier, later in pairwise(bounds))


moves = st.lists(st.tuples(st.integers(0, 5), degrees, degrees), min_size=1, max_size=3)


def run_moves(
    case: Case,
    pattern: str,
    moves: list[tuple[int, int, int]],
    ticks: Sequence[int] = (0,) * 7,
    another: Callable[[], str] | None = None,
) -> PortTables:
    """The case with two replicas at first, and other numbers of them after some of the batches.

    ticks    how far the clock goes before each batch
    another  chooses the pattern that goes on; the same if it is not given
    """
    spread = Spread(case, pattern, 2)
    for number, batch in enumerate(case.batches):
        spread.clock.advance(ticks[number])
        spread.push(batch)
        spread.save()
        for at, degree, joining in moves:
            if at == number:
                spread.move_to(degree, joining, another() if another else None)
    return spread.end()


@pytest.mark.parametrize("pattern", PATTERNS)
@LAW
@given(case=early_parts_of, moves=moves, ticks=ticks)
def test_state_moves_to_any_number_of_replicas_between_any_batches(
    pattern: str, case: Case, moves: list[tuple[int, int, int]], ticks: list[int]
) -> None:
    result = run_moves(case, pattern, moves, ticks)
    assert_same(result, shown_by_reference(case, ticks), approximate=tuple(SKETCHES))


FORMED = {
    "tumbling": ["keyed", "parallel", "paned", "map_reduce"],
    "overlapping": ["keyed", "parallel", "paned"],
}


@pytest.mark.parametrize("overlap", FORMED)
@LAW
@given(data=st.data(), moves=moves, ticks=ticks)
def test_patterns_take_up_what_another_has_saved(
    overlap: str, data: st.DataObject, moves: list[tuple[int, int, int]], ticks: list[int]
) -> None:
    windows = st.builds(tumbling, st.integers(1, 20)) if overlap == "tumbling" else several
    case = data.draw(early_cases(windows=windows, names=some_registers))
    patterns = st.sampled_from(FORMED[overlap])
    result = run_moves(case, data.draw(patterns), moves, ticks, lambda: data.draw(patterns))
    assert_same(result, shown_by_reference(case, ticks))


@LAW
@given(data=st.data(), case=early_cases(windows=several), moves=moves, ticks=ticks)
def test_windows_of_any_aggregate_go_from_replicas_by_key_to_replicas_by_window_and_back(
    data: st.DataObject, case: Case, moves: list[tuple[int, int, int]], ticks: list[int]
) -> None:
    patterns = st.sampled_from(["keyed", "parallel"])
    result = run_moves(case, "keyed", moves, ticks, lambda: data.draw(patterns))
    assert_same(result, shown_by_reference(case, ticks), approximate=tuple(SKETCHES))


@LAW
@given(case=early_cases(windows=several), moves=moves, ticks=ticks)
def test_parallel_state_of_any_aggregate_moves_to_any_number_of_replicas(
    case: Case, moves: list[tuple[int, int, int]], ticks: list[int]
) -> None:
    result = run_moves(case, "parallel", moves, ticks)
    assert_same(result, shown_by_reference(case, ticks), approximate=tuple(SKETCHES))


@LAW
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", None]), st.integers(-20, 20), st.integers(0, 3)), max_size=20
    ),
    places=st.lists(st.integers(0, 20), max_size=4),
    spec_=several,
    lateness=small,
    moves=moves,
    data=st.data(),
)
def test_state_of_functions_of_whole_windows_moves_to_any_replicas_by_key_or_by_window(
    rows: list[Any],
    places: list[int],
    spec_: Any,
    lateness: int,
    moves: list[tuple[int, int, int]],
    data: st.DataObject,
) -> None:
    op = KeyedWindows(windows=spec_, apply=describe_window, schema=TOLD, lateness=lateness)
    judged = case(op, cut(rows, places), delay=5, key=data.draw(st.sampled_from([("k",), ()])))
    patterns = st.sampled_from(["keyed", "parallel"])
    result = run_moves(judged, "parallel", moves, another=lambda: data.draw(patterns))
    assert_same(result, by_reference(judged))


@pytest.mark.parametrize("pattern", PATTERNS)
@LAW
@given(case=parts_of)
def test_memory_is_given_back_when_windows_have_left(pattern: str, case: Case) -> None:
    spread = Spread(case, pattern, 3)
    for batch in case.batches:
        spread.push(batch)
    spread.end()
    for stage in (*spread.pattern.replicas, *spread.pattern.final_stages):
        assert getattr(stage, "nbytes", 0) < 1_000_000
