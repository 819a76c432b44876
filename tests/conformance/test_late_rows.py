"""Late rows: when a row has missed a window, when it has missed all of them, and where it goes then."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case, same_rows
from tests.conformance.engines import everywhere

FEATURE = "Late rows and lateness"
WINDOW = "window_start window_end"


@everywhere
def test_a_row_whose_window_has_left_goes_to_late_with_its_columns(case: Case) -> None:
    #  0      10     20   25
    #  [4     )           W
    rows = case.timed_source("t key v", [(25, "a", 1)], [(4, "a", 2)]).key_by("key")
    counts = rows.window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    outcome = case.run(counts, counts.late)
    same_rows(outcome.tables[0], f"key {WINDOW} n", ("a", 20, 30, 1))
    same_rows(outcome.tables[1], "t key v", (4, "a", 2))
    assert outcome.account("w").late == 1
    assert outcome.account("w").late_by_window == {"tumbling 10 s": 1}


@pytest.mark.parametrize(("latest", "late"), [(9, 0), (10, 1), (11, 1)])
def test_a_window_has_left_when_the_watermark_reaches_its_end(case: Case, latest: int, late: int) -> None:
    rows = (
        case.timed_source("t", [(latest,)], [(3,)]).window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    )
    assert case.run(rows).account("w").late == late


@pytest.mark.parametrize(("latest", "late"), [(14, 0), (15, 1)])
def test_lateness_keeps_a_window_open_so_much_longer(case: Case, latest: int, late: int) -> None:
    #  0      10    15 = end + lateness
    #  [3     )     |
    rows = case.timed_source("t", [(latest,)], [(3,)])
    counts = rows.window(ps.tumbling(10), lateness=5, name="w").aggregate(n=ps.count())
    assert case.run(counts).account("w").late == late


@pytest.mark.parametrize(("latest", "late"), [(14, 0), (15, 1)])
def test_the_delay_holds_the_watermark_back(case: Case, latest: int, late: int) -> None:
    rows = case.timed_source("t", [(latest,)], [(3,)], delay=5)
    counts = rows.window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    assert case.run(counts).account("w").late == late


def test_delay_and_lateness_add_up(case: Case) -> None:
    #  W = 19 - 5 = 14 < 10 + 5: open; then W = 20 - 5 = 15: left
    rows = case.timed_source("t", [(19,)], [(3,), (20,)], [(4,)], delay=5)
    counts = rows.window(ps.tumbling(10), lateness=5, name="w").aggregate(n=ps.count())
    outcome = case.gives(counts, f"{WINDOW} n", (0, 10, 1), (10, 20, 1), (20, 30, 1))
    assert outcome.account("w").late == 1


def test_a_row_late_for_some_of_its_windows_counts_in_the_others(case: Case) -> None:
    #  5      10    15 16  20        W = 16
    #  [   11 )     )                has left
    #         [11      16  )         is open
    rows = case.timed_source("t", [(16,)], [(11,)])
    counts = rows.window(ps.sliding(10, 5), name="w").aggregate(n=ps.count())
    outcome = case.run(counts, counts.late)
    same_rows(outcome.tables[0], f"{WINDOW} n", (10, 20, 2), (15, 25, 1))
    assert outcome.rows(1) == []
    account = outcome.account("w")
    assert (account.late, account.passed, account.late_by_window) == (0, 2, {"sliding 10 s every 5 s": 1})


def test_a_row_late_for_all_of_its_windows_is_late_once_and_misses_each(case: Case) -> None:
    rows = case.timed_source("t", [(16,)], [(9,)])
    counts = rows.window(ps.sliding(10, 5), name="w").aggregate(n=ps.count())
    outcome = case.run(counts, counts.late)
    same_rows(outcome.tables[1], "t", (9,))
    assert (outcome.account("w").late, outcome.account("w").late_by_window) == (
        1,
        {"sliding 10 s every 5 s": 2},
    )


def test_rows_of_one_batch_are_judged_by_the_batches_before_it_only(case: Case) -> None:
    rows = (
        case.timed_source("t", [(100,), (1,), (50,)])
        .window(ps.tumbling(10), name="w")
        .aggregate(n=ps.count())
    )
    outcome = case.gives(rows, f"{WINDOW} n", (0, 10, 1), (50, 60, 1), (100, 110, 1))
    assert outcome.account("w").late == 0


def test_a_late_row_opens_no_window(case: Case) -> None:
    # A windower that keeps no memory of what has left would give [0, 10) a second time.
    rows = case.timed_source("t", [(5,)], [(30,)], [(6,)], [(31,)])
    counts = rows.window(ps.tumbling(10)).aggregate(n=ps.count())
    case.gives(counts, f"{WINDOW} n", (0, 10, 1), (30, 40, 2))


def test_a_late_row_does_not_extend_a_window_that_never_had_rows(case: Case) -> None:
    rows = case.timed_source("t", [(30,)], [(6,)]).window(ps.tumbling(10)).aggregate(n=ps.count())
    case.gives(rows, f"{WINDOW} n", (30, 40, 1))


def test_a_row_from_long_ago_is_late_and_nothing_worse(case: Case) -> None:
    rows = case.timed_source("t", [(1_000_000_000,)], [(-1_000_000_000,)])
    counts = rows.window(ps.sliding(10, 5), name="w").aggregate(n=ps.count())
    outcome = case.run(counts)
    assert (outcome.account("w").late, len(outcome.rows())) == (1, 2)


def test_the_watermark_is_of_the_stream_not_of_the_key(case: Case) -> None:
    rows = case.timed_source("t key", [(25, "a")], [(4, "b")]).key_by("key")
    counts = rows.window(ps.tumbling(10)).aggregate(n=ps.count())
    same_rows(case.run(counts.late).tables[0], "t key", (4, "b"))


def test_a_row_that_is_filtered_out_still_moves_the_watermark(case: Case) -> None:
    rows = case.timed_source("t v", [(25, 0)], [(4, 1)]).filter(col("v") > 0)
    counts = rows.window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    assert case.run(counts).account("w").late == 1


def test_a_late_row_itself_can_move_nothing_back(case: Case) -> None:
    #  W: -inf, 100, 100: the late 5 does not reopen [90, 100)
    rows = case.timed_source("t", [(100,)], [(5,)], [(95,)]).window(ps.tumbling(10), name="w")
    assert case.run(rows.aggregate(n=ps.count())).account("w").late == 2


def test_updates_may_reach_slices_that_earlier_windows_have_used(case: Case) -> None:
    #  0    5    10   15   20        W = 11: [0, 10) has left, its second half is shared
    #  [         )
    #       [  7      )              7 must still count here
    rows = case.timed_source("t v", [(6, 1), (11, 2)], [(7, 4)], [(30, 8)])
    sums = rows.window(ps.sliding(10, 5)).aggregate(s=ps.sum("v"))
    case.gives(
        sums,
        f"{WINDOW} s",
        (0, 10, 1),
        (5, 15, 7),
        (10, 20, 2),
        (25, 35, 8),
        (30, 40, 8),
    )


def test_the_late_pipe_can_be_worked_on_like_any_other(case: Case) -> None:
    rows = case.timed_source("t v", [(25, 1)], [(4, 2)], [(5, 3)]).window(ps.tumbling(10), name="w")
    rows.aggregate(n=ps.count())
    doubled = case.graph["w"].late.with_columns(v=col("v") * 2)
    case.gives(doubled, "t v", (4, 4), (5, 6))


def test_late_rows_can_be_put_into_windows_of_their_own(case: Case) -> None:
    #  late rows may be of any age, so they are late for nothing behind `.late`
    rows = case.timed_source("t", [(100,)], [(25,)], [(3,)], [(24,)])
    counts = rows.window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    missed = counts.late.window(ps.tumbling(10), name="missed").aggregate(n=ps.count())
    outcome = case.gives(missed, f"{WINDOW} n", (0, 10, 1), (20, 30, 2))
    assert outcome.account("missed").late == 0
