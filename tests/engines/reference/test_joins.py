"""Joins of two streams: pairs, bounds of time, late rows, outer rows, failing predicates."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import FunctionError
from penstock.operators.aggregates import count
from penstock.operators.join_predicate import band, equal
from penstock.operators.stream_join import StreamJoin
from penstock.operators.windows import KeyedWindows
from penstock.plan.plan import Ref
from penstock.timing.windows import tumbling
from tests.support.plans import PlanBuilder, PlanRun, Rows

LEFT = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
RIGHT = pa.schema([("k", pa.string()), ("u", pa.int64()), ("w", pa.int64())])


def join(left: list[Rows], right: list[Rows], delay: int = 0, **options: Any) -> PlanRun:
    builder = PlanBuilder()
    if "window" not in options:
        options.setdefault("within", 5)
    a = builder.source(*left, schema=LEFT, delay=delay)
    b = builder.source(*right, schema=RIGHT, time="u", time_unit="us", delay=delay)
    out = builder.add(StreamJoin(**{"on": "k", "name": "j", **options}), a, b)
    ran = builder.run()
    assert ran.account(out).is_balanced
    return ran


def pairs(ran: PlanRun) -> list[tuple[Any, ...]]:
    return ran.rows(Ref("j"))


def test_rows_within_the_bound_of_time_join_and_a_shared_column_comes_once() -> None:
    ran = join([[("a", 10, 1)]], [[("a", 5, 2), ("a", 15, 3), ("a", 4, 4), ("a", 16, 5), ("b", 10, 6)]])
    assert pairs(ran) == [("a", 10, 1, 5, 2), ("a", 10, 1, 15, 3)]


def test_the_bound_may_differ_by_which_side_is_older() -> None:
    # the left may be 5 older, the right 1 older
    rights: list[Rows] = [[("a", time, time) for time in (8, 9, 15, 16)]]
    ran = join([[("a", 10, 1)]], rights, within=(5, 1))
    assert [row[3] for row in pairs(ran)] == [9, 15]


def test_each_pair_leaves_once_in_whichever_round_its_second_row_comes() -> None:
    ran = join([[("a", 1, 1)], [], [("a", 3, 3)]], [[], [("a", 2, 2)], [("a", 4, 4)]], delay=10)
    assert sorted((row[1], row[3]) for row in pairs(ran)) == [(1, 2), (1, 4), (3, 2), (3, 4)]


def test_a_late_row_goes_to_the_late_port_of_its_side() -> None:
    # both sides are at W = 20 before the second round
    ran = join([[("a", 20, 1)], [("a", 19, 2)]], [[("a", 20, 3)], [("a", 18, 4)]])
    assert ran.rows(Ref("j", "late")) == [("a", 19, 2)]
    assert ran.rows(Ref("j", "late_right")) == [("a", 18, 4)]
    assert (ran.result.accounts["j"].late, ran.result.accounts["j"].passed) == (2, 2)


def test_lateness_lets_rows_come_so_much_later() -> None:
    ran = join([[("a", 20, 1)], [("a", 19, 2)]], [[("a", 20, 3)], []], lateness=1)
    assert len(pairs(ran)) == 2


def test_a_row_is_kept_exactly_as_long_as_a_row_on_time_can_pair_with_it() -> None:
    # W = 15: a right row at 15 is on time, and 15 - 10 is within 5
    ran = join([[("a", 10, 1)], [("b", 15, 0)], []], [[], [("b", 15, 0)], [("a", 15, 2)]])
    assert ("a", 10, 1, 15, 2) in pairs(ran)


def test_each_side_is_kept_for_its_own_bound() -> None:
    # the left may be 5 older, the right not at all
    ran = join([[("a", 10, 1)], [("b", 15, 0)], []], [[], [("b", 15, 0)], [("a", 15, 2)]], within=(5, 0))
    assert ("a", 10, 1, 15, 2) in pairs(ran)


def test_rows_of_one_tumbling_window_join() -> None:
    ran = join([[("a", 9, 1)]], [[("a", 0, 2), ("a", 10, 3)]], window=tumbling(10))
    assert pairs(ran) == [("a", 9, 1, 0, 2)]


def test_in_a_join_by_window_a_row_is_late_once_its_window_has_left() -> None:
    ran = join([[("a", 12, 1)], [("a", 11, 2), ("a", 9, 3)]], [[("a", 12, 4)], []], window=tumbling(10))
    assert ran.rows(Ref("j", "late")) == [("a", 9, 3)]
    assert len(pairs(ran)) == 2


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("left", [("l", 10, 1, None, None)]),
        ("right", [("r", None, None, 30, 2)]),
        ("full", [("l", 10, 1, None, None), ("r", None, None, 30, 2)]),
    ],
)
def test_rows_without_a_partner_leave_with_nulls_but_keep_a_shared_column(
    how: str, expected: list[Any]
) -> None:
    ran = join([[("l", 10, 1), ("a", 20, 3)]], [[("r", 30, 2), ("a", 20, 4)]], how=how)
    assert sorted(pairs(ran), key=str) == sorted([*expected, ("a", 20, 3, 20, 4)], key=str)


def test_an_outer_row_leaves_when_no_partner_can_come_and_is_not_late_after_it() -> None:
    builder = PlanBuilder()
    times = [10, 16, 30, 40]
    a = builder.source(*[[("l", time, 1)] for time in times], schema=LEFT)
    b = builder.source(*[[("r", time, 1)] for time in times], schema=RIGHT, time="u", time_unit="us", delay=0)
    both = builder.add(StreamJoin(on="k", within=5, how="full"), a, b)
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), both)
    ran = builder.run()
    assert ran.account(out).late == 0
    assert ran.rows(out) == [(10, 20, 4), (30, 40, 2), (40, 50, 2)]


def test_pairs_of_a_join_by_window_are_not_late_in_a_window_after_it() -> None:
    # W = 9 when the pair at 2 is made: it is a window behind, and so is the forwarded watermark
    builder = PlanBuilder()
    a = builder.source([("x", 9, 0)], [("a", 2, 1)], schema=LEFT)
    b = builder.source([("y", 9, 0)], [("a", 1, 1)], schema=RIGHT, time="u", time_unit="us", delay=0)
    both = builder.add(StreamJoin(on="k", window=tumbling(10)), a, b)
    out = builder.add(KeyedWindows(windows=tumbling(2), aggregates={"n": count()}), both)
    assert builder.run().rows(out) == [(2, 4, 1)]


def test_null_equals_nothing_and_nan_equals_nan() -> None:
    schema = pa.schema([("x", pa.float64()), ("t", pa.int64())])
    other = pa.schema([("y", pa.float64()), ("u", pa.int64())])
    builder = PlanBuilder()
    values = [None, math.nan, -0.0]
    a = builder.source([(value, 1) for value in values], schema=schema)
    b = builder.source(
        [(value, 1) for value in (None, math.nan, 0.0)], schema=other, time="u", time_unit="us", delay=0
    )
    out = builder.add(StreamJoin(on=equal("x", "y"), within=5), a, b)
    assert sorted(str(row[0]) for row in builder.run().rows(out)) == ["-0.0", "nan"]


@pytest.mark.parametrize(("strict", "actual"), [(False, [8, 10, 12]), (True, [10])])
def test_a_band_holds_values_that_are_close(strict: bool, actual: list[int]) -> None:
    rights: list[Rows] = [[("a", 1, value) for value in (7, 8, 10, 12, 13)] + [("a", 1, None)]]
    ran = join([[("a", 1, 10)]], rights, on=["k", band("v", "w", 2, strict=strict)])
    assert sorted(row[4] for row in pairs(ran)) == actual


def test_a_band_of_integers_is_exact_where_floats_are_not() -> None:
    ran = join([[("a", 1, 2**62)]], [[("a", 1, 2**62 + 1), ("a", 1, 2**62)]], on=["k", band("v", "w", 0)])
    assert [row[4] for row in pairs(ran)] == [2**62]


def test_any_function_of_both_rows_can_be_the_predicate() -> None:
    ran = join([[("a", 1, 3)]], [[("b", 1, 5), ("c", 1, 6)]], on=lambda x, y: y.w == x.v * 2, suffix="_r")
    assert pairs(ran) == [("a", 1, 3, "c", 1, 6)]


def broken(left: Any, right: Any) -> bool:
    return bool(1 // (left.v - right.w))


def test_a_pair_on_which_the_predicate_fails_stops_the_run() -> None:
    with pytest.raises(FunctionError, match="broken failed on a row") as failure:
        join([[("a", 1, 3)]], [[("a", 1, 3)]], on=["k", broken])
    assert "ZeroDivisionError" in str(failure.value.detail)


def test_failed_pairs_are_dead_lettered_and_charged_once_to_the_row_that_came_second() -> None:
    rights: list[Rows] = [[("a", 1, 3), ("a", 2, 3), ("a", 3, 4)]]
    ran = join([[], [("a", 3, 3)]], rights, on=["k", broken], on_error="dead_letter", delay=10)
    assert [row[:5] for row in ran.rows(Ref("j", "errors"))] == [("a", 3, 3, 1, 3), ("a", 3, 3, 2, 3)]
    assert pairs(ran) == [("a", 3, 3, 3, 4)]
    account = ran.result.accounts["j"]
    assert (account.rows_in, account.passed, account.errors) == (4, 3, 1)


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_a_predicate_that_gives_neither_true_nor_false_fails_the_pair(value: object) -> None:
    ran = join([[("a", 1, 3)]], [[("a", 1, 3)]], on=["k", lambda left, right: value], on_error="dead_letter")
    assert ran.rows(Ref("j", "errors"))[0][5] == f"gave {value!r}, not True or False"


def test_a_function_is_not_asked_about_pairs_that_the_other_terms_rule_out() -> None:
    ran = join([[("a", 1, 3)]], [[("b", 1, 3)]], on=[broken, "k"])
    assert pairs(ran) == []
