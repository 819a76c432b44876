"""Session windows: rows that follow each other closely, however disordered they come."""

from __future__ import annotations

import pytest

import penstock as ps
from tests.conformance.case import Case, same_rows
from tests.conformance.engines import everywhere

FEATURE = "Session windows"
WINDOW = "window_start window_end"


def sessions(rows: ps.MultiPipe, gap: int = 5, lateness: int = 0) -> ps.MultiPipe:
    """Counts of sessions, in a step called "s"."""
    return rows.window(ps.session(gap), lateness=lateness, name="s").aggregate(n=ps.count())


def test_a_session_ends_a_gap_after_its_last_row(case: Case) -> None:
    #  10 12      17
    #  [1  1      )
    case.gives(sessions(case.timed_source("t", [(10,), (12,)])), f"{WINDOW} n", (10, 17, 2))


def test_one_row_is_a_session(case: Case) -> None:
    case.gives(sessions(case.timed_source("t", [(-3,)])), f"{WINDOW} n", (-3, 2, 1))


@pytest.mark.parametrize(
    ("apart", "expected"),
    [
        (999_999, [(0, 1_999_999, 2)]),
        (1_000_000, [(0, 2_000_000, 2)]),  # the next begins where the first ends: they touch
        (1_000_001, [(0, 1_000_000, 1), (1_000_001, 2_000_001, 1)]),
    ],
)
def test_sessions_merge_when_they_touch(case: Case, apart: int, expected: list[tuple[int, int, int]]) -> None:
    rows = case.timed_source("t", [(0,), (apart,)], time_unit="us")
    counts = rows.window(ps.session("1 s")).aggregate(n=ps.count())
    case.gives(counts, f"{WINDOW} n", *expected)


def test_rows_of_equal_time_are_one_session(case: Case) -> None:
    case.gives(sessions(case.timed_source("t", [(1,), (1,)], [(1,)])), f"{WINDOW} n", (1, 6, 3))


def test_a_session_may_span_batches(case: Case) -> None:
    case.gives(
        sessions(case.timed_source("t", [(1,)], [(5,)], [(9,)], [(20,)])),
        f"{WINDOW} n",
        (1, 14, 3),
        (20, 25, 1),
    )


def test_the_order_inside_a_batch_does_not_matter(case: Case) -> None:
    rows = case.timed_source("t", [(20,), (9,), (1,), (5,)])
    case.gives(sessions(rows), f"{WINDOW} n", (1, 14, 3), (20, 25, 1))


@everywhere
def test_a_row_that_comes_later_bridges_two_sessions(case: Case) -> None:
    #  0    5    10   15
    #  [1   )    [1   )      then 5 touches both
    rows = case.timed_source("t", [(0,), (10,)], [(5,)], delay=100)
    case.gives(sessions(rows), f"{WINDOW} n", (0, 15, 3))


def test_a_bridge_one_short_joins_one_side_only(case: Case) -> None:
    rows = case.timed_source("t", [(0,), (11,)], [(5,)], delay=100)
    case.gives(sessions(rows), f"{WINDOW} n", (0, 10, 2), (11, 16, 1))


def test_a_row_in_front_makes_a_session_begin_earlier(case: Case) -> None:
    case.gives(sessions(case.timed_source("t", [(10,)], [(6,)], delay=100)), f"{WINDOW} n", (6, 15, 2))


def test_each_key_has_sessions_of_its_own(case: Case) -> None:
    rows = case.timed_source("t key", [(0, "a"), (3, "b"), (4, "a"), (9, "b"), (8, "a")]).key_by("key")
    case.gives(sessions(rows), f"key {WINDOW} n", ("a", 0, 13, 3), ("b", 3, 8, 1), ("b", 9, 14, 1))


def test_a_session_that_has_left_takes_no_more_rows(case: Case) -> None:
    #  0    5             100    W = 100
    #  [1   )  3 is late
    counts = sessions(case.timed_source("t", [(0,), (100,)], [(3,)]))
    outcome = case.run(counts, counts.late)
    same_rows(outcome.tables[0], f"{WINDOW} n", (0, 5, 1), (100, 105, 1))
    same_rows(outcome.tables[1], "t", (3,))
    assert outcome.account("s").late_by_window == {"session with gap 5 s": 1}


@pytest.mark.parametrize(("t", "late"), [(94, 1), (95, 0), (96, 0)])
def test_an_open_session_takes_in_a_row_that_would_be_late_alone(case: Case, t: int, late: int) -> None:
    #  94   95   99 100  105   W = 100: 95 alone would be [95, 100), which is over
    #       [       100  )     but it touches [100, 105), which is open
    outcome = case.run(sessions(case.timed_source("t", [(100,)], [(t,)])))
    assert outcome.account("s").late == late
    assert outcome.rows()[0]["window_start"] == (100 if late else t)


def test_a_late_row_may_be_taken_in_through_another_late_row(case: Case) -> None:
    #  90   95   100  105      W = 100; 90 touches only what 95 has made of the open session
    for order in ([(90,), (95,)], [(95,), (90,)]):
        fresh = Case(case.engine)
        fresh.gives(sessions(fresh.timed_source("t", [(100,)], order)), f"{WINDOW} n", (90, 105, 3))


@pytest.mark.parametrize(("latest", "late"), [(9, 0), (10, 1)])
def test_lateness_keeps_sessions_open(case: Case, latest: int, late: int) -> None:
    #  0   2    5   7   10     a row at 2 is late when W >= 2 + 5 + 3
    outcome = case.run(sessions(case.timed_source("t", [(latest,)], [(2,)]), gap=5, lateness=3))
    assert outcome.account("s").late == late


def test_a_session_leaves_only_when_its_lateness_is_over(case: Case) -> None:
    #  [0, 5) with lateness 20 is open at W = 24: 4 joins it
    rows = case.timed_source("t", [(0,), (24,)], [(4,)], [(40,)])
    outcome = case.gives(sessions(rows, lateness=20), f"{WINDOW} n", (0, 9, 2), (24, 29, 1), (40, 45, 1))
    assert outcome.account("s").late == 0


def test_an_in_time_row_starts_a_session_behind_one_that_has_left(case: Case) -> None:
    #  0    5  8  10   13    W = 8: [0, 5) has left; 5 touches it, but is in time and joins [8, 13)
    rows = case.timed_source("t", [(0,), (8,)], [(5,)])
    case.gives(sessions(rows), f"{WINDOW} n", (0, 5, 1), (5, 13, 2))


def test_a_session_that_grew_is_not_given_out_at_its_old_end(case: Case) -> None:
    #  W = 4 after the second batch; the first row alone would have ended at 5
    rows = case.timed_source("t", [(0,)], [(4,)], [(7,)], [(30,)])
    case.gives(sessions(rows), f"{WINDOW} n", (0, 12, 3), (30, 35, 1))


def test_sessions_of_a_key_leave_by_end(case: Case) -> None:
    outcome = case.run(sessions(case.timed_source("t", [(50,), (0,), (20,)], delay=100)))
    assert outcome.values("window_end") == [5, 25, 55]
