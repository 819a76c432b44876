"""Joins by sliding windows: a pair leaves once for each window that both are in, and says which."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock as ps
from tests.conformance.case import Case, same_rows
from tests.conformance.test_stream_join import BOTH, SAME, lefts, rights

FEATURE = "Joins by sliding windows"
WINDOWED = f"{BOTH} window_start window_end"


def test_a_pair_leaves_once_for_each_window_that_both_are_in(case: Case) -> None:
    #  0    5    10   15
    #  [    t  u )            7 and 8 share two windows, 7 and 12 one, 7 and 15 none
    #       [t  u  u  )
    left = lefts(case, [(7, "a", 1)])
    right = rights(case, [(8, "a", 2), (12, "a", 3), (15, "a", 4)])
    case.gives(
        left.join(right, on=SAME, window=ps.sliding(10, every=5)),
        WINDOWED,
        (7, "a", 1, 8, "a", 2, 0, 10),
        (7, "a", 1, 8, "a", 2, 5, 15),
        (7, "a", 1, 12, "a", 3, 5, 15),
    )


def test_windows_before_1970_are_shared_too(case: Case) -> None:
    left, right = lefts(case, [(-1, "a", 1)]), rights(case, [(-6, "a", 2)])
    case.gives(
        left.join(right, on=SAME, window=ps.sliding(10, every=5)), WINDOWED, (-1, "a", 1, -6, "a", 2, -10, 0)
    )


@pytest.mark.parametrize("split", [1, 2, 3])
def test_cuts_do_not_change_the_pairs_of_windows(case: Case, split: int) -> None:
    rows = [(t, "a", t) for t in range(12)]
    left = lefts(case, *[rows[n : n + split] for n in range(0, 12, split)], delay=100)
    right = rights(case, *[[row] for row in rows], delay=100)
    got = case.run(left.join(right, on=SAME, window=ps.sliding(4, every=3))).rows()
    wanted = sorted(
        (t, u, start)
        for start in range(-6, 12, 3)
        for t in range(12)
        for u in range(12)
        if start <= t < start + 4 and start <= u < start + 4
    )
    assert sorted((row["t"], row["u"], row["window_start"]) for row in got) == wanted


@pytest.mark.parametrize(
    ("how", "alone"),
    [
        ("left", [(7, "a", 1, None, None, None, 5, 15)]),
        ("right", [(None, None, None, 3, "a", 2, -5, 5)]),
        ("full", [(7, "a", 1, None, None, None, 5, 15), (None, None, None, 3, "a", 2, -5, 5)]),
    ],
)
def test_a_row_is_alone_in_each_window_without_a_partner(case: Case, how: Any, alone: list[Any]) -> None:
    left, right = lefts(case, [(7, "a", 1)]), rights(case, [(3, "a", 2)])
    joined = left.join(right, on=SAME, window=ps.sliding(10, every=5), how=how)
    case.gives(joined, WINDOWED, (7, "a", 1, 3, "a", 2, 0, 10), *alone)


@pytest.mark.parametrize(("how", "start"), [("semi", 0), ("anti", 5)])
def test_semi_and_anti_joins_decide_in_each_window(case: Case, how: Any, start: int) -> None:
    left, right = lefts(case, [(7, "a", 1)]), rights(case, [(3, "a", 2), (2, "a", 3)])
    joined = left.join(right, on=SAME, window=ps.sliding(10, every=5), how=how)
    case.gives(joined, "t key v window_start window_end", (7, "a", 1, start, start + 10))


@pytest.mark.parametrize(("latest", "windows", "late"), [(9, 2, 0), (10, 1, 0), (14, 1, 0), (15, 0, 1)])
def test_a_row_joins_in_its_open_windows_and_is_late_when_all_have_closed(
    case: Case, latest: int, windows: int, late: int
) -> None:
    left = lefts(case, [(latest, "z", 1)], [(7, "a", 2)])
    right = rights(case, [(8, "a", 3), (latest, "y", 1)], [])
    joined = left.join(right, on=SAME, window=ps.sliding(10, every=5), name="j")
    outcome = case.run(joined, joined.late)
    assert (len(outcome.rows(0)), len(outcome.rows(1)), outcome.account("j").late) == (windows, late, late)


@pytest.mark.parametrize(("lateness", "windows"), [(0, 0), (1, 1), (5, 1), (6, 2)])
def test_lateness_keeps_windows_open(case: Case, lateness: int, windows: int) -> None:
    left = lefts(case, [(15, "z", 1)], [(7, "a", 2)])
    right = rights(case, [(8, "a", 3), (15, "y", 1)], [])
    joined = left.join(right, on=SAME, window=ps.sliding(10, every=5), lateness=lateness)
    assert len(case.run(joined).rows()) == windows


def test_a_row_in_the_gap_of_hopping_windows_is_in_no_window(case: Case) -> None:
    left = lefts(case, [(1, "a", 1), (7, "a", 2)])
    right = rights(case, [(2, "a", 3), (8, "a", 4)])
    joined = left.join(right, on=SAME, window=ps.sliding(5, every=10), how="full", name="j")
    outcome = case.gives(joined, WINDOWED, (1, "a", 1, 2, "a", 3, 0, 5))
    assert (outcome.account("j").no_window, outcome.account("j").passed) == (2, 2)


def test_pairs_of_sliding_windows_are_in_time_for_a_window_behind_the_join(case: Case) -> None:
    left = lefts(case, *([(t, "a", 1)] for t in range(0, 40, 2)))
    right = rights(case, *([(t, "a", 1)] for t in range(0, 40, 2)))
    joined = left.join(right, on=SAME, window=ps.sliding(6, every=2), how="full", suffix="_w")
    renamed = joined.select("t", "u", start=ps.col("window_start"))
    outcome = case.run(renamed.window(ps.tumbling(4), name="w").aggregate(n=ps.count()))
    assert outcome.account("w").late == 0
    assert sum(outcome.values("n")) == outcome.account("w").passed


def test_bounds_of_windows_have_the_type_of_time(case: Case) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    left = case.timed_source("t:timestamp[us,UTC] v", [(start + timedelta(seconds=7), 1)], name="left")
    right = case.timed_source(
        "u:timestamp[us,UTC] w:int64", [(start + timedelta(seconds=12), 1)], name="right"
    )
    joined = left.join(right, on=ps.equal("v", "w"), window=ps.sliding("10 s", every="5 s"))
    (row,) = case.run(joined).rows()
    assert (row["window_start"], row["window_end"]) == (
        start + timedelta(seconds=5),
        start + timedelta(seconds=15),
    )


def test_a_pair_that_fails_does_so_in_each_window_that_it_shares(case: Case) -> None:
    left, right = lefts(case, [(7, "a", 4)]), rights(case, [(8, "a", 0)])
    on = ps.left("v") // ps.right("w") > 1
    joined = left.join(right, on=on, window=ps.sliding(10, every=5), name="j", on_error="dead_letter")
    outcome = case.run(joined, joined.errors)
    same_rows(
        [{**row, "error": None} for row in outcome.rows(1)],
        f"{WINDOWED} error error_step",
        (7, "a", 4, 8, "a", 0, 0, 10, None, "j"),
        (7, "a", 4, 8, "a", 0, 5, 15, None, "j"),
    )
    assert outcome.account("j").errors == 1


def test_a_tumbling_window_adds_no_columns(case: Case) -> None:
    left, right = lefts(case, [(1, "a", 1)]), rights(case, [(9, "a", 2)])
    case.gives(left.join(right, on=SAME, window=ps.sliding(10, every=10)), BOTH, (1, "a", 1, 9, "a", 2))
