"""Rows that go another way than into windows, keys of all types, and what else a window stage meets."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import EngineError, FunctionError
from penstock.expr import col
from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows
from penstock.testing.strategies import values
from penstock.timing.windows import count_window, session, sliding, tumbling
from tests.support.window_cases import cases
from tests.support.windows import Case, Driven, agree, by_stage, case, stage_batch, with_op

LAW = settings(deadline=None, derandomize=True, max_examples=60)
ROWS = [[("a", 1, 1), ("a", 2, 0), ("b", 3, 2)], [("a", 30, 0), ("b", 4, 0)]]
INVERSE = {"n": spec.count(), "s": spec.sum(100 // col("v")), "m": spec.max(7 % col("v"))}


def lift(row: Any) -> int:
    return 10 // int(row.v)


FOLDED = {"n": spec.count(), "f": spec.fold(lift, lambda a, b: a + b, 0, type="int64")}


@pytest.mark.parametrize("aggregates", [INVERSE, FOLDED])
@pytest.mark.parametrize("windows", [tumbling(10), {"x": session(3), "y": count_window(1)}])
@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_rows_that_fail_are_in_no_window(aggregates: Any, windows: Any, on_error: str) -> None:
    agree(case(KeyedWindows(windows=windows, aggregates=aggregates, on_error=on_error), ROWS, delay=5))


def test_dead_letters_say_why_and_where() -> None:
    op = KeyedWindows(windows=tumbling(10), aggregates=INVERSE, on_error="dead_letter")
    letters = by_stage(case(op, ROWS)).tables["errors"].to_pylist()
    assert letters[0] == {"k": "a", "t": 2, "v": 0, "error": "division by zero", "error_step": "window-1"}
    assert len(letters) == 3


def test_a_row_that_fails_stops_the_run_and_is_shown() -> None:
    with pytest.raises(FunctionError) as failed:
        by_stage(case(KeyedWindows(windows=tumbling(10), aggregates=INVERSE), ROWS))
    assert failed.value.fact.startswith("expression ")
    assert failed.value.step == "window-1"
    assert failed.value.detail == "division by zero; the row is Row(k='a', t=2, v=0)"


def test_a_lift_that_raises_stops_the_run_and_is_named() -> None:
    with pytest.raises(FunctionError) as failed:
        by_stage(case(KeyedWindows(windows=tumbling(10), aggregates=FOLDED), ROWS))
    assert failed.value.fact == "function lift failed on a row"
    assert failed.value.detail is not None
    assert failed.value.detail.startswith("ZeroDivisionError: ")


@pytest.mark.parametrize("windows", [tumbling(10), sliding(10, 5), session(5), count_window(2)])
def test_an_integer_sum_beyond_int64_names_key_and_window(windows: Any) -> None:
    rows = [[("a", 1, 2**62), ("b", 1, 2**62), ("a", 2, 2**62)], [("a", 50, 0)]]
    with pytest.raises(EngineError) as failed:
        by_stage(case(KeyedWindows(windows=windows, aggregates={"s": spec.sum("v")}), rows))
    assert failed.value.fact.startswith(f"{spec.sum('v')} of window ")
    assert failed.value.fact.endswith("of key k='a' does not fit its type")
    assert failed.value.detail == f"the exact sum is {2**63}, outside int64"


def test_an_integer_sum_is_exact_though_its_parts_leave_int64() -> None:
    rows = [[("a", 1, 2**63 - 1), ("a", 2, 2**63 - 1), ("a", 3, -(2**63)), ("a", 4, -(2**63) + 1)]]
    op = KeyedWindows(windows=tumbling(10), aggregates={"s": spec.sum("v"), "m": spec.mean("v")})
    agree(case(op, rows))


@pytest.mark.parametrize("windows", [tumbling(10), sliding(10, 5), session(3), count_window(1)])
def test_a_value_whose_square_is_beyond_floats_has_a_variance(windows: Any) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("x", pa.float64())])
    op = KeyedWindows(windows=windows, aggregates={"var": spec.var("x", population=True)})
    agree(case(op, [[("a", 1, 1e200), ("a", 20, -1e200)]], schema=schema))


def test_a_decimal_sum_of_more_than_38_digits_names_key_and_window() -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("p", pa.decimal128(38, 0))])
    rows = [[("a", 1, Decimal("9" * 38)), ("a", 2, Decimal(1))]]
    op = KeyedWindows(windows=tumbling(10), aggregates={"s": spec.sum("p")})
    with pytest.raises(EngineError) as failed:
        by_stage(case(op, rows, schema=schema))
    assert failed.value.detail == f"the exact sum is 1{'0' * 38}, which has more than 38 digits"


@pytest.mark.slow
@pytest.mark.parametrize(
    "type_",
    [
        pa.bool_(),
        pa.int8(),
        pa.int64(),
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
@LAW
def test_keys_and_values_of_every_type_are_those_of_the_reference_engine(
    type_: pa.DataType, data: st.DataObject
) -> None:
    schema = pa.schema([("k", type_), ("t", pa.int64()), ("v", type_)])
    drawn = st.tuples(values(type_), st.integers(-20, 20), values(type_))
    rows = data.draw(st.lists(drawn, max_size=12))
    aggregates = {
        "n": spec.count("v"),
        "lo": spec.min("v"),
        "hi": spec.max("v"),
        "most": spec.max_count("v"),
        "first": spec.first("v"),
        "last": spec.last("v"),
        "all": spec.collect("v"),
    }
    windows: Any = data.draw(st.sampled_from([tumbling(10), sliding(10, 4), session(4)]))
    op = KeyedWindows(windows=windows, aggregates=aggregates)
    agree(case(op, [rows[:6], rows[6:]], seq=data.draw(st.booleans()), schema=schema, delay=10))


def test_a_watermark_that_goes_back_is_no_news() -> None:
    driven = Driven(case(KeyedWindows(windows=tumbling(10), aggregates={"n": spec.count()}), ROWS))
    stage = driven.stage
    assert list(stage.on_watermark(20)) == []
    assert [port for port, _ in stage.on_batch(stage_batch(driven.case.batches[0]), 5)] == ["late"]
    assert driven.accounts.late == 3


def test_windows_that_a_batch_s_watermark_has_passed_leave_before_its_rows_are_judged() -> None:
    driven = Driven(case(KeyedWindows(windows=tumbling(10), aggregates={"n": spec.count()}), ROWS))
    list(driven.stage.on_batch(stage_batch(driven.case.batches[0]), float("-inf")))
    outputs = list(driven.stage.on_batch(stage_batch(driven.case.batches[1]), 10))
    assert [(port, rows.num_rows) for port, rows in outputs] == [("out", 2), ("late", 1)]


@pytest.mark.slow
@LAW
@given(cases())
def test_memory_is_given_back_when_windows_have_left(case: Case) -> None:
    driven = Driven(with_op(case, partial=False))
    for rows in case.batches:
        driven.push(rows)
    list(driven.stage.drain())
    assert driven.stage.nbytes < 1_000_000


def test_explain_says_which_algorithm_and_why() -> None:
    aggregates = {"n": spec.count(), "all": spec.collect("v")}
    op = KeyedWindows(
        windows={"a": tumbling(10), "b": session(5), "c": count_window(3)}, aggregates=aggregates
    )
    lines = Driven(case(op, [])).stage.explain()
    assert lines[0].startswith("tumbling 10 us: direct: a window is one slice")
    assert any(line.startswith("session with gap 5 us: ") for line in lines)
    assert any(line.startswith("count 3: ") for line in lines)
    assert lines[-1] == "rows are kept for all: accumulators cannot hold them"


SMALL_RUN = """
import sys
from penstock.operators import aggregates as spec
from penstock.timing.windows import sliding
from penstock.operators.windows import KeyedWindows
from tests.support.windows import by_stage, case
aggregates = {"n": spec.count(), "s": spec.sum("v"), "hi": spec.max("v"), "all": spec.collect("v")}
rows = [("ab"[i % 2], i, i) for i in range(500)]
by_stage(case(KeyedWindows(windows=sliding(10, 5), aggregates=aggregates), [rows]))
sys.exit("numba" in sys.modules)
"""


def test_a_small_run_does_not_load_numba() -> None:
    subprocess.run([sys.executable, "-c", SMALL_RUN], check=True)
