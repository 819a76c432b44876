"""Keys: which values are one key, and that nothing is lost on awkward ones."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case, same_rows
from tests.conformance.engines import everywhere

FEATURE = "Keys"
NAN, INF = math.nan, math.inf


def counts(case: Case, type_: str, *keys: Any) -> list[tuple[Any, int]]:
    """How many rows each key has, in one window."""
    rows = case.timed_source(f"t k:{type_}", [(1, key) for key in keys])
    out = case.run(rows.key_by("k").window(ps.tumbling(10)).aggregate(n=ps.count()))
    return [(row["k"], row["n"]) for row in out.rows()]


@everywhere
def test_null_is_a_key_of_its_own(case: Case) -> None:
    got = counts(case, "string", "a", None, "", None)
    assert sorted(got, key=repr) == [("", 1), ("a", 1), (None, 2)]


def test_nan_is_one_key(case: Case) -> None:
    got = counts(case, "float64", NAN, 1.0, -NAN, INF, -INF, None)
    assert sorted((repr(key), n) for key, n in got) == [
        ("-inf", 1),
        ("1.0", 1),
        ("None", 1),
        ("inf", 1),
        ("nan", 2),
    ]


def test_minus_zero_is_zero(case: Case) -> None:
    ((key, n),) = counts(case, "float64", -0.0, 0.0, -0.0)
    assert (math.copysign(1.0, key), n) == (1.0, 3)


def test_one_key_that_comes_as_both_zeros_is_one_key_over_batches(case: Case) -> None:
    rows = case.timed_source("t k:float64 v", [(1, -0.0, 1)], [(2, 0.0, 2)]).key_by("k")
    case.gives(
        rows.window(ps.tumbling(10)).aggregate(s=ps.sum("v")), "k window_start window_end s", (0.0, 0, 10, 3)
    )


def test_letters_that_look_alike_are_different_keys(case: Case) -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    got = counts(case, "string", composed, decomposed, composed, "E\u0301", "🌊", " ", "ß", "ss")
    assert dict(got) == {composed: 2, decomposed: 1, "E\u0301": 1, "🌊": 1, " ": 1, "ß": 1, "ss": 1}


def test_integers_at_the_edge_of_int64_are_keys_like_any_other(case: Case) -> None:
    edges = [2**63 - 1, -(2**63), 2**63 - 2, -1, 0, 2**53, 2**53 + 1]
    assert dict(counts(case, "int64", *edges, *edges)) == dict.fromkeys(edges, 2)


@pytest.mark.parametrize(
    ("type_", "keys"),
    [
        ("bool", (True, False, None)),
        ("int8", (-128, 127, 0)),
        ("date", (date(1969, 12, 31), date(1970, 1, 1))),
        ("timestamp", (datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1))),
        ("binary", (b"", b"\x00", b"\x00\x00", None)),
        ("float32", (0.5, INF)),
    ],
)
def test_keys_may_be_of_many_types(case: Case, type_: str, keys: tuple[Any, ...]) -> None:
    assert dict(counts(case, type_, *keys, *keys)) == dict.fromkeys(keys, 2)


def test_decimal_keys_are_equal_by_value(case: Case) -> None:
    got = counts(case, "decimal(10,2)", Decimal("1.50"), Decimal("1.5"), Decimal("-1.50"))
    assert dict(got) == {Decimal("1.50"): 2, Decimal("-1.50"): 1}


def test_a_key_may_be_several_columns(case: Case) -> None:
    rows = case.timed_source(
        "t region:string n:float64 v",
        [(1, "x", 1.0, 1), (2, "x", None, 2), (3, None, 1.0, 4), (4, "x", 1.0, 8), (5, None, None, 16)],
        [(6, "x", NAN, 32), (7, "x", NAN, 64), (8, None, None, 128)],
    )
    case.gives(
        rows.key_by("region", "n").window(ps.tumbling(10)).aggregate(s=ps.sum("v")),
        "region n window_start window_end s",
        ("x", 1.0, 0, 10, 9),
        ("x", None, 0, 10, 2),
        (None, 1.0, 0, 10, 4),
        (None, None, 0, 10, 144),
        ("x", NAN, 0, 10, 96),
    )


def test_texts_of_two_columns_do_not_run_together(case: Case) -> None:
    rows = case.timed_source("t a:string b:string", [(1, "x", "yz"), (2, "xy", "z"), (3, "x\x00", "yz")])
    case.gives(
        rows.key_by("a", "b").window(ps.tumbling(10)).aggregate(n=ps.count()),
        "a b window_start window_end n",
        ("x", "yz", 0, 10, 1),
        ("xy", "z", 0, 10, 1),
        ("x\x00", "yz", 0, 10, 1),
    )


def test_a_key_may_be_computed(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 5), (2, 50), (3, 7), (4, None)])
    case.gives(
        rows.key_by(big=col("v") > 9).window(ps.tumbling(10)).aggregate(n=ps.count()),
        "big window_start window_end n",
        (False, 0, 10, 2),
        (True, 0, 10, 1),
        (None, 0, 10, 1),
    )


def test_maps_that_leave_the_key_alone_keep_the_groups(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 1), (2, "b", 2), (3, "a", 4)]).key_by("key")
    mapped = rows.with_columns(v=col("v") * 10).filter(col("v") > 5)
    out = case.run(mapped.window(ps.tumbling(10)).aggregate(s=ps.sum("v")))
    same_rows(out.tables[0], "key window_start window_end s", ("a", 0, 10, 50), ("b", 0, 10, 20))


def test_a_key_that_went_silent_keeps_nothing_from_the_others(case: Case) -> None:
    rows = case.timed_source("t key", [(1, "a")], [(20, "b")], [(41, "a")], [(60, "b")]).key_by("key")
    case.gives(
        rows.window(ps.tumbling(10)).aggregate(n=ps.count()),
        "key window_start window_end n",
        ("a", 0, 10, 1),
        ("b", 20, 30, 1),
        ("a", 40, 50, 1),
        ("b", 60, 70, 1),
    )


def test_many_keys_at_once_are_all_given_out(case: Case) -> None:
    rows = case.timed_source("t k:int64", [(1, k % 500) for k in range(1000)]).key_by("k")
    out = case.run(rows.window(ps.tumbling(10)).aggregate(n=ps.count()))
    assert sorted((row["k"], row["n"]) for row in out.rows()) == [(k, 2) for k in range(500)]


def keyed_words(case: Case) -> ps.MultiPipe:
    """Words in two minutes, in two batches, with their minutes' counts."""
    rows = [(t, word) for t, word in enumerate(["to", "be", "or", "not", "to", "be", "that", "is", "to"])]
    more = [(60 + t, word) for t, word in enumerate(["all", "the", "all", "men", "all", "the"])]
    words = case.timed_source("t key", rows, more).key_by("key")
    return words.window(ps.tumbling("1 min"), name="words").aggregate(n=ps.count())


