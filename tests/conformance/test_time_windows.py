"""Tumbling, sliding and hopping windows: which rows are in which window, and what leaves."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case
from tests.conformance.engines import everywhere

FEATURE = "Tumbling, sliding and hopping windows"
WINDOW = "window_start window_end"


def test_a_row_on_a_boundary_is_in_the_window_that_starts_there(case: Case) -> None:
    #  0        9 10        20
    #  [1 ...   2)[4        )
    sums = (
        case.timed_source("t v", [(0, 1), (9, 2), (10, 4)]).window(ps.tumbling(10)).aggregate(s=ps.sum("v"))
    )
    case.gives(sums, f"{WINDOW} s", (0, 10, 3), (10, 20, 4))


def test_windows_before_1970_begin_at_multiples_of_the_slide_too(case: Case) -> None:
    #  -20      -11 -10      -1 0
    #  [         1) [2        4)[8
    sums = (
        case.timed_source("t v", [(-11, 1), (-10, 2), (-1, 4), (0, 8)])
        .window(ps.tumbling(10))
        .aggregate(s=ps.sum("v"))
    )
    case.gives(sums, f"{WINDOW} s", (-20, -10, 1), (-10, 0, 6), (0, 10, 8))


def test_sliding_windows_reach_across_1970(case: Case) -> None:
    #  -10   -5    0     5
    #  [     [ 1   )
    #        [     )
    sums = case.timed_source("t v", [(-1, 1)]).window(ps.sliding(10, 5)).aggregate(s=ps.sum("v"))
    case.gives(sums, f"{WINDOW} s", (-10, 0, 1), (-5, 5, 1))


def test_rows_with_equal_times_all_count(case: Case) -> None:
    sums = case.timed_source("t v", [(3, 1), (3, 1), (3, 1)], [(3, 1)]).window(ps.tumbling(10))
    case.gives(sums.aggregate(n=ps.count(), s=ps.sum("v")), f"{WINDOW} n s", (0, 10, 4, 4))


def test_windows_without_rows_are_not_given_out(case: Case) -> None:
    #  0 .. 10 ............ 1,000,000,000 (30 years of empty windows)
    counts = (
        case.timed_source("t", [(5,)], [(1_000_000_001,)]).window(ps.tumbling(10)).aggregate(n=ps.count())
    )
    case.gives(counts, f"{WINDOW} n", (0, 10, 1), (1_000_000_000, 1_000_000_010, 1))


@everywhere
def test_a_row_is_in_every_sliding_window_that_covers_it(case: Case) -> None:
    #  -5    0     5     10    15
    #  [     7     )
    #        [7    8     )
    #              [8    )     )
    rows = case.timed_source("t key v", [(2, "a", 7), (5, "a", 8)]).key_by("key")
    case.gives(
        rows.window(ps.sliding(10, 5)).aggregate(s=ps.sum("v")),
        f"key {WINDOW} s",
        ("a", -5, 5, 7),
        ("a", 0, 10, 15),
        ("a", 5, 15, 8),
    )


def test_a_slide_need_not_divide_the_size(case: Case) -> None:
    #  -8   -4    0    2 4   6  8  9 10   14   18
    #  [          1    )
    #       [     1         )
    #             [1             9 )
    #                   [        9 10   )
    #                          [ 9 10        )
    counts = case.timed_source("t", [(0,), (9,), (10,)]).window(ps.sliding(10, 4)).aggregate(n=ps.count())
    case.gives(counts, f"{WINDOW} n", (-8, 2, 1), (-4, 6, 1), (0, 10, 2), (4, 14, 2), (8, 18, 2))


def test_a_slide_may_have_no_round_divisor_with_the_size(case: Case) -> None:
    # 10 s every 3.001 s: equal panes would be 1 ms long.
    rows = case.timed_source("t", [(9002,), (9003,)], time_unit="ms")
    case.gives(
        rows.window(ps.sliding("10 s", every="3.001 s")).aggregate(n=ps.count()),
        f"{WINDOW} n",
        (0, 10000, 2),
        (3001, 13001, 2),
        (6002, 16002, 2),
        (9003, 19003, 1),
    )


def test_rows_between_hopping_windows_are_counted_and_in_no_window(case: Case) -> None:
    #  -5 -3      0  2      5  7
    #  [1 )    2  [4 )8  16 [32)
    rows = case.timed_source("t v", [(-5, 1), (-1, 2), (1, 4), (2, 8), (4, 16), (5, 32)])
    sums = rows.window(ps.sliding(2, every=5), name="w").aggregate(s=ps.sum("v"))
    outcome = case.gives(sums, f"{WINDOW} s", (-5, -3, 1), (0, 2, 4), (5, 7, 32))
    assert (outcome.account("w").no_window, outcome.account("w").passed) == (3, 3)


def test_a_hopping_window_leaves_although_only_rows_in_gaps_follow(case: Case) -> None:
    rows = case.timed_source("t", [(0,)], [(9,)], [(1,)])
    counts = rows.window(ps.sliding(2, every=5), name="w").aggregate(n=ps.count())
    outcome = case.gives(counts, f"{WINDOW} n", (0, 2, 1))
    assert (outcome.account("w").late, outcome.account("w").no_window) == (1, 1)


def test_the_smallest_window_is_one_unit_of_time(case: Case) -> None:
    counts = case.timed_source("t", [(-1,), (0,), (0,)], time_unit="us").window(ps.tumbling(1))
    case.gives(counts.aggregate(n=ps.count()), f"{WINDOW} n", (-1, 0, 1), (0, 1, 2))


def test_windows_far_from_1970_hold_their_rows(case: Case) -> None:
    # A windower that walks from its origin loses rows here, or takes years.
    t = 253_402_300_799  # the last second of the year 9999
    rows = case.timed_source("t", [(t,)]).window(ps.sliding("10 s", every="5 s")).aggregate(n=ps.count())
    case.gives(rows, f"{WINDOW} n", (t - 9, t + 1, 1), (t - 4, t + 6, 1))


def test_one_row_gives_one_window(case: Case) -> None:
    case.gives(
        case.timed_source("t v", [(7, 1)]).window(ps.tumbling(10)).aggregate(s=ps.sum("v")),
        f"{WINDOW} s",
        (0, 10, 1),
    )


@pytest.mark.parametrize("batches", [(), ([],), ([], [])])
def test_no_rows_give_no_windows(case: Case, batches: tuple[list[tuple[int, str]], ...]) -> None:
    rows = case.timed_source("t key", *batches).key_by("key")
    case.gives(rows.window(ps.sliding(10, 5)).aggregate(n=ps.count()), f"key {WINDOW} n")


def test_without_a_key_all_rows_are_one_group(case: Case) -> None:
    rows = case.timed_source("t key", [(1, "a"), (2, "b"), (3, "a")])
    case.gives(rows.window(ps.tumbling(10)).aggregate(n=ps.count()), f"{WINDOW} n", (0, 10, 3))


@everywhere
def test_each_key_has_windows_of_its_own(case: Case) -> None:
    rows = case.timed_source(
        "t key v", [(1, "a", 1), (2, "b", 2), (11, "a", 4)], [(12, "b", 8), (13, "a", 16)]
    )
    case.gives(
        rows.key_by("key").window(ps.tumbling(10)).aggregate(s=ps.sum("v")),
        f"key {WINDOW} s",
        ("a", 0, 10, 1),
        ("b", 0, 10, 2),
        ("a", 10, 20, 20),
        ("b", 10, 20, 8),
    )


def test_results_of_a_key_leave_by_end_then_start(case: Case) -> None:
    rows = case.timed_source("t key", [(23, "a"), (4, "a"), (14, "b"), (1, "b")], [(35, "a")], delay=100)
    outcome = case.run(rows.key_by("key").window(ps.sliding(10, 4)).aggregate(n=ps.count()))
    for key in "ab":
        left = [(row["window_end"], row["window_start"]) for row in outcome.rows() if row["key"] == key]
        assert left == sorted(left)


def test_a_window_leaves_once_and_whole_however_the_watermark_comes_by(case: Case) -> None:
    batches = [[(1,)], [(4,)], [(9,)], [(10,)], [(11,)], [(25,)], [(26,)]]
    counts = case.timed_source("t", *batches).window(ps.tumbling(10)).aggregate(n=ps.count())
    case.gives(counts, f"{WINDOW} n", (0, 10, 3), (10, 20, 2), (20, 30, 2))


def test_out_of_order_rows_inside_the_delay_change_nothing(case: Case) -> None:
    #  W:   -inf      7          7          12
    rows = case.timed_source("t v", [(12, 1)], [(8, 2)], [(17, 4), (7, 8)], [(13, 16)], delay=5)
    outcome = case.gives(
        rows.window(ps.tumbling(10), name="w").aggregate(s=ps.sum("v")),
        f"{WINDOW} s",
        (0, 10, 10),
        (10, 20, 21),
    )
    assert outcome.account("w").late == 0


def test_a_filter_before_a_window_takes_rows_out_of_it(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 5), (2, 50), (3, 6)]).filter(col("v") < 10, name="small")
    outcome = case.gives(rows.window(ps.tumbling(10)).aggregate(s=ps.sum("v")), f"{WINDOW} s", (0, 10, 11))
    assert outcome.account("small").filtered == 1


@pytest.mark.parametrize("pattern", ["keyed", "parallel", "paned", "map_reduce"])
def test_every_pattern_gives_the_same_windows(case: Case, pattern: Any) -> None:
    rows = case.timed_source("t key v", [(t, "ab"[t % 2], t) for t in range(8)]).key_by("key")
    windows = rows.window(ps.sliding(4, 2), pattern=pattern, parallelism=3)
    case.gives(
        windows.aggregate(s=ps.sum("v")),
        f"key {WINDOW} s",
        ("a", -2, 2, 0),
        ("a", 0, 4, 2),
        ("a", 2, 6, 6),
        ("a", 4, 8, 10),
        ("a", 6, 10, 6),
        ("b", -2, 2, 1),
        ("b", 0, 4, 4),
        ("b", 2, 6, 8),
        ("b", 4, 8, 12),
        ("b", 6, 10, 7),
    )
