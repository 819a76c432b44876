"""Aggregates that look at order, text or time, folds of one's own, and functions of a whole window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

import pytest

import penstock as ps
from tests.conformance.case import Case, same_rows

FEATURE = "Folds, ordered aggregates and apply"
WINDOW = "window_start window_end"


def one(case: Case, rows: ps.MultiPipe, **aggregates: Any) -> dict[str, Any]:
    """The aggregates of the only window."""
    (row,) = case.run(rows.window(ps.tumbling(1000)).aggregate(aggregates)).rows()
    return row


def test_first_last_and_collect_go_by_time_not_by_arrival(case: Case) -> None:
    rows = case.timed_source("t v", [(3, 30), (2, 20)], [(1, 10), (4, 40)], delay=10)
    got = one(case, rows, first=ps.first("v"), last=ps.last("v"), all=ps.collect("v"))
    assert (got["first"], got["last"], got["all"]) == (10, 40, [10, 20, 30, 40])


def test_rows_of_equal_time_come_in_the_order_of_their_reader(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 9), (1, 5)], [(1, 7)])
    got = one(case, rows, first=ps.first("v"), last=ps.last("v"), all=ps.collect("v"))
    assert (got["first"], got["last"], got["all"]) == (9, 7, [9, 5, 7])


def test_the_greatest_event_time_of_a_window_is_at_hand(case: Case) -> None:
    rows = case.timed_source("t v", [(8, 1), (3, 2)], delay=10)
    assert one(case, rows, at=ps.event_time_max())["at"] == 8


@pytest.mark.parametrize(
    ("type_", "values", "least", "greatest"),
    [
        ("string", ("b", "", None, "é", "Z"), "", "é"),
        ("binary", (b"\xff", b"\x00", None), b"\x00", b"\xff"),
        ("bool", (True, None, False), False, True),
        ("date", (date(1970, 1, 1), date(1969, 12, 31)), date(1969, 12, 31), date(1970, 1, 1)),
        (
            "timestamp",
            (datetime(2020, 1, 1), datetime(1960, 1, 1, 0, 0, 0, 1), None),
            datetime(1960, 1, 1, 0, 0, 0, 1),
            datetime(2020, 1, 1),
        ),
    ],
)
def test_least_and_greatest_of_what_has_an_order(
    case: Case, type_: str, values: tuple[Any, ...], least: Any, greatest: Any
) -> None:
    rows = case.timed_source(f"t x:{type_}", list(enumerate(values)))
    got = one(case, rows, low=ps.min("x"), high=ps.max("x"), how=ps.max_count("x"), n=ps.approx_distinct("x"))
    assert (got["low"], got["high"], got["how"]) == (least, greatest, {"value": greatest, "count": 1})
    assert got["n"] == len({value for value in values if value is not None})


def test_a_fold_lifts_combines_and_lowers(case: Case) -> None:
    product = ps.fold(lambda row: row.v, lambda a, b: a * b, 1, lambda p: p + 0.5, type="float64")
    assert one(case, case.timed_source("t v", [(1, 2), (2, 3)], [(3, 7)]), p=product)["p"] == 42.5


def test_a_fold_without_lower_gives_its_part(case: Case) -> None:
    def longer(a: int, b: int) -> int:
        return max(a, b)

    assert (
        one(case, case.timed_source("t v", [(1, 2), (2, 3)]), m=ps.fold(lambda row: row.v, longer, 0))["m"]
        == 3
    )


def test_a_fold_may_carry_several_numbers(case: Case) -> None:
    spread = ps.fold(
        lambda row: (row.v, row.v),
        lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
        (10**9, -(10**9)),
        lambda part: part[1] - part[0],
        type="int64",
    )
    rows = case.timed_source("t key v", [(1, "a", 5), (2, "a", 1)], [(3, "b", 4), (4, "a", 9)]).key_by("key")
    case.gives(
        rows.window(ps.tumbling(10)).aggregate(spread=spread),
        f"key {WINDOW} spread",
        ("a", 0, 10, 8),
        ("b", 0, 10, 0),
    )


def test_a_fold_that_does_not_commute_sees_rows_in_order_of_time(case: Case) -> None:
    #  f(x) = a x + b, composed in order; (a, b) then (c, d) is (c a, c b + d)
    compose = ps.fold(
        lambda row: (row.a, row.b),
        lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1]),
        (1, 0),
        lambda f: f[0] * 1000 + f[1],
        type="int64",
        commutative=False,
    )
    rows = case.timed_source("t a:int64 b:int64", [(3, 5, 1), (1, 2, 1)], [(2, 3, 0)], delay=10)
    # x -> 2x + 1 -> 6x + 3 -> 30x + 16
    assert one(case, rows, f=compose)["f"] == 30_016


def test_a_fold_skips_rows_with_a_null_in_its_columns(case: Case) -> None:
    total = ps.fold(lambda row: row.v, lambda a, b: a + b, 0, columns=["v"], type="int64")
    got = one(case, case.timed_source("t v", [(1, 2), (2, None), (3, 3)]), s=total, n=ps.count())
    assert (got["s"], got["n"]) == (5, 3)


def test_a_fold_over_nothing_but_nulls_gives_its_zero(case: Case) -> None:
    total = ps.fold(lambda row: row.v, lambda a, b: a + b, 100, columns=["v"], type="int64")
    assert one(case, case.timed_source("t v", [(1, None)]), s=total)["s"] == 100


def test_a_fold_in_sliding_windows_reuses_no_part_wrongly(case: Case) -> None:
    text = ps.fold(lambda row: row.v, lambda a, b: a * 10 + b if a else b, 0, type="int64", commutative=False)
    rows = case.timed_source("t v", [(t, t) for t in (4, 1, 3, 2)])
    case.gives(
        rows.window(ps.sliding(2, 1)).aggregate(x=ps.collect("v"), n=ps.count()),
        f"{WINDOW} x n",
        (0, 2, [1], 1),
        (1, 3, [1, 2], 2),
        (2, 4, [2, 3], 2),
        (3, 5, [3, 4], 2),
        (4, 6, [4], 1),
    )
    fresh = Case(case.engine)
    digits = (
        fresh.timed_source("t v", [(t, t) for t in (4, 1, 3, 2)]).window(ps.tumbling(10)).aggregate(x=text)
    )
    fresh.gives(digits, f"{WINDOW} x", (0, 10, 1234))


@dataclass
class Pair:
    low: int
    high: int


class Step(NamedTuple):
    at: int


def test_apply_sees_all_rows_of_a_window_in_order_and_gives_one_row(case: Case) -> None:
    def ends(rows: list[Any]) -> Pair:
        return Pair(rows[0].v, rows[-1].v)

    rows = case.timed_source("t key v", [(3, "a", 30), (1, "a", 10)], [(2, "b", 20), (12, "a", 5)], delay=20)
    case.gives(
        rows.key_by("key").window(ps.tumbling(10)).apply(ends),
        f"key {WINDOW} low high",
        ("a", 0, 10, 10, 30),
        ("b", 0, 10, 20, 20),
        ("a", 10, 20, 5, 5),
    )


def test_apply_may_give_several_rows_or_none(case: Case) -> None:
    def changes(rows: list[Any]) -> Iterator[Step]:
        return (Step(row.v) for row, before in zip(rows[1:], rows, strict=False) if row.v != before.v)

    rows = case.timed_source("t v", [(0, 1), (1, 1), (2, 5), (3, 1), (11, 1), (12, 1)])
    case.gives(rows.window(ps.tumbling(10)).apply(changes), f"{WINDOW} at", (0, 10, 5), (0, 10, 1))


def test_apply_that_gives_none_gives_no_row(case: Case) -> None:
    rows = case.timed_source("t v", [(0, 1), (11, 1), (12, 1)])
    busy = rows.window(ps.tumbling(10)).apply(
        lambda rows: {"n": len(rows)} if len(rows) > 1 else None, schema={"n": "int64"}
    )
    case.gives(busy, f"{WINDOW} n", (10, 20, 2))


def test_apply_can_ask_for_its_window(case: Case) -> None:
    def describe_window(rows: list[Any], window: Any) -> dict[str, Any]:
        return {"told": f"{window.key} {window.start} {window.end} {window.label} {window.index} {len(rows)}"}

    rows = case.timed_source("t key", [(1, "a"), (2, "a")]).key_by("key")
    out = case.run(
        rows.window(fast=ps.tumbling(5), pair=ps.count_window(2)).apply(
            describe_window, schema={"told": "string"}
        )
    )
    same_rows(
        [{"told": row["told"].replace("('a',)", "a")} for row in out.rows()],
        "told",
        ("a 0 5 fast None 2",),
        ("a 1 2 pair 0 2",),
    )