def top_three(rows: list[Any]) -> list[dict[str, Any]]:
    """The three most frequent words."""
    return [{"key": row.key, "n": row.n} for row in sorted(rows, key=lambda row: (-row.n, row.key))[:3]]


@everywhere
def test_behind_keyless_a_window_takes_the_rows_of_all_keys_together(case: Case) -> None:
    windows = keyed_words(case).keyless().window(ps.tumbling("1 min"), name="top")
    case.gives(
        windows.apply(top_three, schema={"key": "string", "n": "int64"}),
        "window_start window_end key n",
        (0, 60, "to", 3),
        (0, 60, "be", 2),
        (0, 60, "is", 1),
        (60, 120, "all", 3),
        (60, 120, "the", 2),
        (60, 120, "men", 1),
    )


def test_a_window_behind_a_keyed_window_has_its_key(case: Case) -> None:
    windows = keyed_words(case).window(ps.tumbling("2 min"), name="both").aggregate(n=ps.sum("n"))
    case.gives(
        windows.filter(col("n") > 1),
        "key window_start window_end n",
        ("to", 0, 120, 3),
        ("be", 0, 120, 2),
        ("all", 0, 120, 3),
        ("the", 0, 120, 2),
    )


def pass_on(row: Any) -> dict[str, Any]:
    """The columns as they are, but for the value."""
    return {"t": row.t, "key": row.key, "v": row.v * 10}


