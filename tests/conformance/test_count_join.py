"""Joins with the last rows: each row meets the last N rows of the other stream that are before it.

All rows are in one order: by time, left before right, then as their readers number them.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import penstock as ps
from tests.conformance.case import Case, same_rows
from tests.conformance.test_stream_join import BOTH, SAME, anything, lefts, rights

FEATURE = "Joins with the last rows"


def find_pairs(case: Case, joined: ps.MultiPipe) -> list[tuple[Any, Any]]:
    """Which left rows met which right rows, by v and w."""
    return sorted((row["v"], row["w"]) for row in case.run(joined).rows())


def brute_force(
    first: list[tuple[Any, ...]], second: list[tuple[Any, ...]], last_rows: tuple[int, int]
) -> list[tuple[Any, Any]]:
    """The pairs, from the definition: for each row, the last rows of the other side before it."""
    n_left, n_right = last_rows
    pairs = []
    for u, _, w in second:
        before = [v for t, _, v in first if t <= u]
        pairs += [(v, w) for v in before[max(0, len(before) - n_left) :]]
    for t, _, v in first:
        before = [w for u, _, w in second if u < t]
        pairs += [(v, w) for w in before[max(0, len(before) - n_right) :]]
    return sorted(pairs)


def test_a_row_meets_the_last_rows_of_the_other_stream_before_it(case: Case) -> None:
    #  left       2       4      2 meets 1; 3 meets 2; 4 meets 1 and 3
    #  right  1       3
    left = lefts(case, [(2, "a", 2), (4, "a", 4)])
    right = rights(case, [(1, "a", 1), (3, "a", 3)])
    assert find_pairs(case, left.join(right, on=anything, last_rows=(1, 2))) == [
        (2, 1),
        (2, 3),
        (4, 1),
        (4, 3),
    ]


@pytest.mark.parametrize("last_rows", [1, 2, 3, (1, 2), (0, 1), (3, 0), (0, 2), 100])
def test_the_pairs_are_those_of_the_definition(case: Case, last_rows: Any) -> None:
    first = [(t, "a", t) for t in (1, 2, 5, 6, 7, 11)]
    second = [(t, "a", 100 + t) for t in (0, 3, 4, 8, 9, 10, 12)]
    both = last_rows if isinstance(last_rows, tuple) else (last_rows, last_rows)
    left = lefts(case, first[:2], first[2:3], first[3:])
    right = rights(case, second[:3], second[3:6], second[6:])
    joined = left.join(right, on=anything, last_rows=last_rows)
    assert find_pairs(case, joined) == brute_force(first, second, both)


@pytest.mark.parametrize(("i", "j"), list(product(range(3), range(3))))
def test_the_order_is_that_of_time_whichever_round_rows_come_in(case: Case, i: int, j: int) -> None:
    one: list[list[tuple[Any, ...]]] = [[], [], []]
    other: list[list[tuple[Any, ...]]] = [[(9, "a", 9)], [], []]
    one[i] = [(5, "a", 5)]
    other[j] = [*other[j], (4, "a", 4)]
    joined = lefts(case, *one, delay=100).join(rights(case, *other, delay=100), on=anything, last_rows=1)
    assert find_pairs(case, joined) == [(5, 4), (5, 9)]


def test_of_rows_of_one_time_the_left_is_first(case: Case) -> None:
    left, right = lefts(case, [(5, "a", 1)]), rights(case, [(5, "a", 2)])
    assert find_pairs(case, left.join(right, on=anything, last_rows=(1, 0))) == [(1, 2)]


def test_a_right_row_of_the_same_time_is_not_before_a_left_row(case: Case) -> None:
    left, right = lefts(case, [(5, "a", 1)]), rights(case, [(5, "a", 2)])
    assert find_pairs(case, left.join(right, on=anything, last_rows=(0, 1))) == []


def test_rows_of_one_side_and_one_time_are_in_the_order_of_their_reader(case: Case) -> None:
    left = lefts(case, [(5, "a", 3), (5, "a", 1), (5, "a", 2)])
    right = rights(case, [(6, "a", 9)])
    assert find_pairs(case, left.join(right, on=anything, last_rows=(2, 0))) == [(1, 9), (2, 9)]


def test_rows_that_the_predicate_refuses_are_among_the_last_rows_too(case: Case) -> None:
    left = lefts(case, [(3, "a", 3), (6, "a", 6)])
    right = rights(case, [(1, "a", 1), (2, "b", 2), (4, "b", 4), (5, "a", 5)])
    assert find_pairs(case, left.join(right, on=SAME, last_rows=(0, 1))) == [(6, 5)]


def test_late_rows_are_not_among_the_last_rows(case: Case) -> None:
    left = lefts(case, [(10, "a", 10)], [(5, "a", 5)], [(12, "a", 12)])
    right = rights(case, [(10, "a", 1)], [(9, "a", 2), (11, "a", 3)], [(12, "a", 4)])
    joined = left.join(right, on=anything, last_rows=2, name="j")
    outcome = case.run(joined, joined.late, joined.late_right)
    same_rows(outcome.tables[1], "t key v", (5, "a", 5))
    same_rows(outcome.tables[2], "u k w", (9, "a", 2))
    assert outcome.account("j").late == 2
    got = sorted((row["v"], row["w"]) for row in outcome.rows())
    assert got == [(10, 1), (10, 3), (10, 4), (12, 1), (12, 3), (12, 4)]


@pytest.mark.parametrize(("t", "lateness", "late"), [(99, 0, 1), (100, 0, 0), (97, 2, 1), (98, 2, 0)])
def test_a_row_behind_the_watermark_and_the_lateness_is_late(
    case: Case, t: int, lateness: int, late: int
) -> None:
    left = lefts(case, [(100, "a", 1)], [(t, "a", 2)])
    right = rights(case, [(120, "a", 3)], [])
    joined = left.join(right, on=anything, last_rows=5, lateness=lateness, name="j")
    outcome = case.run(joined, joined.late)
    assert (len(outcome.rows(0)), len(outcome.rows(1))) == (2 - late, late)
    assert outcome.account("j").late == late


def test_lateness_keeps_rows_waiting_so_that_a_late_one_takes_its_place(case: Case) -> None:
    #  with lateness 5, the right row at 8 comes in time to be the last one before the left row at 9
    left = lefts(case, [(9, "a", 9)], [(12, "z", 12)], [])
    right = rights(case, [(7, "a", 7), (11, "z", 11)], [(8, "a", 8)], [])
    joined = left.join(right, on=anything, last_rows=(0, 1), lateness=5)
    assert find_pairs(case, joined) == [(9, 8), (12, 11)]


def test_times_before_1970_are_in_order_too(case: Case) -> None:
    left = lefts(case, [(-1, "a", 1), (-5, "a", 5)], delay=100)
    right = rights(case, [(-3, "a", 3), (-7, "a", 7)], delay=100)
    assert find_pairs(case, left.join(right, on=anything, last_rows=1)) == [(1, 3), (5, 3), (5, 7)]


@pytest.mark.parametrize(
    ("how", "rows"),
    [
        ("left", [(1, "a", 1, None, None, None), (4, "a", 4, 3, "a", 3)]),
        ("semi", [(4, "a", 4)]),
        ("anti", [(1, "a", 1)]),
    ],
)
def test_a_left_row_that_no_later_row_meets_is_decided_by_the_rows_before_it(
    case: Case, how: Any, rows: list[Any]
) -> None:
    left = lefts(case, [(1, "a", 1), (4, "a", 4)])
    right = rights(case, [(2, "a", 2), (3, "a", 3)])
    joined = left.join(right, on=SAME, last_rows=(0, 1), how=how)
    case.gives(joined, BOTH if how == "left" else "t key v", *rows)


def test_a_right_row_that_no_later_row_meets_is_decided_by_the_rows_before_it(case: Case) -> None:
    left = lefts(case, [(2, "a", 2), (3, "b", 3)])
    right = rights(case, [(1, "a", 1), (4, "a", 4)])
    joined = left.join(right, on=SAME, last_rows=(2, 0), how="right")
    case.gives(joined, BOTH, (None, None, None, 1, "a", 1), (2, "a", 2, 4, "a", 4))


@pytest.mark.parametrize("lateness", [0, 7])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_what_leaves_is_in_time_for_a_window_behind_the_join(case: Case, how: Any, lateness: int) -> None:
    left = lefts(case, *([(t, "ab"[t % 3 == 0], 1)] for t in range(0, 40, 2)))
    right = rights(case, *([(t + 1, "a", 1)] for t in range(0, 40, 4)))
    joined = left.join(right, on=SAME, last_rows=(0, 2), how=how, lateness=lateness)
    outcome = case.run(joined.window(ps.tumbling(5), name="w").aggregate(n=ps.count()))
    assert outcome.account("w").late == 0
    assert outcome.account("w").passed > 0


def test_a_pair_has_the_later_time(case: Case) -> None:
    left, right = lefts(case, [(1, "a", 1)]), rights(case, [(25, "a", 2)])
    counts = left.join(right, on=SAME, last_rows=3).window(ps.tumbling(10)).aggregate(n=ps.count())
    case.gives(counts, "window_start window_end n", (20, 30, 1))


def test_an_empty_side_gives_no_pairs(case: Case) -> None:
    case.gives(lefts(case, [(1, "a", 1)]).join(rights(case), on=SAME, last_rows=5), BOTH)


def test_nothing_leaves_before_the_watermark_has_passed(case: Case) -> None:
    #  the left row at 6 might still meet a right row at 5
    left = lefts(case, [(6, "a", 6)], [(8, "a", 8)], delay=3)
    right = rights(case, [(2, "a", 2)], [(5, "a", 5)], delay=3)
    assert find_pairs(case, left.join(right, on=anything, last_rows=(0, 1))) == [(6, 5), (8, 5)]


def test_a_row_meets_itself_in_a_join_of_a_stream_with_itself(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1), (2, 2), (3, 3)])
    joined = rows.join(rows, on=anything, last_rows=(2, 0), suffix="_r")
    got = sorted((row["v"], row["v_r"]) for row in case.run(joined).rows())
    assert got == [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3)]


@pytest.mark.parametrize("layout", [(1, 1), (2, 3), (1, 4)])
def test_the_layout_does_not_change_the_last_rows(case: Case, layout: tuple[int, int]) -> None:
    first = [(t, "a", t) for t in range(0, 20, 2)]
    second = [(t, "a", t) for t in range(1, 20, 3)]
    joined = lefts(case, first).join(rights(case, second), on=anything, last_rows=(2, 3), layout=layout)
    assert find_pairs(case, joined) == brute_force(first, second, (2, 3))


def test_a_pair_that_fails_is_charged_to_the_later_row(case: Case) -> None:
    left = lefts(case, [(5, "a", 4)])
    right = rights(case, [(1, "x", 0), (2, "y", 2), (3, "z", 0)])
    on = ps.left("v") // ps.right("w") > 1
    joined = left.join(right, on=on, last_rows=3, name="j", on_error="dead_letter")
    outcome = case.run(joined, joined.errors)
    assert (outcome.values("k"), outcome.bag("k", 1)) == (["y"], ["x", "z"])
    account = outcome.account("j")
    assert (account.rows_in, account.passed, account.errors) == (4, 3, 1)


def test_bands_and_expressions_work_on_the_last_rows(case: Case) -> None:
    left = lefts(case, [(5, "a", 10), (9, "b", 20)])
    right = rights(case, [(1, "a", 8), (2, "b", 19), (3, "a", 13), (7, "b", 21)])
    on = [ps.band("v", "w", 3), ps.left("v") > ps.right("w")]
    assert find_pairs(case, left.join(right, on=on, last_rows=(0, 3))) == [(10, 8), (20, 19)]
