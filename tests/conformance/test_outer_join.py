"""Outer joins: rows without a partner leave too, with nulls, once no partner can come any more."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from tests.conformance.case import Case
from tests.conformance.test_stream_join import BOTH, SAME, lefts, rights

FEATURE = "Outer joins"

OUTER: dict[str, list[tuple[Any, ...]]] = {
    "inner": [(1, "a", 1, 2, "a", 10)],
    "left": [(1, "a", 1, 2, "a", 10), (1, "b", 2, None, None, None)],
    "right": [(1, "a", 1, 2, "a", 10), (None, None, None, 3, "c", 20)],
    "full": [(1, "a", 1, 2, "a", 10), (1, "b", 2, None, None, None), (None, None, None, 3, "c", 20)],
}


@pytest.mark.parametrize("how", list(OUTER))
def test_rows_without_a_partner_leave_with_nulls_in_outer_joins(case: Case, how: Any) -> None:
    left = lefts(case, [(1, "a", 1), (1, "b", 2)], [(50, "z", 0)], delay=1)
    right = rights(case, [(2, "a", 10)], [(3, "c", 20)], delay=1)
    zs: list[tuple[Any, ...]] = [(50, "z", 0, None, None, None)] if how in ("left", "full") else []
    case.gives(left.join(right, on=SAME, within=5, how=how), BOTH, *OUTER[how], *zs)


def test_a_shared_column_of_a_right_row_alone_is_its_own(case: Case) -> None:
    left = lefts(case, [(1, "a", 1)])
    right = case.timed_source("u:int64 key w:int64", [(2, "b", 3)], name="right")
    case.gives(
        left.join(right, on="key", within=5, how="full"),
        "t key v u w",
        (1, "a", 1, None, None),
        (None, "b", None, 2, 3),
    )


def test_an_outer_row_waits_until_no_partner_can_come(case: Case) -> None:
    #  left 10 within 5 of a right row at 15, which comes when W = 12
    left = lefts(case, [(10, "a", 1), (12, "z", 0)], [(16, "z", 1)], [(40, "z", 2)])
    right = rights(case, [(12, "y", 0)], [(15, "a", 7)], [(40, "y", 1)])
    outcome = case.run(left.join(right, on=SAME, within=5, how="left"))
    assert [(row["v"], row["w"]) for row in outcome.rows() if row["key"] == "a"] == [(1, 7)]


def test_rows_that_leave_alone_are_in_time_for_a_window_behind_the_join(case: Case) -> None:
    left = lefts(case, *([(t, "a", 1)] for t in range(0, 40, 2)))
    right = rights(case, *([(t, "b", 1)] for t in range(0, 40, 2)))
    alone = left.join(right, on=SAME, within=7, how="full").window(ps.tumbling(20), name="w")
    outcome = case.gives(
        alone.aggregate(n=ps.count()), "window_start window_end n", (0, 20, 20), (20, 40, 20)
    )
    assert outcome.account("w").late == 0


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_null_keys_leave_an_outer_join_alone(case: Case, how: Any) -> None:
    left, right = lefts(case, [(1, None, 1)]), rights(case, [(1, None, 2)])
    alone: list[tuple[Any, ...]] = [(1, None, 1, None, None, None)] if how != "right" else []
    alone += [(None, None, None, 1, None, 2)] if how != "left" else []
    case.gives(left.join(right, on=SAME, within=5, how=how), BOTH, *alone)


@pytest.mark.parametrize("how", ["left", "full"])
def test_a_row_that_meets_nobody_close_enough_in_a_band_is_alone(case: Case, how: Any) -> None:
    left = lefts(case, [(1, "a", None), (1, "b", 5)])
    right = rights(case, [(1, "x", 6)])
    joined = left.join(right, on=ps.band("v", "w", 1), within=5, how=how)
    case.gives(joined, BOTH, (1, "a", None, None, None, None), (1, "b", 5, 1, "x", 6))


@pytest.mark.parametrize(("within", "waits"), [((10, 0), True), ((0, 10), False)])
def test_a_left_row_waits_as_long_as_it_may_be_the_older(
    case: Case, within: tuple[int, int], waits: bool
) -> None:
    #  W is 12 when the partner at 15 comes
    left = lefts(case, [(10, "a", 1)], [(12, "z", 0)], [])
    right = rights(case, [(12, "y", 0)], [], [(15, "a", 7)])
    outcome = case.run(left.join(right, on=SAME, within=within, how="left"))
    rows = [row["w"] for row in outcome.rows() if row["key"] == "a"]
    assert rows == [7 if waits else None]


@pytest.mark.parametrize(("lateness", "w"), [(0, None), (3, 7)])
def test_lateness_keeps_a_row_waiting_for_late_partners(case: Case, lateness: int, w: int | None) -> None:
    #  left 10 within 2: with lateness 3 a right row at 12 may come until W = 15
    left = lefts(case, [(10, "a", 1), (14, "z", 0)], [])
    right = rights(case, [(14, "y", 0)], [(12, "a", 7)])
    outcome = case.run(left.join(right, on=SAME, within=2, how="left", lateness=lateness))
    assert [row["w"] for row in outcome.rows() if row["key"] == "a"] == [w]


def test_late_rows_do_not_leave_an_outer_join_alone(case: Case) -> None:
    left = lefts(case, [(100, "a", 1)], [(5, "b", 2)])
    right = rights(case, [(100, "c", 1)], [(6, "d", 2)])
    joined = left.join(right, on=SAME, within=1, how="full", name="j")
    outcome = case.run(joined, joined.late, joined.late_right)
    assert sorted(str(row["key"]) for row in outcome.rows()) == ["None", "a"]
    assert (outcome.values("key", 1), outcome.values("k", 2)) == (["b"], ["d"])


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_rows_of_an_empty_other_side_are_all_alone(case: Case, how: Any) -> None:
    rows = [[(t, "a", t)] for t in range(3)]
    left, right = (lefts(case), rights(case, *rows)) if how == "right" else (lefts(case, *rows), rights(case))
    assert len(case.run(left.join(right, on=SAME, within=5, how=how)).rows()) == 3


def test_an_outer_join_by_tumbling_windows(case: Case) -> None:
    left = lefts(case, [(1, "a", 1), (11, "a", 2)])
    right = rights(case, [(9, "a", 3), (21, "a", 4)])
    case.gives(
        left.join(right, on=SAME, window=ps.tumbling(10), how="full"),
        BOTH,
        (1, "a", 1, 9, "a", 3),
        (11, "a", 2, None, None, None),
        (None, None, None, 21, "a", 4),
    )


def test_a_pair_that_fails_leaves_its_rows_alone(case: Case) -> None:
    left, right = lefts(case, [(1, "a", 4)], delay=9), rights(case, [(1, "x", 0)], delay=9)
    on = ps.left("v") // ps.right("w") > 1
    joined = left.join(right, on=on, within=5, how="full", on_error="skip", name="j")
    outcome = case.gives(joined, BOTH, (1, "a", 4, None, None, None), (None, None, None, 1, "x", 0))
    assert (outcome.account("j").passed, outcome.account("j").errors) == (1, 1)


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_an_outer_join_of_three_streams(case: Case, how: Any) -> None:
    left, right = lefts(case, [(1, "a", 1), (1, "b", 2)]), rights(case, [(2, "a", 3), (2, "c", 4)])
    third = case.timed_source("s:int64 name:string", [(3, "a"), (3, "b")], name="third")
    pairs = left.join(right, on=SAME, within=5, how=how)
    got = case.run(pairs.join(third, on=ps.equal("key", "name"), within=5, how="left")).rows()
    wanted = {"left": ["a", "b"], "right": ["a", "None"], "full": ["a", "b", "None"]}[how]
    assert sorted(str(row["name"]) for row in got) == sorted(wanted)
