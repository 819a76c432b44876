"""Several windows on one stream: each has its own results, and a row is late only when it is late for all."""

from __future__ import annotations

import penstock as ps
from tests.conformance.case import Case, same_rows

FEATURE = "Several windows on one stream"
WINDOW = "window window_start window_end"


def test_results_say_which_window_they_are_of(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1), (6, 2), (12, 4)])
    sums = rows.window(fast=ps.tumbling(5), slow=ps.tumbling(10)).aggregate(s=ps.sum("v"))
    case.gives(
        sums,
        f"{WINDOW} s",
        ("fast", 0, 5, 1),
        ("fast", 5, 10, 2),
        ("fast", 10, 15, 4),
        ("slow", 0, 10, 3),
        ("slow", 10, 20, 4),
    )


def test_windows_of_different_sizes_and_slides_share_rows(case: Case) -> None:
    #  -4   0    2    4    6    8
    #  [    7    )
    #       [7        )
    #  wide: [-6, 3) [-3, 6) [0, 9)
    rows = case.timed_source("t v", [(1, 7)])
    sums = rows.window(even=ps.sliding(4, 2), wide=ps.sliding(9, 3)).aggregate(s=ps.sum("v"))
    case.gives(
        sums,
        f"{WINDOW} s",
        ("even", -2, 2, 7),
        ("even", 0, 4, 7),
        ("wide", -6, 3, 7),
        ("wide", -3, 6, 7),
        ("wide", 0, 9, 7),
    )


def test_a_row_late_for_one_kind_counts_in_the_other(case: Case) -> None:
    #  W = 7: fast [0, 5) has left, slow [0, 10) is open
    counts = (
        case.timed_source("t", [(7,)], [(2,)])
        .window(fast=ps.tumbling(5), slow=ps.tumbling(10), name="w")
        .aggregate(n=ps.count())
    )
    outcome = case.run(counts, counts.late)
    same_rows(outcome.tables[0], f"{WINDOW} n", ("fast", 5, 10, 1), ("slow", 0, 10, 2))
    assert outcome.rows(1) == []
    account = outcome.account("w")
    assert (account.late, account.passed, account.late_by_window) == (0, 2, {"fast": 1})


def test_a_row_late_for_every_kind_is_late_once(case: Case) -> None:
    counts = (
        case.timed_source("t", [(70,)], [(2,)])
        .window(fast=ps.tumbling(5), slow=ps.tumbling(10), name="w")
        .aggregate(n=ps.count())
    )
    outcome = case.run(counts.late)
    same_rows(outcome.tables[0], "t", (2,))
    account = outcome.account("w")
    assert (account.late, account.passed, account.late_by_window) == (1, 1, {"fast": 1, "slow": 1})


def test_a_row_in_the_gap_of_one_kind_counts_in_the_other(case: Case) -> None:
    rows = case.timed_source("t", [(3,), (13,)])
    counts = rows.window(gaps=ps.sliding(2, every=10), all=ps.tumbling(5), name="w").aggregate(n=ps.count())
    outcome = case.gives(counts, f"{WINDOW} n", ("all", 0, 5, 1), ("all", 10, 15, 1))
    assert (outcome.account("w").passed, outcome.account("w").no_window) == (2, 0)


def test_a_row_in_the_gaps_of_all_kinds_is_in_no_window(case: Case) -> None:
    rows = case.timed_source("t", [(0,), (7,)])
    counts = rows.window(a=ps.sliding(2, every=10), b=ps.sliding(4, every=10), name="w")
    outcome = case.gives(counts.aggregate(n=ps.count()), f"{WINDOW} n", ("a", 0, 2, 1), ("b", 0, 4, 1))
    assert (outcome.account("w").passed, outcome.account("w").no_window) == (1, 1)


def test_a_row_that_missed_one_kind_and_lies_in_the_gap_of_the_other_is_late(case: Case) -> None:
    #  W = 9: all [0, 5) has left; 3 lies in no window of the other kind
    counts = (
        case.timed_source("t", [(9,)], [(3,)])
        .window(gaps=ps.sliding(2, every=10), all=ps.tumbling(5), name="w")
        .aggregate(n=ps.count())
    )
    same_rows(case.run(counts.late).tables[0], "t", (3,))


def test_time_session_and_count_windows_stand_side_by_side(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 1), (2, "a", 2), (8, "a", 4)]).key_by("key")
    sums = rows.window(time=ps.tumbling(5), rest=ps.session(3), pair=ps.count_window(2)).aggregate(
        s=ps.sum("v")
    )
    case.gives(
        sums,
        "key window window_start window_end window_index s",
        ("a", "time", 0, 5, None, 3),
        ("a", "time", 5, 10, None, 4),
        ("a", "rest", 1, 5, None, 3),
        ("a", "rest", 8, 11, None, 4),
        ("a", "pair", 1, 2, 0, 3),
    )


def test_a_row_unfinished_in_one_kind_and_counted_in_another_has_passed(case: Case) -> None:
    rows = case.timed_source("t", [(1,), (2,), (3,)])
    counts = rows.window(time=ps.tumbling(5), pair=ps.count_window(2), name="w").aggregate(n=ps.count())
    account = case.run(counts).account("w")
    assert (account.passed, account.unfinished) == (3, 0)


def test_results_of_a_key_leave_by_end_then_start_over_all_kinds(case: Case) -> None:
    rows = case.timed_source("t key", [(1, "a"), (6, "a"), (12, "a")], [(40, "a")]).key_by("key")
    outcome = case.run(rows.window(fast=ps.tumbling(5), slow=ps.sliding(20, 5)).aggregate(n=ps.count()))
    left = [(row["window_end"], row["window_start"]) for row in outcome.rows()]
    assert left == sorted(left)


def test_lateness_holds_for_every_kind(case: Case) -> None:
    #  W = 12: fast [0, 5) + 6 has left at 11, slow [0, 10) + 6 has not
    rows = case.timed_source("t", [(12,)], [(2,)])
    result = case.run(
        rows.window(fast=ps.tumbling(5), slow=ps.tumbling(10), lateness=6, name="w").aggregate(n=ps.count())
    ).account("w")
    assert (result.late, result.late_by_window) == (0, {"fast": 1})