def shift_key(row: Any) -> dict[str, Any]:
    """Another key for every other row."""
    return {"t": row.t, "key": row.key if row.v % 2 else "x", "v": row.v}


COLUMNS = {"t": "int64", "key": "string", "v": "int64"}
KEY_ROWS = [(t, "abc"[t % 3], t) for t in range(9)]


def test_a_function_that_keeps_the_key_stands_between_key_by_and_a_window(case: Case) -> None:
    rows = case.timed_source("t key v", KEY_ROWS[:4], KEY_ROWS[4:]).key_by("key")
    mapped = rows.map(pass_on, schema=COLUMNS, keeps="key", parallelism=2)
    case.gives(
        mapped.window(ps.tumbling(100)).aggregate(s=ps.sum("v")),
        "key window_start window_end s",
        ("a", 0, 100, 90),
        ("b", 0, 100, 120),
        ("c", 0, 100, 150),
    )


def test_rows_are_grouped_by_the_values_they_have_whatever_a_function_is_said_to_keep(case: Case) -> None:
    # State by key, then a function that does change it: rows of "x" come from every replica.
    rows = case.timed_source("t key v", KEY_ROWS[:4], KEY_ROWS[4:]).key_by("key")
    first = rows.filter(lambda row, state: True, state=list, parallelism=2)
    moved = first.map(shift_key, schema=COLUMNS, keeps="key", parallelism=2)
    case.gives(
        moved.window(ps.tumbling(100), parallelism=2).aggregate(n=ps.count()),
        "key window_start window_end n",
        ("a", 0, 100, 1),
        ("b", 0, 100, 2),
        ("c", 0, 100, 1),
        ("x", 0, 100, 5),
    )


def test_late_rows_have_their_key_still(case: Case) -> None:
    rows = case.timed_source("t key v", [(50, "a", 1)], [(3, "a", 2), (4, "b", 3), (5, "a", 4)])
    windows = rows.key_by("key").window(ps.tumbling(10), name="w", parallelism=2).aggregate(n=ps.count())
    late = windows.late.window(ps.tumbling(10), parallelism=2).aggregate(s=ps.sum("v"))
    case.gives(late, "key window_start window_end s", ("a", 0, 10, 6), ("b", 0, 10, 3))


def test_failed_rows_have_their_key_still(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 0), (2, "b", 1), (3, "a", 0), (4, "b", 0)])
    checked = rows.key_by("key").filter(
        lambda row: 1 // row.v > 0, on_error="dead_letter", name="checked", parallelism=2
    )
    failed = checked.errors.window(ps.tumbling(10)).aggregate(n=ps.count())
    case.gives(failed, "key window_start window_end n", ("a", 0, 10, 2), ("b", 0, 10, 1))


def test_a_joined_pair_has_the_key_of_the_left(case: Case) -> None:
    left = case.timed_source("t key v", KEY_ROWS, name="left").key_by("key")
    right = case.timed_source("t v:int64", [(t, t) for t in range(9)], name="right")
    pairs = left.join(right, on="v", within=0, suffix="_right")
    case.gives(
        pairs.window(ps.tumbling(100)).aggregate(n=ps.count()),
        "key window_start window_end n",
        ("a", 0, 100, 3),
        ("b", 0, 100, 3),
        ("c", 0, 100, 3),
    )
