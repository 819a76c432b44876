"""Semi and anti joins: left rows with a partner, or without one, at their own time."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from tests.conformance.case import Case, same_rows
from tests.conformance.test_stream_join import SAME, lefts, rights

FEATURE = "Semi and anti joins"
LEFT = "t key v"


@pytest.mark.parametrize(("how", "keys"), [("semi", ["a"]), ("anti", ["b", "n"])])
def test_left_rows_leave_with_a_partner_or_without_one(case: Case, how: Any, keys: list[str]) -> None:
    left = lefts(case, [(1, "a", 1), (1, "b", 2), (1, "n", 3)])
    right = rights(case, [(2, "a", 10), (9, "b", 20), (2, None, 30)])
    outcome = case.run(left.join(right, on=SAME, within=5, how=how, name="j"))
    assert outcome.tables[0].schema.names == LEFT.split()
    assert outcome.bag("key") == keys
    assert outcome.account("j").passed == 6


@pytest.mark.parametrize(("how", "rows"), [("semi", [(1, "a", 1)]), ("anti", [])])
def test_a_row_with_many_partners_leaves_once(case: Case, how: Any, rows: list[Any]) -> None:
    left = lefts(case, [(1, "a", 1)], [], [], delay=100)
    right = rights(case, [(1, "a", 1), (2, "a", 2)], [(3, "a", 3)], [(0, "a", 4)], delay=100)
    case.gives(left.join(right, on=SAME, within=5, how=how), LEFT, *rows)


def test_equal_left_rows_are_rows_of_their_own(case: Case) -> None:
    left = lefts(case, [(1, "a", 1), (1, "a", 1)], [(1, "a", 1)], delay=10)
    right = rights(case, [(1, "a", 1)], delay=10)
    case.gives(left.join(right, on=SAME, within=5, how="semi"), LEFT, *[(1, "a", 1)] * 3)


def test_a_column_of_the_same_name_needs_no_suffix(case: Case) -> None:
    left = lefts(case, [(1, "a", 1), (2, "b", 2)])
    right = case.timed_source("t key v", [(2, "a", 3)], name="right")
    case.gives(left.join(right, on="key", within=5, how="semi"), LEFT, (1, "a", 1))


@pytest.mark.parametrize("within", [(2, 5), (5, 2), (0, 0)])
@pytest.mark.parametrize("how", ["semi", "anti"])
def test_the_bounds_are_those_of_an_inner_join(case: Case, how: Any, within: tuple[int, int]) -> None:
    older_left, older_right = within
    left = lefts(case, [(t, "a", t) for t in range(0, 20)])
    right = rights(case, [(10, "a", 0)])
    met = {t for t in range(20) if -older_right <= 10 - t <= older_left}
    wanted = met if how == "semi" else set(range(20)) - met
    assert set(case.run(left.join(right, on=SAME, within=within, how=how)).values("v")) == wanted


@pytest.mark.parametrize(("how", "at"), [("semi", 9), ("anti", 3)])
def test_what_leaves_has_the_left_rows_own_time(case: Case, how: Any, at: int) -> None:
    left = lefts(case, [(9, "a", 1), (3, "b", 1)])
    right = rights(case, [(12, "a", 1)])
    times = left.join(right, on=SAME, within=5, how=how).window(ps.tumbling(10))
    case.gives(times.aggregate(at=ps.event_time_max()), "window_start window_end at", (0, 10, at))


@pytest.mark.parametrize("how", ["semi", "anti"])
@pytest.mark.parametrize("within", [(7, 0), (0, 7), (3, 4)])
def test_what_leaves_is_in_time_for_a_window_behind_the_join(case: Case, how: Any, within: Any) -> None:
    left = lefts(case, *([(t, "a" if t % 4 else "b", 1)] for t in range(0, 40, 2)))
    right = rights(case, *([(t, "a", 1)] for t in range(0, 40, 2)))
    joined = left.join(right, on=SAME, within=within, how=how).window(ps.tumbling(20), name="w")
    outcome = case.gives(joined.aggregate(n=ps.count()), "window_start window_end n", (0, 20, 5), (20, 40, 5))
    assert outcome.account("w").late == 0


@pytest.mark.parametrize(
    ("how", "rows"), [("semi", [(10, "a", 1)]), ("anti", [(12, "z", 0), (16, "z", 1), (40, "z", 2)])]
)
def test_a_semi_row_waits_for_a_partner_and_an_anti_row_until_none_can_come(
    case: Case, how: Any, rows: list[Any]
) -> None:
    left = lefts(case, [(10, "a", 1), (12, "z", 0)], [(16, "z", 1)], [(40, "z", 2)])
    right = rights(case, [(12, "y", 0)], [(15, "a", 7)], [(40, "y", 1)])
    case.gives(left.join(right, on=SAME, within=5, how=how), LEFT, *rows)


@pytest.mark.parametrize(("how", "rows"), [("semi", [(100, "a", 1)]), ("anti", [])])
def test_late_rows_are_in_neither(case: Case, how: Any, rows: list[Any]) -> None:
    left = lefts(case, [(100, "a", 1)], [(5, "b", 2)])
    right = rights(case, [(100, "a", 1)], [(5, "b", 2)])
    joined = left.join(right, on=SAME, within=1000, how=how)
    outcome = case.run(joined, joined.late, joined.late_right)
    same_rows(outcome.tables[0], LEFT, *rows)
    assert (outcome.values("key", 1), outcome.values("k", 2)) == (["b"], ["b"])


@pytest.mark.parametrize(("how", "rows"), [("semi", []), ("anti", [(1, "a", 1), (2, None, 2)])])
def test_rows_of_an_empty_right_side_are_all_alone(case: Case, how: Any, rows: list[Any]) -> None:
    left = lefts(case, [(1, "a", 1), (2, None, 2)])
    case.gives(left.join(rights(case), on=SAME, within=5, how=how), LEFT, *rows)


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_an_empty_left_side_gives_nothing(case: Case, how: Any) -> None:
    case.gives(lefts(case).join(rights(case, [(1, "a", 1)]), on=SAME, within=5, how=how), LEFT)


def test_a_pair_that_fails_is_no_partner(case: Case) -> None:
    left = lefts(case, [(1, "a", 4), (1, "b", 6)], delay=10)
    right = rights(case, [(1, "x", 0)], delay=10)
    on = ps.left("v") // ps.right("w") > 1
    anti = left.join(right, on=on, within=1, how="anti", on_error="dead_letter", name="j")
    outcome = case.run(anti, anti.errors)
    same_rows(outcome.tables[0], LEFT, (1, "a", 4), (1, "b", 6))
    assert outcome.tables[1].schema.names == [*LEFT.split(), "error", "error_step"]
    assert outcome.bag("key", 1) == ["a", "b"]
    assert (outcome.account("j").passed, outcome.account("j").errors) == (1, 2)


def test_a_semi_join_tests_the_pairs_after_the_first_too(case: Case) -> None:
    left = lefts(case, [(1, "a", 4)], [], delay=10)
    right = rights(case, [(1, "x", 2)], [(1, "y", 0)], delay=10)
    on = ps.left("v") // ps.right("w") > 1
    semi = left.join(right, on=on, within=1, how="semi", on_error="dead_letter", name="j")
    outcome = case.run(semi, semi.errors)
    assert (len(outcome.rows(0)), len(outcome.rows(1))) == (1, 1)


@pytest.mark.parametrize(("how", "n"), [("semi", 1), ("anti", 2)])
def test_rows_of_one_tumbling_window_are_partners(case: Case, how: Any, n: int) -> None:
    left = lefts(case, [(0, "a", 1), (9, "b", 2), (10, "a", 3)])
    right = rights(case, [(9, "a", 4), (19, "b", 6)])
    outcome = case.run(left.join(right, on=SAME, window=ps.tumbling(10), how=how))
    assert len(outcome.rows()) == n
    assert outcome.tables[0].schema.names == LEFT.split()


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_semi_join_and_an_anti_join_divide_the_left_stream(case: Case, how: Any) -> None:
    first = [(t, "abc"[t % 3], t) for t in range(35)]
    second = [(t, "ab"[t % 2], t % 4) for t in range(0, 35, 5)]
    left = lefts(case, *[first[n : n + 7] for n in range(0, 35, 7)])
    right = rights(case, *[[row] for row in second])
    met = {
        v for t, key, v in first for u, k, w in second if key == k and abs(v - w) <= 30 and -2 <= u - t <= 1
    }
    wanted = met if how == "semi" else set(range(35)) - met
    joined = left.join(right, on=[SAME, ps.band("v", "w", 30)], within=(1, 2), how=how)
    assert case.run(joined).bag("v") == sorted(wanted)
