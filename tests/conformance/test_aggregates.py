"""The aggregates of numbers: exact where integers are, and sure about nulls, NaN and infinity."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case, alike

FEATURE = "Aggregates"
NAN, INF = math.nan, math.inf
MOST, LEAST = 2**63 - 1, -(2**63)


def of(case: Case, aggregate: Any, type_: str, *values: Any) -> Any:
    """The aggregate `a` of column `x`, over one window with these values, a row each second."""
    rows = case.timed_source(f"t x:{type_}", [(t, value) for t, value in enumerate(values)])
    (row,) = case.run(rows.window(ps.tumbling(1000)).aggregate(a=aggregate)).rows()
    return row["a"]


@pytest.mark.parametrize(
    ("aggregate", "values", "expected"),
    [
        (ps.count(), (1, None, 3), 3),
        (ps.count("x"), (1, None, 3), 2),
        (ps.sum("x"), (1, None, 3), 4),
        (ps.min("x"), (5, None, -3), -3),
        (ps.max("x"), (5, None, -3), 5),
        (ps.mean("x"), (1, None, 2), 1.5),
        (ps.var("x"), (1, 2, 3, 4), 5 / 3),
        (ps.var("x", population=True), (1, 2, 3, 4), 1.25),
        (ps.std("x"), (1, 2, 3, 4), math.sqrt(5 / 3)),
        (ps.std("x", population=True), (1, 2, 3, 4), math.sqrt(1.25)),
        (ps.max_count("x"), (7, 1, None, 7), {"value": 7, "count": 2}),
        (ps.min_count("x"), (7, 1, None, 7), {"value": 1, "count": 1}),
        (ps.first("x"), (None, 4, 5), 4),
        (ps.last("x"), (4, 5, None), 5),
        (ps.collect("x"), (3, None, 1, 3), [3, 1, 3]),
        (ps.quantile("x", 0.5), (5, 1, None, 3), 3.0),
        (ps.approx_distinct("x"), (5, 1, None, 5), 2),
    ],
    ids=str,
)
def test_nulls_are_skipped(case: Case, aggregate: Any, values: tuple[Any, ...], expected: Any) -> None:
    assert alike(of(case, aggregate, "int64", *values), expected)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (ps.count(), 2),
        (ps.count("x"), 0),
        (ps.sum("x"), None),
        (ps.min("x"), None),
        (ps.max("x"), None),
        (ps.mean("x"), None),
        (ps.var("x"), None),
        (ps.std("x", population=True), None),
        (ps.max_count("x"), None),
        (ps.min_count("x"), None),
        (ps.first("x"), None),
        (ps.last("x"), None),
        (ps.collect("x"), []),
        (ps.quantile("x", 0.5), None),
        (ps.approx_distinct("x"), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("type_", ["int64", "float64"])
def test_a_window_of_nulls_has_no_value(case: Case, aggregate: Any, expected: Any, type_: str) -> None:
    assert of(case, aggregate, type_, None, None) == expected


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (ps.var("x"), None),
        (ps.std("x"), None),
        (ps.var("x", population=True), 0.0),
        (ps.std("x", population=True), 0.0),
    ],
    ids=str,
)
def test_one_value_is_no_sample(case: Case, aggregate: Any, expected: Any) -> None:
    assert of(case, aggregate, "float64", 7.5) == expected


@pytest.mark.parametrize(
    ("aggregate", "values", "expected"),
    [
        (ps.sum("x"), (1.0, NAN), NAN),
        (ps.sum("x"), (INF, 1.0), INF),
        (ps.sum("x"), (INF, -INF), NAN),
        (ps.mean("x"), (1.0, NAN), NAN),
        (ps.mean("x"), (-INF, 1.0), -INF),
        (ps.min("x"), (NAN, 1.0, INF), 1.0),
        (ps.min("x"), (NAN, NAN), NAN),
        (ps.max("x"), (INF, NAN, 1.0), NAN),
        (ps.max("x"), (-INF, None), -INF),
        (ps.max_count("x"), (NAN, 1.0, NAN), {"value": NAN, "count": 2}),
        (ps.min_count("x"), (-0.0, 0.0, 1.0), {"value": 0.0, "count": 2}),
        (ps.var("x"), (1.0, NAN), NAN),
        (ps.var("x"), (1.0, INF), NAN),
        (ps.count("x"), (NAN, INF, None), 2),
        (ps.approx_distinct("x"), (NAN, NAN, 0.0, -0.0), 2),
    ],
    ids=str,
)
def test_nan_and_infinity_have_their_rules(
    case: Case, aggregate: Any, values: tuple[Any, ...], expected: Any
) -> None:
    assert alike(of(case, aggregate, "float64", *values), expected)


def test_variance_is_right_far_from_zero(case: Case) -> None:
    # The textbook formula, mean of squares minus square of mean, loses every digit here.
    assert of(case, ps.var("x"), "float64", 1e9 + 1, 1e9 + 2, 1e9 + 3) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "values", [(MOST, 1, -1), (1, MOST, -1), (LEAST, -5, 5), (MOST, MOST, LEAST, LEAST, 7)]
)
def test_an_integer_sum_is_exact_though_its_parts_overflow(case: Case, values: tuple[int, ...]) -> None:
    assert of(case, ps.sum("x"), "int64", *values) == sum(values)


def test_integers_beyond_two_to_the_53_keep_every_digit(case: Case) -> None:
    assert of(case, ps.sum("x"), "int64", 2**53 + 1, 2**53 + 1) == 2**54 + 2
    assert of(Case(case.engine), ps.max("x"), "int64", 2**53 + 1, 2**53) == 2**53 + 1


def test_the_mean_of_great_integers_does_not_overflow(case: Case) -> None:
    assert of(case, ps.mean("x"), "int64", MOST, MOST) == float(MOST)


@pytest.mark.parametrize("values", [(MOST, 1), (LEAST, -1)])
def test_a_window_sum_that_leaves_int64_fails_the_run_and_names_key_and_window(
    case: Case, values: tuple[int, int]
) -> None:
    rows = case.timed_source("t key v", [(1, "a", 5)], [(12, "hot", values[0])], [(13, "hot", values[1])])
    sums = rows.key_by("key").window(ps.tumbling(10), name="totals").aggregate(s=ps.sum("v"))
    with pytest.raises(ps.PenstockError) as failure:
        case.run(sums)
    text = str(failure.value)
    assert [part for part in ("totals", "hot", "10", "20") if part not in text] == []


def test_narrow_integers_are_summed_in_int64(case: Case) -> None:
    assert of(case, ps.sum("x"), "int8", 127, 127, 127) == 381


def test_an_aggregate_may_be_of_an_expression(case: Case) -> None:
    assert of(case, ps.sum(col("x") * 2 + 1), "int64", 1, 2, None) == 8


def test_decimals_are_summed_exactly(case: Case) -> None:
    values = (Decimal("0.10"), Decimal("0.20"), None, Decimal("-0.05"))
    assert of(case, ps.sum("x"), "decimal(10,2)", *values) == Decimal("0.25")
    assert of(Case(case.engine), ps.min("x"), "decimal(10,2)", *values) == Decimal("-0.05")
    assert alike(of(Case(case.engine), ps.mean("x"), "decimal(10,2)", *values), 0.25 / 3)


def test_a_decimal_sum_of_more_than_38_digits_fails_the_run(case: Case) -> None:
    great = Decimal("9" * 38)
    with pytest.raises(ps.PenstockError, match="window"):
        of(case, ps.sum("x"), "decimal(38,0)", great, great)


def test_float32_values_are_summed_in_float64(case: Case) -> None:
    assert of(case, ps.sum("x"), "float32", 16_777_216.0, 1.0) == 16_777_217.0


@pytest.mark.parametrize(("q", "expected"), [(0, 1.0), (0.25, 3.0), (0.5, 5.0), (0.9, 9.0), (1, 10.0)])
def test_a_quantile_is_near_the_value_of_that_rank(case: Case, q: float, expected: float) -> None:
    got = of(case, ps.quantile("x", q), "int64", *range(10, 0, -1))
    assert abs(got - expected) <= 1


def test_the_number_of_different_values_is_within_a_few_percent(case: Case) -> None:
    got = of(case, ps.approx_distinct("x"), "int64", *(i * 7919 for i in range(900)), *range(100))
    exact = len({*(i * 7919 for i in range(900)), *range(100)})
    assert got == pytest.approx(exact, rel=0.06)


def test_several_aggregates_share_a_window(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 4), (2, 2)], [(3, 6)])
    case.gives(
        rows.window(ps.tumbling(10)).aggregate(
            n=ps.count(), s=ps.sum("v"), low=ps.min("v"), high=ps.max("v"), mean=ps.mean("v")
        ),
        "window_start window_end n s low high mean",
        (0, 10, 3, 12, 2, 6, 4.0),
    )
