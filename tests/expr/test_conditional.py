"""Logic, null and conditionals: who looks at nulls and failures, and who does not."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from penstock.errors import SchemaError
from penstock.expr import Expr, coalesce, col, when
from tests.support.evaluation import FAILED, run

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
    taken = when(A > 0).then(1 // B).otherwise(2)
    assert run(taken, [1, 0, None], I64, b=([0, 0, 0], I64)) == [FAILED, 2, 2]
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
