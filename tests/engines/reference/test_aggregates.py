"""Every aggregate: its value, nulls, NaN and infinities, edges of integers, order."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import EngineError, FunctionError
from penstock.expr import col
from penstock.operators import aggregates as ps
from penstock.operators.windows import KeyedWindows
from penstock.timing.windows import sliding, tumbling
from tests.support.plans import PlanBuilder, errors_port

NAN, INF = math.nan, math.inf
BIG = 2**63 - 1


def of(aggregate: ps.Aggregate, values: list[Any], type_: pa.DataType | None = None) -> Any:
    """The aggregate of a column `v` over one window; row i has time i."""
    schema = pa.schema([("t", pa.int64()), ("v", type_ or pa.int64())])
    builder = PlanBuilder()
    rows = builder.source(list(enumerate(values)), schema=schema)
    out = builder.add(KeyedWindows(windows=tumbling(1_000), aggregates={"x": aggregate}, name="w"), rows)
    ((*_, result),) = builder.run().rows(out)
    return result


F = pa.float64()


@pytest.mark.parametrize(
    ("aggregate", "values", "type_", "expected"),
    [
        (ps.count(), [1, None, 3], None, 3),
        (ps.count("v"), [1, None, 3], None, 2),
        (ps.count("v"), [None], None, 0),
        (ps.sum("v"), [1, None, 3], None, 4),
        (ps.sum("v"), [None, None], None, None),
        (ps.sum("v"), [BIG, BIG, -BIG, -BIG, 7], None, 7),
        (ps.sum("v"), [BIG, 1, -1], None, BIG),
        (ps.sum("v"), [1e308, 1e308, -1e308], F, 1e308),
        (ps.sum("v"), [1e308, 1e308], F, INF),
        (ps.sum("v"), [0.1] * 10, F, 1.0),
        (ps.sum("v"), [INF, 1.0], F, INF),
        (ps.sum("v"), [Decimal("0.10"), Decimal("0.20")], pa.decimal128(5, 2), Decimal("0.30")),
        (ps.min("v"), [3, None, 1], None, 1),
        (ps.max("v"), [3, None, 1], None, 3),
        (ps.min("v"), [None], None, None),
        (ps.min("v"), [NAN, 1.0], F, 1.0),
        (ps.max("v"), ["b", "é", "a"], pa.string(), "é"),
        (ps.max("v"), [True, False], pa.bool_(), True),
        (ps.mean("v"), [1, 2, None], None, 1.5),
        (ps.mean("v"), [BIG, BIG], None, float(BIG)),
        (ps.mean("v"), [None], None, None),
        (ps.mean("v"), [Decimal("1.0"), Decimal("2.0")], pa.decimal128(5, 1), 1.5),
        (ps.var("v"), [1, 2, 3, 4], None, 5 / 3),
        (ps.var("v", population=True), [1, 2, 3, 4], None, 1.25),
        (ps.var("v"), [5], None, None),
        (ps.var("v", population=True), [5], None, 0.0),
        (ps.var("v"), [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16], F, 30.0),
        (ps.std("v", population=True), [2, 4], None, 1.0),
        (ps.std("v"), [5], None, None),
        (ps.max_count("v"), [3, 1, 3, None], None, {"value": 3, "count": 2}),
        (ps.min_count("v"), [3, 1, 3, None], None, {"value": 1, "count": 1}),
        (ps.min_count("v"), [-0.0, 0.0], F, {"value": 0.0, "count": 2}),
        (ps.max_count("v"), [None], None, None),
        (ps.first("v"), [None, 5, 6], None, 5),
        (ps.last("v"), [5, 6, None], None, 6),
        (ps.first("v"), [None], None, None),
        (ps.collect("v"), [2, None, 1], None, [2, 1]),
        (ps.collect("v"), [None], None, []),
        (ps.approx_distinct("v"), [NAN, NAN, -0.0, 0.0, None], F, 2),
        (ps.quantile("v", 0.5), [4, 1, 3, 2], None, 2.0),
        (ps.quantile("v", 0.1), list(range(1, 11)), None, 1.0),
        (ps.quantile("v", 0.0), [3, 1], None, 1.0),
        (ps.quantile("v", 1.0), [3, 1], None, 3.0),
        (ps.quantile("v", 0.5), [None], None, None),
        (ps.event_time_max(), [None, None, None], None, 2),
        (ps.sum(col("v") * 2), [1, 2], None, 6),
    ],
)
def test_the_value_of(aggregate: ps.Aggregate, values: list[Any], type_: Any, expected: object) -> None:
    assert of(aggregate, values, type_) == expected


@pytest.mark.parametrize(
    ("aggregate", "values"),
    [
        (ps.sum("v"), [1.0, NAN]),
        (ps.sum("v"), [INF, -INF]),
        (ps.mean("v"), [NAN]),
        (ps.mean("v"), [INF, -INF, 1.0]),
        (ps.max("v"), [INF, NAN]),
        (ps.min("v"), [NAN, NAN]),
        (ps.var("v"), [1.0, INF]),
        (ps.quantile("v", 1.0), [NAN, 1.0]),
    ],
)
def test_it_is_nan(aggregate: ps.Aggregate, values: list[float]) -> None:
    assert math.isnan(of(aggregate, values, F))


def test_the_least_zero_has_no_sign() -> None:
    assert str(of(ps.min("v"), [0.0, -0.0], F)) == "0.0"
    assert str(of(ps.max("v"), [-0.0], F)) == "0.0"


def test_an_integer_sum_that_leaves_int64_fails_the_run_naming_key_and_window() -> None:
    builder = PlanBuilder()
    rows = builder.source([("é", 1, BIG), ("é", 2, 1)])
    builder.add(KeyedWindows(windows=tumbling(10), aggregates={"x": ps.sum("v")}, name="w"), rows, key=("k",))
    with pytest.raises(EngineError) as failure:
        builder.run()
    assert failure.value.fact == (
        "sum(col(\"v\")) of window tumbling 10 us from 0 to 10 of key k='é' does not fit its type"
    )
    assert failure.value.step == "w"
    assert failure.value.detail == f"the exact sum is {2**63}, outside int64"


def test_a_decimal_sum_of_more_than_38_digits_fails_the_run() -> None:
    wide = Decimal("9" * 38)
    with pytest.raises(EngineError, match="does not fit its type") as failure:
        of(ps.sum("v"), [wide, wide], pa.decimal128(38, 0))
    assert "more than 38 digits" in str(failure.value.detail)


def test_first_last_and_collect_see_rows_in_order_of_time() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 3, 3), ("a", 1, 1)], [("a", 2, 2)], delay=10)
    spec = {"first": ps.first("v"), "last": ps.last("v"), "all": ps.collect("v")}
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates=spec), rows)
    assert builder.run().rows(out) == [(0, 10, 1, 3, [1, 2, 3])]


def test_a_fold_lifts_combines_and_lowers_in_order() -> None:
    fold = ps.fold(
        lambda row: str(row.v), lambda a, b: a + b, "", lambda s: f"<{s}>", type="string", commutative=False
    )
    assert of(fold, [1, 2, 3]) == "<123>"


def test_a_fold_skips_rows_with_a_null_in_the_columns_it_reads() -> None:
    fold = ps.fold(lambda row: row.v, lambda a, b: a + b, 0, columns=["v"], type="int64")
    assert of(fold, [1, None, 3]) == 4


def into_first(a: list[int], b: list[int]) -> list[int]:
    a += b
    return a


def into_second(a: list[int], b: list[int]) -> list[int]:
    b += a
    return b


@pytest.mark.parametrize("extend", [into_first, into_second])
def test_a_fold_may_change_its_parts_without_changing_other_windows(extend: Any) -> None:
    fold = ps.fold(lambda row: [row.v], extend, [], len, type="int64")
    builder = PlanBuilder()
    rows = builder.source([("a", 1, 1), ("a", 6, 1)])
    out = builder.add(KeyedWindows(windows=sliding(10, 5), aggregates={"n": fold}), rows)
    assert [row[-1] for row in builder.run().rows(out)] == [1, 2, 1]


def test_a_fold_that_cannot_combine_fails_the_run() -> None:
    def broken(a: int, b: int) -> int:
        raise ValueError("no")

    fold = ps.fold(lambda row: row.v, broken, 0, type="int64")
    with pytest.raises(
        FunctionError, match="broken failed on window tumbling 1 ms from 0 to 1000"
    ) as failure:
        of(fold, [1])
    assert failure.value.where is not None
    assert failure.value.where.file.endswith("test_aggregates.py")


def test_a_fold_that_gives_another_type_fails_the_run() -> None:
    fold = ps.fold(lambda row: row.v, lambda a, b: a + b, 0, str, type="int64")
    with pytest.raises(FunctionError, match="function str failed"):
        of(fold, [1])


def test_a_row_that_lift_fails_on_is_a_row_error_and_in_no_window() -> None:
    def lift(row: Any) -> float:
        return 1 / row.v  # type: ignore[no-any-return]  # rows are untyped

    builder = PlanBuilder()
    rows = builder.source([("a", 1, 0), ("a", 2, 1)])
    fold = ps.fold(lift, lambda a, b: a + b, 0.0, type="float64")
    op = KeyedWindows(
        windows=tumbling(10), aggregates={"n": ps.count(), "x": fold}, on_error="dead_letter", name="w"
    )
    out = builder.add(op, rows)
    ran = builder.run()
    assert ran.rows(out) == [(0, 10, 1, 1.0)]
    assert ran.rows(errors_port(out)) == [("a", 1, 0, "ZeroDivisionError: division by zero", "w")]
    assert ran.account(out).is_balanced


def test_a_row_whose_value_fails_is_a_row_error_even_when_it_is_late() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 50, 1)], [("a", 1, 0)])
    op = KeyedWindows(windows=tumbling(10), aggregates={"x": ps.sum(col("v") // col("v"))}, on_error="skip")
    out = builder.add(op, rows)
    account = builder.run().account(out)
    assert (account.errors, account.late, account.passed) == (1, 0, 1)
