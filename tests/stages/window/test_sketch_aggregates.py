"""approx_distinct and quantile in a window stage: the same whatever the cuts, and no rows kept for them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows
from penstock.testing.strategies import values
from penstock.timing.windows import count_window, session, sliding, tumbling
from tests.stages.window.test_snapshot import run_restarts
from tests.support.window_cases import SKETCHES, cases, sessions, timed
from tests.support.windows import Case, Driven, agree, assert_same, by_reference, by_stage, case

LAW = settings(deadline=None, max_examples=60)
WINDOWS: list[Any] = [tumbling(10), sliding(10, 4), sliding(3, 7), session(4), count_window(3, 2)]
BOTH = st.just(sorted(SKETCHES))
MANY = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])


@pytest.mark.slow
@LAW
@given(cases(windows=st.one_of(timed, sessions), names=BOTH))
def test_few_values_are_told_exactly(case: Case) -> None:
    agree(case)


@pytest.mark.slow
@LAW
@given(cases(windows=st.one_of(timed, sessions), names=BOTH), st.sets(st.integers(0, 6)))
def test_sketches_are_saved_and_taken_up_between_any_batches(case: Case, at: set[int]) -> None:
    assert_same(run_restarts(case, at).end(), by_reference(case))


@pytest.mark.slow
@pytest.mark.parametrize(
    "type_",
    [
        pa.bool_(),
        pa.int8(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
    ],
    ids=str,
)
@given(data=st.data())
@settings(deadline=None, max_examples=20)
def test_values_of_every_type_are_told_apart(type_: pa.DataType, data: st.DataObject) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", type_)])
    drawn = st.tuples(st.just("a"), st.integers(-20, 20), values(type_))
    rows = data.draw(st.lists(drawn, max_size=12))
    op = KeyedWindows(
        windows=data.draw(st.sampled_from(WINDOWS)), aggregates={"n": spec.approx_distinct("v")}
    )
    agree(case(op, [rows[:6], rows[6:]], schema=schema, delay=10))


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_decimals_are_told_apart(windows: Any) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.decimal128(30, 2))])
    rows = [("a", i, None if i % 5 == 0 else Decimal(i % 3).scaleb(-2)) for i in range(20)]
    agree(
        case(
            KeyedWindows(windows=windows, aggregates={"n": spec.approx_distinct("v")}), [rows], schema=schema
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("windows", [tumbling(1_000), sliding(1_000, 250), session(50)], ids=str)
def test_many_values_are_told_within_the_stated_error_whatever_the_cuts(windows: Any) -> None:
    rows = [("a", i // 5, (i * 7_919) % 10_007) for i in range(5_000)]
    op = KeyedWindows(windows=windows, aggregates={"n": spec.approx_distinct("v")})
    whole = by_stage(case(op, [rows], schema=MANY, delay=2_000))
    parts = by_stage(case(op, [rows[i::7] for i in range(7)], schema=MANY, delay=2_000))
    assert_same(parts, whole)  # the same estimate to the last digit
    assert_same(whole, by_reference(case(op, [rows], schema=MANY, delay=2_000)), approximate=("n",))


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.99, 1.0])
def test_a_quantile_of_many_values_has_nearly_the_rank_it_should(q: float) -> None:
    rows = [("a", i // 100, (i * 7_919) % 20_011) for i in range(20_011)]
    op = KeyedWindows(windows=sliding(300, 20), aggregates={"q": spec.quantile("v", q), "n": spec.count()})
    result = (
        by_stage(case(op, [rows[:9_000], rows[9_000:]], schema=MANY, delay=500)).tables["out"].to_pylist()
    )
    for window in (row for row in result if row["n"] == 20_011):
        assert abs(window["q"] / 20_011 - q) < 0.03
    assert any(row["n"] == 20_011 for row in result)


def test_rows_are_kept_for_sketches_of_count_windows_only_and_explain_says_so() -> None:
    aggregates = {"n": spec.approx_distinct("v"), "q": spec.quantile("v", 0.5)}
    lines = Driven(case(KeyedWindows(windows=sliding(10, 5), aggregates=aggregates), [])).stage.explain()
    assert any("a sketch per slice, merged by blocks" in line for line in lines)
    assert not any("rows are kept" in line for line in lines)
    lines = Driven(case(KeyedWindows(windows=session(5), aggregates=aggregates), [])).stage.explain()
    assert any(
        line.startswith("session with gap 5 us: accumulators and sketches per session") for line in lines
    )
    lines = Driven(case(KeyedWindows(windows=count_window(5), aggregates=aggregates), [])).stage.explain()
    assert any("is a sketch made from kept rows" in line for line in lines)


@pytest.mark.parametrize("windows", [tumbling(100), sliding(100, 20), session(50)], ids=str)
def test_state_does_not_grow_with_the_rows_of_a_slice(windows: Any) -> None:
    aggregates = {"n": spec.approx_distinct("v"), "q": spec.quantile("v", 0.5), "m": spec.quantile("v", 0.9)}
    rows = [[("a", 5, 1_000 * batch + i) for i in range(1_000)] for batch in range(30)]
    driven = Driven(case(KeyedWindows(windows=windows, aggregates=aggregates), rows, delay=10))
    sizes = []
    for given_batch in driven.case.batches:
        driven.push(given_batch)
        sizes.append(driven.stage.nbytes)
    assert max(sizes[5:]) < sizes[5] + 2_000
    saved = driven.stage.snapshot()
    assert sum(map(len, saved.values())) < 20_000
