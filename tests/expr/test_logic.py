"""Comparison, logic, null tests and choices: who looks at nulls and failures, and who does not."""

from __future__ import annotations

import math
import struct
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import SchemaError
from penstock.expr import Expr, coalesce, col, when
from tests.support.evaluation import FAILED, run

A, B = col("a"), col("b")
F64, I64 = pa.float64(), pa.int64()
NAN, INF = math.nan, math.inf


def test_nan_equals_nan_and_is_greater_than_everything() -> None:
    assert run(A == NAN, [NAN, 1.0, INF, None], F64) == [True, False, False, None]
    assert run(A != NAN, [NAN, 1.0], F64) == [False, True]
    assert run(A > INF, [NAN, INF], F64) == [True, False]
    assert run(A < NAN, [NAN, INF], F64) == [False, True]
    assert run(A >= NAN, [NAN, INF], F64) == [True, False]
    assert run(A <= NAN, [NAN, INF], F64) == [True, True]
    assert run(A.between(1, NAN), [NAN, 0.5, 2.0], F64) == [True, False, True]
    assert run(A.is_in([NAN, 0]), [NAN, -0.0, 1.0, None], F64) == [True, True, False, None]


def test_negative_zero_equals_zero() -> None:
    assert run(A == 0, [-0.0, 0.0], F64) == [True, True]
    assert run(A < 0, [-0.0], F64) == [False]


def test_text_is_ordered_by_code_points() -> None:
    assert run(A < "é", ["z", "😀", "é", None], pa.string()) == [True, False, False, None]


def test_integers_meet_floats_as_float64() -> None:
    assert run(A == B, [2**53 + 1], I64, b=([2.0**53], F64)) == [True]


def test_a_literal_too_large_for_the_column_is_still_compared_exactly() -> None:
    assert run(A < 1000, [127], pa.int8()) == [True]
    assert run(A.is_in([1000, 5]), [5, 6], pa.int8()) == [True, False]


def test_a_float_literal_is_rounded_to_the_columns_precision() -> None:
    assert run(A == 0.1, [0.10000000149011612], pa.float32()) == [True]


def test_between_includes_both_ends_and_is_null_for_null() -> None:
    assert run(A.between(1, B), [1, 3, 4, 0, None], I64, b=([3, 3, 3, None, 1], I64)) == [
        True,
        True,
        False,
        None,
        None,
    ]


def test_nothing_is_in_an_empty_list() -> None:
    assert run(A.is_in([]), [1, None], I64) == [False, None]


def test_times_and_decimals_compare_with_python_values() -> None:
    assert run(datetime(1970, 1, 2) <= A, [86_400_000_000, 86_399_999_999], pa.timestamp("us", "UTC")) == [
        True,
        False,
    ]
    assert run(Decimal("1.5") < A, [Decimal("1.51"), Decimal("1.50")], pa.decimal128(5, 2)) == [True, False]


def test_comparing_a_failed_value_fails() -> None:
    assert run(1 // A == 1, [0, 1, None], I64) == [FAILED, True, None]


def test_is_in_refuses_what_it_cannot_look_up() -> None:
    with pytest.raises(SchemaError, match="is_in needs a list, not 'abc'"):
        A.is_in("abc")
    with pytest.raises(SchemaError, match="is_in needs a list, not 5"):
        A.is_in(5)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(SchemaError, match="cannot look for None") as caught:
        A.is_in([1, None])
    assert ".is_null()" in str(caught.value.hint)
    with pytest.raises(SchemaError, match=r'needs plain values, not col\("b"\)'):
        A.is_in([B])


def test_a_nan_with_other_bits_is_found_among_values_with_nan() -> None:
    (odd,) = struct.unpack("<d", (0x7FF8000000000001).to_bytes(8, "little"))
    assert run(A.is_in([1.0, math.nan]), [odd, 1.0, 2.0], pa.float64()) == [True, True, False]


A, B = col("a"), col("b")
BOOL, I64 = pa.bool_(), pa.int64()
FAILS = 1 // B > 0  # fails where b is 0

TRUTH = [True, True, True, False, False, False, None, None, None]
OTHER = [True, False, None, True, False, None, True, False, None]


def test_and_or_not_are_three_valued() -> None:
    other = (OTHER, BOOL)
    assert run(A & B, TRUTH, BOOL, b=other) == [True, False, None, False, False, False, None, False, None]
    assert run(A | B, TRUTH, BOOL, b=other) == [True, True, True, True, False, None, True, None, None]
    assert run(~A, [True, False, None], BOOL) == [False, True, None]


@pytest.mark.parametrize("expr", [A & FAILS, FAILS & A])
def test_false_and_a_failure_is_false(expr: Expr) -> None:
    assert run(expr, [False, True, None], BOOL, b=([0, 0, 0], I64)) == [False, FAILED, FAILED]


@pytest.mark.parametrize("expr", [A | FAILS, FAILS | A])
def test_true_or_a_failure_is_true(expr: Expr) -> None:
    assert run(expr, [False, True, None], BOOL, b=([0, 0, 0], I64)) == [FAILED, True, FAILED]


def test_a_failure_is_not_null() -> None:
    for expr in ((1 // A).is_null(), (1 // A).is_not_null(), ~(1 // A > 0)):
        assert run(expr, [0], I64) == [FAILED]
    assert run((1 // A).is_null(), [1, None], I64) == [False, True]
    assert run((1 // A).is_not_null(), [1, None], I64) == [True, False]


def test_is_nan_of_null_is_null() -> None:
    assert run(A.is_nan(), [math.nan, 1.0, None], pa.float64()) == [True, False, None]


def test_coalesce_ignores_failures_after_the_first_value() -> None:
    b = ([0, 0, 2, None], I64)
    assert run(coalesce(A, 1 // B), [7, None, None, None], I64, b=b) == [7, FAILED, 0, None]
    assert run(coalesce(1 // B, A), [7, None, None, None], I64, b=b) == [FAILED, FAILED, 0, None]
    assert run(coalesce(None, A, 1 // B, 5), [1, None], I64, b=([0, None], I64)) == [1, 5]


def test_fill_null_ignores_a_failure_it_does_not_need() -> None:
    assert run(A.fill_null(1 // B), [7, None], I64, b=([0, 0], I64)) == [7, FAILED]
    assert run((1 // A).fill_null(9), [0, None, 1], I64) == [FAILED, 9, 1]


def test_when_takes_the_first_condition_that_holds() -> None:
    size = when(A > 10).then("big").when(A > 5).then("medium").otherwise("small")
    assert run(size, [11, 6, 1, None], I64) == ["big", "medium", "small", "small"]
    assert run(when(A > 10).then(A), [11, 1], I64) == [11, None]


def test_when_fails_only_by_what_it_asks_and_takes() -> None:
    choice = when(A > 0).then(1 // B).otherwise(2)
    assert run(choice, [1, 0, None], I64, b=([0, 0, 0], I64)) == [FAILED, 2, 2]
    asked = when(A > 0).then(1).when(FAILS).then(2).otherwise(3)
    assert run(asked, [1, 0, 0], I64, b=([0, 0, 1], I64)) == [1, FAILED, 2]


def test_a_choice_keeps_lists_and_structs() -> None:
    type = pa.struct({"x": pa.list_(I64)})
    assert run(when(A.is_null()).then(None).otherwise(A), [{"x": [1, None]}, None], type) == [
        {"x": [1, None]},
        None,
    ]


def test_coalesce_of_nothing_is_refused() -> None:
    with pytest.raises(SchemaError, match="nothing to choose from"):
        coalesce()
