"""Rows looked up in a table that does not change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from tests.conformance.case import Case, cut
from tests.conformance.engines import everywhere

FEATURE = "Table join"
NAN = float("nan")
CAMPAIGNS = [{"key": "a", "campaign": 1}, {"key": "b", "campaign": 2}, {"key": None, "campaign": 3}]


@everywhere
def test_an_inner_join_drops_and_counts_what_has_no_partner(case: Case) -> None:
    rows = case.untimed_source("key v", [("a", 1), ("c", 2)], [("b", 3), ("a", 4)])
    joined = rows.join_table(CAMPAIGNS, on="key", name="j")
    outcome = case.gives(joined, "key v campaign", ("a", 1, 1), ("b", 3, 2), ("a", 4, 1))
    assert (outcome.account("j").unmatched, outcome.account("j").passed) == (1, 3)


def test_a_left_join_fills_with_nulls(case: Case) -> None:
    rows = case.untimed_source("key v", [("a", 1), ("c", 2)])
    joined = rows.join_table(CAMPAIGNS, on="key", how="left", name="j")
    outcome = case.gives(joined, "key v campaign", ("a", 1, 1), ("c", 2, None))
    assert outcome.account("j").unmatched == 0


@pytest.mark.parametrize(("how", "expected"), [("inner", []), ("left", [(None, 1, None)])])
def test_a_null_key_matches_nothing_not_even_null(
    case: Case, how: Any, expected: list[tuple[Any, ...]]
) -> None:
    rows = case.untimed_source("key v", [(None, 1)])
    case.gives(rows.join_table(CAMPAIGNS, on="key", how=how), "key v campaign", *expected)


def test_nan_finds_nan_and_minus_zero_finds_zero(case: Case) -> None:
    table = [{"k": NAN, "name": "nan"}, {"k": 0.0, "name": "zero"}]
    rows = case.untimed_source("k:float64", [(NAN,), (-0.0,), (0.0,), (1.0,)])
    case.gives(rows.join_table(table, on="k"), "k name", (NAN, "nan"), (-0.0, "zero"), (0.0, "zero"))


def test_a_table_may_be_looked_up_by_several_columns(case: Case) -> None:
    table = [{"a": 1, "b": "x", "c": 10}, {"a": 1, "b": "y", "c": 20}, {"a": 2, "b": None, "c": 30}]
    rows = case.untimed_source("b:string a:int64", [("x", 1), ("y", 1), ("y", 2), (None, 2)])
    case.gives(rows.join_table(table, on=["a", "b"]), "b a c", ("x", 1, 10), ("y", 1, 20))


def test_letters_that_look_alike_do_not_match(case: Case) -> None:
    rows = case.untimed_source("key", [("e\u0301",), ("\u00e9",)])
    table = [{"key": "\u00e9", "found": True}]
    case.gives(rows.join_table(table, on="key"), "key found", ("\u00e9", True))


def test_an_empty_table_matches_nothing(case: Case) -> None:
    table = pa.table({"key": pa.array([], pa.string()), "x": pa.array([], pa.int64())})
    rows = case.untimed_source("key", [("a",)])
    assert case.gives(rows.join_table(table, on="key", name="j"), "key x").account("j").unmatched == 1


def test_a_table_may_be_an_arrow_table_or_a_reader(case: Case) -> None:
    tables: list[Any] = [
        pa.table({"key": ["a"], "x": [7]}),
        cut("key x:int64", [("a", 7)], [("b", 8)]),
    ]
    for table in tables:
        fresh = Case(case.engine)
        rows = fresh.untimed_source("key", [("a",)])
        fresh.gives(rows.join_table(table, on="key"), "key x", ("a", 7))


def test_a_joined_row_keeps_its_time_and_its_key(case: Case) -> None:
    rows = case.timed_source("t key", [(1, "a"), (2, "b"), (12, "a")], [(13, "a")]).key_by("key")
    counts = rows.join_table(CAMPAIGNS, on="key").window(ps.tumbling(10)).aggregate(s=ps.sum("campaign"))
    case.gives(counts, "key window_start window_end s", ("a", 0, 10, 1), ("b", 0, 10, 2), ("a", 10, 20, 2))


def test_a_row_that_found_nothing_still_moved_the_watermark(case: Case) -> None:
    rows = case.timed_source("t key", [(30, "c")], [(1, "a")]).join_table(CAMPAIGNS, on="key")
    assert case.run(rows.window(ps.tumbling(10), name="w").aggregate(n=ps.count())).account("w").late == 1


def test_nulls_in_the_table_s_columns_are_passed_on(case: Case) -> None:
    table = [{"key": "a", "x": None}, {"key": "b", "x": 1}]
    rows = case.untimed_source("key", [("a",), ("b",)])
    case.gives(rows.join_table(table, on="key"), "key x", ("a", None), ("b", 1))
